//! Servers that speak TLS, and the tools that make their files.

use std::{path::Path, process::Command};

/// Runs `openssl`, `keytool` or the like in `dir`. No word of the `line` contains a space.
pub fn run_in(dir: &Path, line: &str) {
    let mut words = line.split(' ');
    let tool = words.next().expect("the line names a tool");
    let done = Command::new(tool).args(words).current_dir(dir).output();
    let done = done.unwrap_or_else(|error| panic!("install {tool} ({error})"));
    let told = [&*done.stdout, &done.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(done.status.success(), "{line}: {told}");
}

/// Options of a server that speaks TLS only, by the files `[ca, certificate, key]` in `dir`. `clients` says whether clients need
/// certificates: `yes`, `no` or `optional`.
pub fn tls_only(dir: &Path, clients: &'static str, files: [&str; 3]) -> Vec<&'static str> {
    // The options of servers are static elsewhere too.
    let [ca, certificate, key] = files.map(|name| &*dir.join(name).display().to_string().leak());
    [
        ["--port", "0"],
        ["--tls-port", "{port}"],
        ["--tls-auth-clients", clients],
        ["--tls-ca-cert-file", ca],
        ["--tls-cert-file", certificate],
        ["--tls-key-file", key],
    ]
    .concat()
}

/// Creates `ca.crt`, `ca.der`, and a certificate for this machine signed by it.
pub fn make_certificates(dir: &Path) {
    std::fs::write(
        dir.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
    )
    .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"),
        "x509 -in ca.crt -outform der -out ca.der".to_owned(),
        format!("req {key} -keyout server.key -out server.csr -subj /CN=server"),
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt"
            .to_owned(),
    ] {
        run_in(dir, &format!("openssl {arguments}"));
    }
}
