//! Key stores by `openssl`: each file is read, or its problem is named. `tests/interop/stores.rs` has those by `keytool`.

use std::{collections::HashSet, path::Path};

use redisson_lock::{Error, LockClient, LockClientBuilder};
use testbed::{Server, eventually, run_in, tls_only};

use super::SOON;
use crate::hostile::log_lines::LogLines;

const PASSWORD: &str = "s3cret-pässword";

/// The word `PASSWORD` stands for the password.
fn run(dir: &Path, arguments: &str) {
    run_in(
        dir,
        &format!("openssl {}", arguments.replace("PASSWORD", PASSWORD)),
    );
}

/// `ca`, and keys with certificates that it has signed by another authority: `client` and, of other kinds, `rsa`, `ed`, `p521`.
async fn files() -> Server {
    let files = Server::start().await;
    let dir = files.dir();
    let signed = "-CAcreateserial -days 2 -extfile names";
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    std::fs::write(dir.join("authority"), "basicConstraints=CA:TRUE\n").unwrap();
    run(
        dir,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -subj /CN=authority -days 2",
    );
    run(
        dir,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout mid.key -out mid.csr -subj /CN=middle",
    );
    run(
        dir,
        "x509 -req -in mid.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile authority -out mid.crt",
    );
    for (name, kind) in [
        ("client", "ec -pkeyopt ec_paramgen_curve:P-256"),
        ("rsa", "rsa:2048"),
        ("ed", "ed25519"),
        ("p384", "ec -pkeyopt ec_paramgen_curve:P-384"),
        ("p521", "ec -pkeyopt ec_paramgen_curve:P-521"),
    ] {
        run(
            dir,
            &format!(
                "req -newkey {kind} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
            ),
        );
        run(
            dir,
            &format!(
                "x509 -req -in {name}.csr -CA mid.crt -CAkey mid.key {signed} -out {name}.crt"
            ),
        );
    }
    run(
        dir,
        &format!("x509 -req -in rsa.csr -CA ca.crt -CAkey ca.key {signed} -out server.crt"),
    );
    files
}

/// A server that speaks TLS only and demands client certificates.
async fn server(files: &Server) -> Server {
    let options = tls_only(files.dir(), "yes", ["ca.crt", "server.crt", "rsa.key"]);
    Server::start_with(&options).await
}

fn builder(server: &Server) -> LockClientBuilder {
    LockClient::builder().url(format!("rediss://localhost:{}", server.port()))
}

