//! Certificates as people have them: each problem is named, and each mode of verification accepts what it says.

use std::path::Path;

use redisson_lock::{
    Error, LockClient, LockClientBuilder,
    TlsVerification::{self, Ca, Full, None as Unchecked},
};
use testbed::{Server, eventually, run_in, tls_only};

use super::SOON;

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
const SIGNED: &str = "-CA ca.crt -CAkey ca.key -CAcreateserial";

fn openssl(dir: &Path, arguments: &str) {
    run_in(dir, &format!("openssl {arguments}"));
}

/// The authority of the tests, one of the same name with another key, and a request for a certificate.
async fn authorities() -> Server {
    let files = Server::start().await;
    let dir = files.dir();
    std::fs::write(dir.join("local"), "subjectAltName=DNS:localhost\n").unwrap();
    std::fs::write(dir.join("other"), "subjectAltName=DNS:other.example\n").unwrap();
    let own = "basicConstraints=CA:TRUE\nsubjectAltName=DNS:localhost\n";
    std::fs::write(dir.join("own"), own).unwrap();
    std::fs::write(dir.join("unnamed"), "keyUsage=digitalSignature\n").unwrap();
    let client = "subjectAltName=DNS:localhost\nextendedKeyUsage=clientAuth\n";
    std::fs::write(dir.join("of_client"), client).unwrap();
    let ca = "[ca]\ndefault_ca=it\n[it]\nnew_certs_dir=.\ndatabase=index\nserial=number\ndefault_md=sha256\n\
              policy=any\nunique_subject=no\n[any]\ncommonName=supplied\n";
    std::fs::write(dir.join("ca.conf"), ca).unwrap();
    std::fs::write(dir.join("index"), "").unwrap();
    std::fs::write(dir.join("number"), "77\n").unwrap();
    for name in ["ca", "renewed"] {
        openssl(
            dir,
            &format!(
                "req -x509 {KEY} -keyout {name}.key -out {name}.crt -subj /CN=authority -days 2"
            ),
        );
    }
    openssl(
        dir,
        &format!("req {KEY} -keyout server.key -out server.csr -subj /CN=localhost"),
    );
    files
}

/// A server that speaks TLS only, with the certificate `name`.
async fn server(files: &Server, name: &str, clients: &'static str) -> Server {
    let options = tls_only(files.dir(), clients, ["ca.crt", name, "server.key"]);
    Server::start_with(&options).await
}

fn builder(server: &Server, files: &Server, ca: &str) -> LockClientBuilder {
    LockClient::builder()
        .url(format!("rediss://localhost:{}", server.port()))
        .ca_file(files.dir().join(ca))
}

async fn locks(client: &LockClient) {
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

struct Row {
    what: &'static str,
    /// How `openssl` makes the server's certificate.
    made_by: String,
    trusted: &'static str,
    /// The modes that accept it.
    accepted_by: &'static [TlsVerification],
    /// What the error of the remaining modes says, and whether it is one of the configuration.
    told: &'static [&'static str],
    is_config: bool,
}

fn rows() -> Vec<Row> {
    let signed = |more: &str| format!("x509 -req -in server.csr {SIGNED} {more} -out");
    let dated = |dates: &str| {
        format!(
            "ca -batch -notext -config ca.conf -cert ca.crt -keyfile ca.key -in server.csr -extfile local {dates} -out"
        )
    };
    let row = |what, made_by, accepted_by, told, is_config| Row {
        what,
        made_by,
        trusted: "ca.crt",
        accepted_by,
        told,
        is_config,
    };
    let own = "req -x509 -key server.key -subj /CN=localhost";
    let plain =
        "x509 -req -in server.csr -signkey server.key -days 2 -extfile local -out".to_owned();
    vec![
        row(
            "good",
            signed("-days 2 -extfile local"),
            &[Full, Ca, Unchecked],
            &[],
            true,
        ),
        row(
            "expired",
            signed("-days -1 -extfile local"),
            &[Unchecked],
            &["has expired", "renew it at the server"],
            false,
        ),
        row(
            "not valid yet",
            dated("-startdate 20980101000000Z -enddate 20990101000000Z"),
            &[Unchecked],
            &["not valid yet", "clock"],
            false,
        ),
        row(
            "of another name",
            signed("-days 2 -extfile other"),
            &[Ca, Unchecked],
            &["\"localhost\"", "`server_name`"],
            true,
        ),
        row(
            "without a name",
            signed("-days 2 -extfile unnamed"),
            &[Ca, Unchecked],
            &["no subjectAltName", "tls_verification"],
            true,
        ),
        row(
            "of version 1",
            signed("-days 2"),
            &[Unchecked],
            &["version 1", "issue one"],
            true,
        ),
        row(
            "for clients",
            signed("-days 2 -extfile of_client"),
            &[Unchecked],
            &["serverAuth"],
            true,
        ),
        Row {
            trusted: "renewed.crt",
            ..row(
                "of an authority's other key",
                signed("-days 2 -extfile local"),
                &[Unchecked],
                &["another key", "`ca_file`"],
                true,
            )
        },
        row(
            "of a stranger",
            plain.clone(),
            &[Unchecked],
            &["not signed by a trusted authority", "`ca_file`"],
            true,
        ),
        row(
            "of a strange authority itself",
            format!("{own} -days 2 -addext subjectAltName=DNS:localhost -out"),
            &[Unchecked],
            &["an authority's own", "`ca_file`"],
            true,
        ),
        Row {
            trusted: "server.crt",
            ..row(
                "self-signed, for a server",
                plain,
                &[Full, Ca, Unchecked],
                &[],
                true,
            )
        },
        Row {
            trusted: "server.crt",
            ..row(
                "self-signed",
                format!("{own} -days 2 -addext subjectAltName=DNS:localhost -out"),
                &[Full, Ca, Unchecked],
                &[],
                true,
            )
        },
        Row {
            trusted: "server.crt",
            ..row(
                "self-signed, without a name",
                format!("{own} -days 2 -out"),
                &[Ca, Unchecked],
                &["no subjectAltName"],
                true,
            )
        },
        Row {
            trusted: "server.crt",
            ..row(
                "self-signed and expired",
                dated("-selfsign -startdate 20200101000000Z -enddate 20200201000000Z")
                    .replace("-cert ca.crt -keyfile ca.key", "-keyfile server.key")
                    .replace("-extfile local", "-extfile own"),
                &[Unchecked],
                &["has expired"],
                false,
            )
        },
    ]
}

