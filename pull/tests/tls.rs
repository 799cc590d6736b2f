//! Certificates: each way in which TLS fails has a remedy of its own, and a server that is trusted is heard.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Place, have};

/// `openssl s_server` with a certificate that nobody trusts yet; killed at the end.
struct TlsServer {
    process: Child,
    port: u16,
}

impl TlsServer {
    fn start(place: &Place, flags: &[&str]) -> TlsServer {
        // Free when it was asked; s_server has no way to say which port it took.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("openssl")
            .args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}")])
            .args(["-cert", "cert.pem", "-key", "key.pem"])
            .args(flags)
            .current_dir(place.join("."))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = TlsServer { process, port };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "openssl s_server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A certificate for 127.0.0.1 and its key. It is its own authority, as that of a site often is.
fn certificate(place: &Place) -> PathBuf {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=site", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(place.join("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.join("cert.pem")
}

/// What `login` says, which makes one GET request, with `trusted` as the only authority. What TLS refuses does not get
/// better, so nothing is tried again.
fn log_in(place: &Place, port: u16, trusted: Option<&PathBuf>) -> (bool, String) {
    let mut command = place.command();
    if let Some(trusted) = trusted {
        command.env("SSL_CERT_FILE", trusted);
    }
    let host = format!("127.0.0.1:{port}");
    let output = command.args(["login", "-u", "me", "-p", "secret", &host]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("retrying in"), "{said}");
    (output.status.success(), said)
}

#[test]
fn failures_of_tls_have_their_remedies() {
    if !have("openssl") {
        return;
    }
    let place = Place::new("tls");
    let trusted = certificate(&place);
    let server = TlsServer::start(&place, &[]);
    let (good, said) = log_in(&place, server.port, None);
    assert!(!good && said.contains("certs.d/HOST/ca.crt") && said.contains("--insecure"), "{said}");
    let (good, said) = log_in(&place, server.port, Some(&trusted));
    assert!(good, "{said}");
    drop(server);
    let server = TlsServer::start(&place, &["-tls1_3", "-Verify", "1", "-verify_return_error"]);
    let (good, said) = log_in(&place, server.port, Some(&trusted));
    assert!(!good && said.contains("client.key") && !said.contains("ca.crt"), "{said}");
}

#[test]
fn what_is_no_tls_is_named() {
    let place = Place::new("no-tls");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let (good, said) = log_in(&place, port, None);
    // Not every command has the flag.
    let remedy = "set insecure = true for it in registries.conf (rt pull: --plain-http)";
    assert!(!good && said.contains(remedy), "{said}");
}
