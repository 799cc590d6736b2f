//! A registry that misbehaves as it is told, over plain HTTP on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::image::{Image, digest};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Each connection ends after so many bytes of a blob; ranges work.
    Cut(usize),
    /// The first connection ends in the middle; ranges are ignored.
    CutOnceWithoutRange,
    /// Blobs have one wrong byte.
    WrongBytes,
    /// Of each layer the first 99 bytes come, all of them wrong, and then nothing any more.
    Poison,
    /// Blobs are shorter, and say so.
    Short,
    /// Blobs are longer than the manifest says.
    Long,
    /// The first requests of each path are answered so.
    Busy(u16, usize),
    /// Blobs are elsewhere, where no authorization header may come.
    Redirect(u16),
    /// Tokens are good for so many requests.
    Tokens(usize),
    /// The first requests of each path are answered with a date.
    BusyUntil(usize),
    /// Any token will do, from the server at that port of `localhost`.
    TokensOf(u16),
    /// Tokens are given only for this identity token.
    Identity(&'static str),
    /// As with [`Fault::Identity`]; the token server sends who asks to that port of the same host, 0 for its own.
    IdentityMoved(&'static str, u16),
    /// A name and a password.
    Basic,
    /// No Content-Length.
    Chunked,
    /// A pause before each piece.
    Slow(Duration),
    /// What is asked for below such a path gets no answer.
    Silent(&'static str),
    /// The bodies of such paths come at ten bytes a second.
    Trickle(&'static str),
    /// The bodies of such paths lack their last byte, and have trailers without end behind them.
    Trailers(&'static str),
    /// Everything is denied.
    Denied,
}

impl Fault {
    /// How the body of an answer is sent: the pause before each piece, and its size.
    fn pieces(&self, path: &str) -> (Duration, usize) {
        match self {
            Fault::Slow(pause) if path.contains("/blobs/") => (*pause, 64 << 10),
            Fault::Trickle(part) if path.contains(part) => (Duration::from_millis(100), 1),
            _ => (Duration::ZERO, 64 << 10),
        }
    }
}

/// An answer that ends when the client has gone (RFC 9112, 7.1.2).
pub fn trailers_without_end(out: &mut TcpStream, status: &str, body: &[u8]) -> std::io::Result<bool> {
    write!(out, "HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len())?;
    out.write_all(body)?;
    out.write_all(b"\r\n0\r\n")?;
    let many = "x: y\r\n".repeat(10_000);
    loop {
        out.write_all(many.as_bytes())?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What was asked for.
#[derive(Default)]
pub struct Log {
    pub requests: Vec<String>,
    pub authorized: usize,
    pub blob_bytes: usize,
    tokens: HashMap<String, usize>,
}

#[derive(Clone)]
pub struct Server {
    pub port: u16,
    pub log: Arc<Mutex<Log>>,
}

impl Server {
    pub fn start(image: Image, fault: Fault) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { port: listener.local_addr().unwrap().port(), log: Arc::default() };
        let (image, shared) = (Arc::new(image), server.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (image, fault, server) = (image.clone(), fault.clone(), shared.clone());
                std::thread::spawn(move || {
                    let _ = server.serve(stream, &image, &fault);
                });
            }
        });
        server
    }

    pub fn name(&self) -> String {
        format!("127.0.0.1:{}/team/x:t", self.port)
    }

    pub fn count(&self, part: &str) -> usize {
        self.log.lock().unwrap().requests.iter().filter(|r| r.contains(part)).count()
    }

    fn serve(&self, stream: TcpStream, image: &Image, fault: &Fault) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split_whitespace();
            let (method, path) =
                (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
            let mut headers = HashMap::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let Some((key, value)) = line.trim().split_once(':') else { break };
                headers.insert(key.to_ascii_lowercase(), value.trim().to_owned());
            }
            let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let body = String::from_utf8_lossy(&body).into_owned();
            if method == "CONNECT" {
                // A proxy that finds every host here.
                self.log.lock().unwrap().requests.push(format!("{method} {path}"));
                write!(out, "HTTP/1.1 200 Connected\r\n\r\n")?;
                continue;
            }
            let seen = {
                let mut log = self.log.lock().unwrap();
                log.requests.push(format!("{method} {path}"));
                log.authorized += usize::from(headers.contains_key("authorization"));
                log.requests.iter().filter(|r| **r == format!("{method} {path}")).count()
            };
            if !self.answer(&mut out, image, fault, &method, &path, &headers, &body, seen)? {
                out.shutdown(Shutdown::Both)?;
                return Ok(());
            }
        }
    }

    /// False: the connection ends.
    #[allow(clippy::too_many_arguments)]
    fn answer(
        &self,
        out: &mut TcpStream,
        image: &Image,
        fault: &Fault,
        method: &str,
        path: &str,
        headers: &HashMap<String, String>,
        body: &str,
        seen: usize,
    ) -> std::io::Result<bool> {
        let authorization = headers.get("authorization").map(String::as_str).unwrap_or("");
        let head = |status: &str, extra: &str, length: usize| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{extra}\r\n")
        };
        if path.starts_with("/token") {
            if let Fault::IdentityMoved(_, port) = fault
                && !path.contains("moved")
            {
                let port = if *port == 0 { self.port } else { *port };
                let extra = format!("location: http://127.0.0.1:{port}/token/moved\r\n");
                write!(out, "{}", head("307 Temporary Redirect", &extra, 0))?;
                return Ok(true);
            }
            if let Fault::Identity(secret) | Fault::IdentityMoved(secret, _) = fault
                && !(method == "POST"
                    && body.contains("grant_type=refresh_token")
                    && body.contains(&format!("refresh_token={secret}&"))
                        | body.ends_with(&format!("refresh_token={secret}")))
            {
                write!(out, "{}", head("401 Unauthorized", "", 0))?;
                return Ok(true);
            }
            let mut log = self.log.lock().unwrap();
            let token = format!("t{}", log.tokens.len());
            log.tokens.insert(token.clone(), 0);
            let body = format!(r#"{{"token":"{token}","expires_in":300}}"#);
            write!(out, "{}{body}", head("200 OK", "", body.len()))?;
            return Ok(true);
        }
        match fault {
            Fault::Silent(part) if path.contains(part) => {
                let _ = out.read(&mut [0]);
                return Ok(false);
            }
            Fault::Busy(status, times) if seen <= *times => {
                write!(out, "{}", head(&format!("{status} Busy"), "retry-after: 0\r\n", 0))?;
                return Ok(true);
            }
            Fault::BusyUntil(times) if seen <= *times => {
                let at = std::process::Command::new("date")
                    .args(["-u", "-d", "+2 seconds", "+%a, %d %b %Y %H:%M:%S GMT"])
                    .env("LC_ALL", "C")
                    .output()?;
                let extra = format!("retry-after: {}\r\n", String::from_utf8_lossy(&at.stdout).trim());
                write!(out, "{}", head("429 Busy", &extra, 0))?;
                return Ok(true);
            }
            Fault::Denied => {
                let body = r#"{"errors":[{"code":"DENIED","message":"requested access is denied"}]}"#;
                write!(out, "{}{body}", head("403 Forbidden", "", body.len()))?;
                return Ok(true);
            }
            Fault::Basic if authorization != "Basic bWU6c2VjcmV0" => {
                write!(out, "{}", head("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", 0))?;
                return Ok(true);
            }
            Fault::TokensOf(port) if !authorization.starts_with("Bearer ") => {
                let extra = format!("www-authenticate: Bearer realm=\"http://localhost:{port}/token\"\r\n");
                write!(out, "{}", head("401 Unauthorized", &extra, 0))?;
                return Ok(true);
            }
            Fault::Tokens(_) | Fault::Identity(_) | Fault::IdentityMoved(..) => {
                let most = if let Fault::Tokens(most) = fault { *most } else { usize::MAX };
                let mut log = self.log.lock().unwrap();
                let uses = authorization.strip_prefix("Bearer ").and_then(|t| log.tokens.get_mut(t));
                let good = uses.is_some_and(|uses| {
                    *uses += 1;
                    *uses <= most
                });
                if !good {
                    let extra = format!(
                        "www-authenticate: Bearer realm=\"http://127.0.0.1:{}/token\",service=\"s\"\r\n",
                        self.port
                    );
                    write!(out, "{}", head("401 Unauthorized", &extra, 0))?;
                    return Ok(true);
                }
            }
            _ => {}
        }
        if let Fault::Trailers(part) = fault
            && path.contains(part)
        {
            let body = image.blobs.get(path.rsplit('/').next().unwrap_or("")).unwrap_or(&image.manifest);
            return trailers_without_end(out, "200 OK", &body[..body.len() - 1]);
        }
        if path == "/v2/" {
            write!(out, "{}", head("200 OK", "", 0))?;
            return Ok(true);
        }
        if path.contains("/manifests/") {
            let name = path.rsplit('/').next().unwrap_or("");
            let manifest = image.blobs.get(name).unwrap_or(&image.manifest);
            let kind: serde_json::Value = serde_json::from_slice(manifest).unwrap();
            let kind = kind["mediaType"].as_str().unwrap();
            let extra = format!("content-type: {kind}\r\ndocker-content-digest: {}\r\n", digest(manifest));
            write!(out, "{}", head("200 OK", &extra, manifest.len()))?;
            let (pause, size) = fault.pieces(path);
            for piece in manifest.chunks(size).filter(|_| method == "GET") {
                std::thread::sleep(pause);
                out.write_all(piece)?;
            }
            return Ok(true);
        }
        let name = path.rsplit('/').next().unwrap_or("");
        let Some(blob) = image.blobs.get(name) else {
            write!(out, "{}", head("404 Not Found", "", 0))?;
            return Ok(true);
        };
        if let Fault::Redirect(port) = fault {
            let extra = format!("location: http://127.0.0.1:{port}{path}\r\n");
            write!(out, "{}", head("307 Temporary Redirect", &extra, 0))?;
            return Ok(true);
        }
        let mut body = blob.clone();
        let layer = image.layers.iter().any(|l| l == name);
        let start =
            headers.get("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let start: usize = start.filter(|_| *fault != Fault::CutOnceWithoutRange).unwrap_or(0);
        let mut cut = None;
        match fault {
            Fault::Cut(n) if layer => cut = Some(*n),
            Fault::CutOnceWithoutRange if layer && seen == 1 => cut = Some(body.len() / 2),
            Fault::WrongBytes if layer => {
                let at = body.len() / 2;
                body[at] ^= 1;
            }
            Fault::Poison if layer => {
                cut = Some(if seen == 1 { 99 } else { 0 });
                body.iter_mut().take(99).for_each(|byte| *byte ^= 0xff);
            }
            Fault::Short if layer => body.truncate(body.len() / 2),
            Fault::Long if layer => body.extend([0; 4096]),
            _ => {}
        }
        let total = body.len();
        let body = &body[start.min(total)..];
        let status = if start > 0 { "206 Partial Content" } else { "200 OK" };
        let range = match start {
            0 => String::new(),
            _ => format!("content-range: bytes {start}-{}/{total}\r\n", total - 1),
        };
        if *fault == Fault::Chunked {
            write!(out, "HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n{range}\r\n")?;
            for piece in body.chunks(10_000) {
                write!(out, "{:x}\r\n", piece.len())?;
                out.write_all(piece)?;
                out.write_all(b"\r\n")?;
            }
            out.write_all(b"0\r\n\r\n")?;
            return Ok(true);
        }
        write!(out, "{}", head(status, &range, body.len()))?;
        let sent = cut.unwrap_or(body.len()).min(body.len());
        let (pause, size) = fault.pieces(path);
        for piece in body[..sent].chunks(size) {
            std::thread::sleep(pause);
            out.write_all(piece)?;
            if layer {
                self.log.lock().unwrap().blob_bytes += piece.len();
            }
        }
        out.flush()?;
        Ok(sent == body.len())
    }
}