/// A self-signed certificate (`openssl req -x509`) did not connect, an expired one was no more than "no TLS connection".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_certificate_is_accepted_or_its_problem_is_named() {
    let files = authorities().await;
    for row in rows() {
        let what = row.what;
        openssl(files.dir(), &format!("{} server.crt", row.made_by));
        let server = server(&files, "server.crt", "no").await;
        for mode in [Full, Ca, Unchecked] {
            let builder = builder(&server, &files, row.trusted).tls_verification(mode);
            let built = tokio::time::timeout(SOON, builder.build()).await;
            match built.expect("the call ends in time") {
                Ok(client) => {
                    assert!(
                        row.accepted_by.contains(&mode),
                        "{what}: accepted by {mode:?}"
                    );
                    locks(&client).await;
                }
                Err(error) => {
                    let text = crate::in_full(&error);
                    assert!(!row.accepted_by.contains(&mode), "{what}, {mode:?}: {text}");
                    let is_config = matches!(error, Error::Config { .. });
                    assert_eq!(is_config, row.is_config, "{what}, {mode:?}: {error:?}");
                    let is_told = row.told.iter().all(|part| text.contains(part));
                    assert!(is_told, "{what}, {mode:?}: {text}");
                }
            }
        }
    }
}

/// The server judges a client's certificate after the handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_that_the_server_refuses_is_named() {
    let files = authorities().await;
    let dir = files.dir();
    openssl(
        dir,
        &format!("x509 -req -in server.csr {SIGNED} -days 2 -extfile local -out server.crt"),
    );
    openssl(
        dir,
        &format!("x509 -req -in server.csr {SIGNED} -days -1 -extfile local -out old.crt"),
    );
    openssl(
        dir,
        "req -x509 -key server.key -subj /CN=stranger -days 2 -out stranger.crt",
    );
    let server = server(&files, "server.crt", "yes").await;
    for (certificate, is_config, told) in [
        (None, true, "requires a client certificate"),
        (
            Some("old.crt"),
            false,
            "the client's certificate has expired",
        ),
        (
            Some("stranger.crt"),
            true,
            "rejects the client's certificate",
        ),
    ] {
        // The server's alert may be lost when it closes the connection.
        eventually("the error names the certificate", SOON, async || {
            let mut builder = builder(&server, &files, "ca.crt");
            if let Some(certificate) = certificate {
                builder = builder.client_certificate(dir.join(certificate), dir.join("server.key"));
            }
            let error = builder.build().await.expect_err("the server refuses it");
            let is_told = crate::in_full(&error).contains(told);
            assert!(
                !is_told || matches!(error, Error::Config { .. }) == is_config,
                "{error:?}"
            );
            is_told
        })
        .await;
    }
}

/// The client kept what it had read when it was built, and never connected again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_replaced_are_used_at_the_next_connection() {
    let files = authorities().await;
    let dir = files.dir();
    let sign = |ca: &str| {
        let authority = format!("-CA {ca}.crt -CAkey {ca}.key -CAcreateserial");
        openssl(
            dir,
            &format!("x509 -req -in server.csr {authority} -days 2 -extfile local -out server.crt"),
        );
    };
    sign("ca");
    let server = server(&files, "server.crt", "no").await;
    std::fs::copy(dir.join("ca.crt"), dir.join("trusted.crt")).unwrap();
    let client = builder(&server, &files, "trusted.crt");
    let client = client
        .client_certificate(dir.join("server.crt"), dir.join("server.key"))
        .build()
        .await
        .unwrap();
    let guard = client.reentrant_lock("held").lock().await.unwrap();
    let cut = async |server: &Server| {
        let _: u32 = server
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        eventually("the client locks again", SOON, async || {
            let other = client.reentrant_lock("other").try_lock().await;
            matches!(other, Ok(Some(_)))
        })
        .await;
    };
    // Half a file, and none: the last good ones are kept.
    let whole = std::fs::read(dir.join("trusted.crt")).unwrap();
    std::fs::write(dir.join("trusted.crt"), &whole[..whole.len() / 2]).unwrap();
    cut(&server).await;
    std::fs::write(dir.join("trusted.crt"), "").unwrap();
    cut(&server).await;
    // Another authority, and another certificate of the server.
    sign("renewed");
    for name in ["tls-ca-cert-file", "tls-cert-file"] {
        let file = if name == "tls-cert-file" {
            "server.crt"
        } else {
            "renewed.crt"
        };
        let path = dir.join(file).display().to_string();
        let _: String = server.command(&["CONFIG", "SET", name, &path]).await;
    }
    std::fs::copy(dir.join("renewed.crt"), dir.join("trusted.crt")).unwrap();
    cut(&server).await;
    assert!(!guard.is_lost());
    guard.unlock().await.unwrap();
}