async fn locks(builder: LockClientBuilder, what: &str) {
    let client = builder.build().await;
    let client = client.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

fn refused(what: &str, error: &Error, told: &str) {
    let text = format!("{} {error:?}", crate::in_full(error));
    assert!(matches!(error, Error::Config { .. }), "{what}: {text}");
    assert!(text.contains(told), "{what}: {text}");
    assert!(!text.contains("s3cret"), "{what}: {text}");
}

/// How a key store is made, its password, and a part of the error, if it is refused.
const KEY_STORES: &[(&str, &str, Option<&str>)] = &[
    (
        "-inkey client.key -in client.crt -certfile mid.crt -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-legacy -inkey client.key -in client.crt -certfile mid.crt -passout pass:s3cret",
        "s3cret",
        None,
    ),
    (
        "-inkey rsa.key -in rsa.crt -certfile mid.crt -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-inkey ed.key -in ed.crt -certfile mid.crt -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-inkey p384.key -in p384.crt -certfile mid.crt -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-inkey p521.key -in p521.crt -certfile mid.crt -passout pass:PASSWORD",
        PASSWORD,
        Some("P-384 or Ed25519"),
    ),
    (
        "-inkey client.key -in client.crt -certfile mid.crt -passout pass:",
        "",
        None,
    ),
    (
        "-inkey client.key -in client.crt -certfile mid.crt -nomac -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-inkey client.key -in client.crt -certfile mid.crt -keypbe NONE -certpbe NONE -nomac -passout pass:",
        "",
        None,
    ),
    (
        "-inkey client.key -in client.crt -certfile mid.crt -macalg sha512 -passout pass:PASSWORD",
        PASSWORD,
        None,
    ),
    (
        "-inkey client.key -in client.crt -passout pass:PASSWORD",
        "wrong",
        Some("the password is wrong"),
    ),
    (
        "-inkey client.key -in client.crt -passout pass:PASSWORD",
        "",
        Some("needs a password"),
    ),
    (
        "-inkey client.key -in client.crt -nomac -passout pass:PASSWORD",
        "wrong",
        Some("cannot be decrypted by the password"),
    ),
    (
        "-nokeys -in client.crt -passout pass:PASSWORD",
        PASSWORD,
        Some("contains no private key"),
    ),
    (
        "-iter 1000001 -nomac -inkey client.key -in client.crt -passout pass:PASSWORD",
        PASSWORD,
        Some("1000000 iterations"),
    ),
    (
        "-keypbe PBE-SHA1-RC4-128 -certpbe PBE-SHA1-3DES -legacy -inkey client.key -in client.crt -passout pass:PASSWORD",
        PASSWORD,
        Some("is not supported"),
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_stores_by_openssl_are_read_or_their_problem_is_named() {
    let files = files().await;
    let (dir, server) = (files.dir(), server(&files).await);
    for (made_by, password, told) in KEY_STORES {
        run(
            dir,
            &format!(
                "pkcs12 -export -out store.p12 {}",
                made_by.replace("pass:PASSWORD", &format!("pass:{PASSWORD}"))
            ),
        );
        let builder = builder(&server)
            .ca_file(dir.join("ca.crt"))
            .key_store(dir.join("store.p12"), *password);
        assert!(!format!("{builder:?}").contains("s3cret"), "{builder:?}");
        match told {
            None => locks(builder, made_by).await,
            Some(told) => refused(made_by, &builder.build().await.unwrap_err(), told),
        }
    }
}

/// Without a checksum, one wrong password in 256 seems to fit a part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password_of_a_store_without_a_checksum_is_named_whatever_it_decrypts_to() {
    let files = files().await;
    let (dir, server) = (files.dir(), server(&files).await);
    run(
        dir,
        "pkcs12 -export -iter 1 -nomac -inkey client.key -in client.crt -passout pass:right -out store.p12",
    );
    let mut reasons = HashSet::new();
    for number in 0..2000 {
        let wrong = format!("wrong {number}");
        let builder = builder(&server)
            .ca_file(dir.join("ca.crt"))
            .key_store(dir.join("store.p12"), &wrong);
        let error = builder.build().await.unwrap_err();
        refused(&wrong, &error, "cannot be decrypted by the password");
        reasons.insert(crate::in_full(&error));
    }
    assert!(reasons.len() > 1, "no password seems to fit: {reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trust_stores_by_openssl_and_files_that_are_none() {
    let files = files().await;
    let (dir, server) = (files.dir(), server(&files).await);
    let identified =
        || builder(&server).client_certificate(dir.join("rsa-chain.crt"), dir.join("rsa.key"));
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
    write(
        "rsa-chain.crt",
        &[read("rsa.crt"), read("mid.crt")].concat(),
    );
    write("several.crt", &[read("mid.crt"), read("ca.crt")].concat());
    run(
        dir,
        &format!(
            "pkcs12 -export -nokeys -in several.crt -out several.p12 -passout pass:{PASSWORD}"
        ),
    );
    run(
        dir,
        "pkcs12 -export -nokeys -certpbe NONE -in several.crt -out open.p12 -passout pass:PASSWORD",
    );
    run(dir, "x509 -in ca.crt -outform der -out ca.der");
    let whole = read("several.p12");
    for part in [1, 3, 8, whole.len() / 2, whole.len() - 1] {
        write(&format!("cut-{part}.p12"), &whole[..part]);
    }
    let damaged: Vec<u8> = [
        &whole[..whole.len() / 2],
        b"\xff\xff",
        &whole[whole.len() / 2 + 2..],
    ]
    .concat();
    write("damaged.p12", &damaged);
    write("empty.p12", b"");
    write("text.p12", b"not a store\n");
    write("other.jceks", b"\xce\xce\xce\xce\0\0\0\x02");
    write("cut.jks", b"\xfe\xed\xfe\xed\0\0\0\x02\xff\xff\xff\xff");
    write("large.p12", &vec![0x30; (8 << 20) + 1]);
    // A file in PEM is what it says.
    for (name, password) in [
        ("several.p12", PASSWORD),
        ("open.p12", ""),
        ("ca.crt", PASSWORD),
    ] {
        locks(identified().trust_store(dir.join(name), password), name).await;
    }
    let half = format!("cut-{}.p12", whole.len() / 2);
    let nearly = format!("cut-{}.p12", whole.len() - 1);
    for (name, password, told) in [
        ("several.p12", "wrong", "the password is wrong"),
        ("several.p12", "", "needs a password"),
        ("cut-1.p12", PASSWORD, "no key store"),
        ("cut-3.p12", PASSWORD, "damaged or incomplete"),
        ("cut-8.p12", PASSWORD, "damaged or incomplete"),
        (&half, PASSWORD, "damaged or incomplete"),
        (&nearly, PASSWORD, "damaged or incomplete"),
        ("damaged.p12", PASSWORD, "damaged"),
        ("empty.p12", PASSWORD, "the file is empty"),
        ("text.p12", PASSWORD, "no key store of the forms"),
        ("other.jceks", PASSWORD, "-srcstoretype JCEKS"),
        ("cut.jks", PASSWORD, "damaged or incomplete"),
        ("ca.der", PASSWORD, "openssl x509 -inform der"),
        ("large.p12", PASSWORD, "over 8 MiB"),
        ("missing.p12", PASSWORD, "No such file"),
    ] {
        let built = identified().trust_store(dir.join(name), password).build();
        let error = built.await.unwrap_err();
        refused(name, &error, told);
        refused(name, &error, "trust_store");
    }
    let named_as_pem = identified().ca_file(dir.join("several.p12")).build().await;
    refused(
        "PKCS#12 as PEM",
        &named_as_pem.unwrap_err(),
        "name it by `trust_store`",
    );
}

/// A key store that is replaced is used at the next connection, and one that is half written is not.
#[tokio::test]
async fn a_key_store_that_is_replaced_is_used_at_the_next_connection() {
    let files = files().await;
    let (dir, server) = (files.dir(), server(&files).await);
    let store = |name: &str| {
        run(
            dir,
            &format!(
                "pkcs12 -export -inkey {name}.key -in {name}.crt -certfile mid.crt -out {name}.p12 -passout pass:s3cret"
            ),
        );
        std::fs::read(dir.join(format!("{name}.p12"))).unwrap()
    };
    let first = store("client");
    run(
        dir,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout mid.key -out mid.crt -subj /CN=other -days 2",
    );
    run(
        dir,
        "x509 -req -in rsa.csr -CA mid.crt -CAkey mid.key -CAcreateserial -days 2 -extfile names -out rsa.crt",
    );
    let second = store("rsa");
    // At once: a connection that opens meanwhile would find an empty file.
    let replace = |bytes: &[u8]| {
        std::fs::write(dir.join("new.p12"), bytes).unwrap();
        std::fs::rename(dir.join("new.p12"), dir.join("own.p12")).unwrap();
    };
    replace(&first);
    let client = builder(&server)
        .ca_file(dir.join("ca.crt"))
        .key_store(dir.join("own.p12"), "s3cret")
        .build()
        .await
        .unwrap();
    let guard = client.reentrant_lock("held").lock().await.unwrap();
    let cut = async || {
        let _: u32 = server
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        eventually("the client locks again", SOON, async || {
            let other = client.reentrant_lock("other").try_lock().await;
            matches!(other, Ok(Some(_)))
        })
        .await;
    };
    let (lines, _keep) = LogLines::record(tracing::Level::WARN);
    let told = || lines.with("the TLS files cannot be used").len();
    replace(&second[..second.len() / 2]);
    cut().await;
    cut().await;
    assert_eq!(told(), 1, "{:#?}", lines.with(""));
    replace(b"a text");
    cut().await;
    assert_eq!(told(), 2, "a new fault: {:#?}", lines.with(""));
    // From now on the server trusts the authority of the second certificate alone.
    replace(&second);
    let other = dir.join("mid.crt").display().to_string();
    let _: String = server
        .command(&["CONFIG", "SET", "tls-ca-cert-file", &other])
        .await;
    cut().await;
    assert!(!guard.is_lost());
    guard.unlock().await.unwrap();
}
