//! Key stores by `keytool`, which a Java and a Rust service read from the same file.

use std::path::Path;

use redisson_lock::LockClient;
use testbed::{Server, run_in, tls_only};

use crate::stage::Version;

const PASSWORD: &str = "s3cret-password";

/// `ca.crt`, a server's certificate, and by `keytool` in each form: `trust`, with two authorities, and `own`, with a key and its
/// chain.
fn make_files(dir: &Path) {
    std::fs::write(
        dir.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
    )
    .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names";
    for line in [
        format!("openssl req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"),
        format!("openssl req -x509 {key} -keyout other.key -out other.crt -subj /CN=other -days 2"),
        format!("openssl req {key} -keyout server.key -out server.csr -subj /CN=server"),
        format!("openssl x509 -req -in server.csr {signed} -out server.crt"),
    ] {
        run_in(dir, &line);
    }
    let secret = format!("-noprompt -storepass {PASSWORD}");
    for (form, options) in FORMS {
        let kind = if *form == "jks" { "JKS" } else { "PKCS12" };
        let keytool = |what: &str, file: &str| {
            run_in(
                dir,
                &format!(
                    "keytool{options} {what} -storetype {kind} -keystore {file}.{form} {secret}"
                ),
            );
        };
        for authority in ["other", "ca"] {
            keytool(
                &format!("-importcert -alias {authority} -file {authority}.crt"),
                "trust",
            );
        }
        let algorithm = if *form == "rsa" {
            "RSA -keysize 2048"
        } else {
            "EC -groupname secp256r1"
        };
        keytool(
            &format!("-genkeypair -alias a -keyalg {algorithm} -dname CN=a -keypass {PASSWORD}"),
            "own",
        );
        keytool(&format!("-certreq -alias a -file {form}.csr"), "own");
        run_in(
            dir,
            &format!("openssl x509 -req -in {form}.csr {signed} -out {form}.crt"),
        );
        keytool("-importcert -alias ca -file ca.crt", "own");
        keytool(&format!("-importcert -alias a -file {form}.crt"), "own");
    }
}

/// Endings of files, and the options by which `keytool` writes them.
const FORMS: &[(&str, &str)] = &[
    ("modern", ""),
    ("rsa", ""),
    ("legacy", " -J-Dkeystore.pkcs12.legacy"),
    ("jks", ""),
    (
        "open",
        " -J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE -J-Dkeystore.pkcs12.macAlgorithm=NONE",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_and_rust_read_the_same_key_stores() {
    let files = Server::start().await;
    let dir = files.dir();
    make_files(dir);
    let path = |name: &str| &*dir.join(name).display().to_string().leak();
    let options = tls_only(dir, "yes", ["ca.crt", "server.crt", "server.key"]);
    let server = Server::start_with(&options).await;
    for (form, _) in FORMS {
        let text = format!(
            "singleServerConfig:
  address: rediss://localhost:{}
  connectionMinimumIdleSize: 1
codec: !<org.redisson.client.codec.StringCodec> {{}}
sslTruststore: file://{}
sslTruststorePassword: {PASSWORD}
sslKeystore: file://{}
sslKeystorePassword: {PASSWORD}
",
            server.port(),
            path(&format!("trust.{form}")),
            path(&format!("own.{form}")),
        );
        let file = dir.join("redisson.yaml");
        std::fs::write(&file, &text).unwrap();
        let java = Version::newest().that_is_built().java_peer_of(&file).await;
        let rust = LockClient::from_redisson_yaml(&text).await;
        let rust = rust.unwrap_or_else(|error| panic!("{form}: {error:?}"));
        let lock = rust.reentrant_lock(*form);
        let guard = lock.lock().await.unwrap();
        let name = format!("reentrant:{form}");
        let java = async |verb: &str| java.ask("a", &[verb, &name]).await.unwrap()[0].clone();
        assert_eq!(java("trylock").await, "false", "{form}");
        guard.unlock().await.unwrap();
        assert_eq!(java("trylock").await, "true", "{form}");
        assert!(lock.try_lock().await.unwrap().is_none(), "{form}");
        let wrong = text.replace(PASSWORD, "s3cret-wrong");
        let error = LockClient::from_redisson_yaml(wrong).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(
            told.contains("sslTruststore") || *form == "open",
            "{form}: {told}"
        );
        assert!(!told.contains("s3cret"), "{form}: {told}");
    }
}
