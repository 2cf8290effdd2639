//! Servers that speak TLS with certificates of their own authority.

use std::{path::Path, process::Command};

use testbed::Server;

use crate::{code, done_at, text};

/// `ca.crt`, and a certificate with its key for `server` and for `client`, signed by it.
pub fn make_certificates(dir: &Path) {
    let names = "subjectAltName=DNS:redis.internal\n";
    std::fs::write(dir.join("names"), names).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let sign = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names";
    let mut steps = vec![format!(
        "req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"
    )];
    for side in ["server", "client"] {
        steps.push(format!(
            "req {key} -keyout {side}.key -out {side}.csr -subj /CN={side}"
        ));
        steps.push(format!("x509 -req -in {side}.csr {sign} -out {side}.crt"));
    }
    for step in steps {
        let words = step.split(' ');
        let done = Command::new("openssl")
            .args(words)
            .current_dir(dir)
            .output();
        let done = done.expect("there is an `openssl`: apt-get install openssl");
        assert!(done.status.success(), "{step}: {}", text(&done.stderr));
    }
}

#[tokio::test]
async fn a_server_with_an_authority_of_its_own_that_wants_a_certificate() {
    let holds_files = Server::start().await;
    make_certificates(holds_files.dir());
    let file = |name: &str| holds_files.dir().join(name).display().to_string();
    let (ca, certificate, key) = (file("ca.crt"), file("server.crt"), file("server.key"));
    let port = free_port();
    let options = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ];
    let server = Server::start_with(&options).await;
    let url = format!("rediss://127.0.0.1:{port}");
    let (certificate, key) = (file("client.crt"), file("client.key"));
    let trusted = ["--cacert", &ca, "--sni", "redis.internal"];
    let shown = ["--cert", &certificate, "--key", &key];
    let all = [&trusted[..], &shown].concat();
    for words in [
        &["run", "job", "--", "true"][..],
        &["ls"],
        &["show", "job"],
        &["unlock", "job", "--force", "--yes"],
        &["bench", "--time", "20ms"],
    ] {
        let output = done_at(&url, &[&all[..], words].concat()).await;
        assert_eq!(
            code(&output),
            Some(0),
            "{words:?}: {}",
            text(&output.stderr)
        );
    }
    // The server is not set up for locks, and everything that the doctor asks is answered.
    let output = done_at(&url, &[&all[..], &["doctor"]].concat()).await;
    let printed = text(&output.stdout);
    assert!(
        printed.contains("a release woke a waiter of another client"),
        "{printed}"
    );
    for missing in [&trusted[..], &["--cacert", &ca]] {
        let output = done_at(&url, &[missing, &["ls"]].concat()).await;
        // The server's word on its reason may be lost as it hangs up.
        let (code, told) = (code(&output), text(&output.stderr));
        assert!(matches!(code, Some(64 | 69)), "{told}");
        assert!(told.contains("certificate"), "{told}");
        // The remedies are options of the tool.
        assert!(!told.contains('`'), "{told}");
    }
    for unnamed in [
        &["--tls-verification", "ca"][..],
        &["--insecure"],
        &["--tls-verification", "full", "--insecure"],
    ] {
        let words = [&["--cacert", &ca][..], &shown, unnamed, &["ls"]].concat();
        let output = done_at(&url, &words).await;
        assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    }
    let output = done_at(&url, &[&shown[..], &["--insecure", "ls"]].concat()).await;
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    for wrong in [&shown[..], &[&trusted[..], &shown[..2]].concat()] {
        let output = done_at(&url, &[wrong, &["ls"]].concat()).await;
        assert_eq!(code(&output), Some(64), "{}", text(&output.stderr));
    }
    drop(server);
}

/// A port that was free a moment ago.
pub fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}
