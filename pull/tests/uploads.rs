//! A registry that takes uploads and misbehaves as it is told, over plain HTTP on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use super::faults::trailers_without_end;
use super::image::digest;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing. Locations are paths.
    None,
    /// Locations are URLs.
    Absolute,
    /// Connections end after so many bytes of an upload, which are kept.
    Cut(usize),
    /// The first connection ends in the middle, and the session is forgotten.
    Forgotten,
    /// The connection ends when all of it has come, before the answer to the PUT.
    LostAnswer,
    /// The second part of an upload of two is stored with a wrong byte, the first time.
    BadlyJoined(usize),
    /// Tokens, which must allow a push, are good for so many requests.
    Tokens(usize),
    /// A name and a password.
    Basic,
    /// The first two requests of each method are answered with 429.
    Busy,
    /// The first upload is answered with 503 before it has come.
    BusyUpload,
    /// With a name and a password; uploads go to that port of another name of this machine.
    Elsewhere(u16),
    /// With a name and a password; an upload is redirected there.
    Redirected(u16),
    /// Pushes are refused with the words of a quota.
    Quota,
    /// Manifests of this type are refused.
    Unsupported,
    /// It says that it stored another manifest.
    OtherDigest,
    /// It is always busy, and by turns says that some of an upload has come, and forgets the session.
    Forgetful,
    /// The same, and what has come is by turns more and less.
    Backwards,
    /// It is always busy, and says that one byte more of an upload has come.
    OneMore,
    /// Uploads go to this place.
    Location(&'static str),
    /// An upload is redirected to itself.
    Circling,
    /// A refusal has words without end.
    EndlessWords,
    /// The same, a byte in half a second.
    SlowWords,
    /// A refusal has trailers without end.
    Trailers,
    /// Answers have interim answers without end before them.
    Interim,
}

#[derive(Default)]
pub struct State {
    pub requests: Vec<String>,
    /// The ports at which an authorization header came.
    pub authorized: Vec<u16>,
    /// Bytes of uploads that arrived.
    pub received: usize,
    pub blobs: HashMap<String, Vec<u8>>,
    /// Repositories by blob.
    pub repositories: HashMap<String, Vec<String>>,
    pub manifests: HashMap<String, (String, Vec<u8>)>,
    sessions: HashMap<String, Vec<u8>>,
    tokens: HashMap<String, usize>,
    faults: usize,
}

#[derive(Clone)]
pub struct Uploads {
    pub port: u16,
    fault: Fault,
    state: Arc<Mutex<State>>,
}

/// What was asked.
struct Asked {
    method: String,
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
}

/// An answer, or the end of the connection.
type Answer = Option<(u16, Vec<(&'static str, String)>, Vec<u8>)>;

fn answer(status: u16) -> Answer {
    Some((status, Vec::new(), Vec::new()))
}

fn refusal(status: u16, code: &str, message: &str) -> Answer {
    let body = serde_json::json!({ "errors": [{ "code": code, "message": message }] });
    Some((status, Vec::new(), body.to_string().into_bytes()))
}

impl Uploads {
    pub fn start(fault: Fault) -> Uploads {
        Uploads::with_state(fault, Arc::default())
    }

    /// Another server for the same blobs.
    pub fn beside(&self, fault: Fault) -> Uploads {
        Uploads::with_state(fault, self.state.clone())
    }

    fn with_state(fault: Fault, state: Arc<Mutex<State>>) -> Uploads {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Uploads { port: listener.local_addr().unwrap().port(), fault, state };
        let shared = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = shared.clone();
                std::thread::spawn(move || {
                    let _ = server.serve(stream);
                });
            }
        });
        server
    }

    pub fn name(&self, image: &str) -> String {
        format!("127.0.0.1:{}/{image}", self.port)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn count(&self, part: &str) -> usize {
        self.state().requests.iter().filter(|request| request.contains(part)).count()
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split_whitespace().map(str::to_owned);
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let mut headers = HashMap::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let Some((key, value)) = line.trim().split_once(':') else { break };
                headers.insert(key.to_ascii_lowercase(), value.trim().to_owned());
            }
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let query = pairs
                .map(|(key, value)| (key.to_owned(), value.replace("%3A", ":").replace("%2F", "/")))
                .collect();
            let asked = Asked { method: method.clone(), path: path.to_owned(), query, headers };
            {
                let mut state = self.state();
                state.requests.push(format!("{method} {target}"));
                if asked.headers.contains_key("authorization") {
                    state.authorized.push(self.port);
                }
            }
            if self.harms(&asked, &mut out)? {
                return out.shutdown(Shutdown::Both);
            }
            let result = match self.refuses(&asked) {
                Some(refused) => {
                    // The body comes nevertheless, from a client that did not wait for the answer.
                    if !asked.headers.contains_key("expect") {
                        self.receive(&mut reader, &asked, usize::MAX)?;
                    }
                    Some(refused)
                }
                None => self.act(&mut reader, &mut out, &asked)?,
            };
            let Some((status, extra, body)) = result else { return out.shutdown(Shutdown::Both) };
            let mut head = format!("HTTP/1.1 {status} X\r\n");
            // A body that was announced and is not wanted would be read as the next request.
            let closes = status >= 300 && asked.headers.contains_key("expect");
            if closes {
                head.push_str("connection: close\r\n");
            }
            if status != 204 {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            extra.iter().for_each(|(key, value)| head.push_str(&format!("{key}: {value}\r\n")));
            write!(out, "{head}\r\n")?;
            if method != "HEAD" {
                out.write_all(&body)?;
            }
            if closes {
                return out.shutdown(Shutdown::Both);
            }
        }
    }

    /// The body, or as much of it as the connection lives for.
    fn receive(&self, reader: &mut impl Read, asked: &Asked, most: usize) -> std::io::Result<Vec<u8>> {
        let length: usize = asked.headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length.min(most)];
        reader.read_exact(&mut body)?;
        self.state().received += body.len();
        Ok(body)
    }

    /// Answers that no registry gives. They end when the client has gone; true where one was given.
    fn harms(&self, asked: &Asked, out: &mut TcpStream) -> std::io::Result<bool> {
        let head = "HTTP/1.1 403 X\r\ntransfer-encoding: chunked\r\n\r\n";
        match self.fault {
            Fault::EndlessWords | Fault::SlowWords if asked.method == "POST" => {
                out.write_all(head.as_bytes())?
            }
            Fault::Trailers if asked.method == "POST" => {
                return trailers_without_end(out, "403 X", b"x");
            }
            Fault::Interim if asked.method == "POST" => {}
            _ => return Ok(false),
        }
        let many = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
        loop {
            match self.fault {
                Fault::EndlessWords => out.write_all(&many)?,
                Fault::SlowWords => out.write_all(b"1\r\nx\r\n")?,
                _ => out.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")?,
            }
            if self.fault != Fault::EndlessWords {
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        }
    }

    /// What is answered before anything is read.
    fn refuses(&self, asked: &Asked) -> Answer {
        let authorization = asked.headers.get("authorization").cloned().unwrap_or_default();
        if asked.path == "/token" {
            let mut state = self.state();
            let token = format!("t{}", state.tokens.len());
            // What the token allows is seen in the request itself.
            let pushes = state.requests.last().is_some_and(|request| request.contains("pull%2Cpush"));
            state.tokens.insert(token.clone(), if pushes { 0 } else { usize::MAX / 2 });
            let body = format!(r#"{{"token":"{token}","expires_in":300}}"#);
            return Some((200, Vec::new(), body.into_bytes()));
        }
        match self.fault {
            Fault::Tokens(most) => {
                let mut state = self.state();
                let uses =
                    authorization.strip_prefix("Bearer ").and_then(|token| state.tokens.get_mut(token));
                let good = uses.is_some_and(|uses| {
                    *uses += 1;
                    *uses <= most
                });
                let scope = asked.path.trim_start_matches("/v2/").split("/blobs").next().unwrap_or_default();
                let scope = scope.split("/manifests").next().unwrap_or_default();
                // As registries do, it names only what this request needs.
                let action = if asked.method == "HEAD" { "pull" } else { "pull,push" };
                let asks = format!(
                    "Bearer realm=\"http://127.0.0.1:{}/token\",service=\"s\",scope=\"repository:{scope}:{action}\"",
                    self.port
                );
                (!good).then(|| (401, vec![("www-authenticate", asks)], Vec::new()))
            }
            Fault::Basic | Fault::Elsewhere(_) | Fault::Redirected(_)
                if authorization != "Basic bWU6c2VjcmV0" =>
            {
                Some((401, vec![("www-authenticate", "Basic realm=\"r\"".to_owned())], Vec::new()))
            }
            Fault::Busy => {
                let seen = self.count(&format!("{} ", asked.method));
                (seen <= 2).then(|| (429, vec![("retry-after", "0".to_owned())], Vec::new()))
            }
            Fault::BusyUpload if asked.method == "PATCH" => {
                (self.count("PATCH ") <= 1).then(|| (503, Vec::new(), Vec::new()))
            }
            Fault::Quota if asked.method == "POST" => {
                refusal(403, "DENIED", "adding 1.0 GiB of storage resource exceeds the quota")
            }
            Fault::Forgetful | Fault::Backwards | Fault::OneMore if asked.method == "PATCH" => {
                Some((503, vec![("retry-after", "0".to_owned())], Vec::new()))
            }
            Fault::Forgetful if asked.method == "GET" && asked.path.contains("/uploads/") => {
                match self.count("GET ") % 2 {
                    1 => Some((204, vec![("range", "0-9".to_owned())], Vec::new())),
                    _ => answer(404),
                }
            }
            Fault::Backwards if asked.method == "GET" && asked.path.contains("/uploads/") => {
                let last = if self.count("GET ") % 2 == 1 { 9 } else { 4 };
                Some((204, vec![("range", format!("0-{last}"))], Vec::new()))
            }
            Fault::OneMore if asked.method == "GET" && asked.path.contains("/uploads/") => {
                Some((204, vec![("range", format!("0-{}", self.count("GET ")))], Vec::new()))
            }
            Fault::Circling if asked.method == "PATCH" => {
                Some((308, vec![("location", asked.path.clone())], Vec::new()))
            }
            Fault::Redirected(port) if asked.method == "PATCH" => {
                let to = format!("http://localhost:{port}{}", asked.path);
                Some((307, vec![("location", to)], Vec::new()))
            }
            _ => None,
        }
    }

    fn act(&self, reader: &mut impl Read, out: &mut TcpStream, asked: &Asked) -> std::io::Result<Answer> {
        if asked.headers.contains_key("expect") {
            write!(out, "HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let name = asked.path.rsplit('/').next().unwrap_or_default().to_owned();
        let repository =
            asked.path.trim_start_matches("/v2/").split("/blobs/").next().unwrap_or_default().to_owned();
        if asked.path.contains("/manifests/") {
            return Ok(match asked.method.as_str() {
                "PUT" => {
                    let body = self.receive(reader, asked, usize::MAX)?;
                    self.store_manifest(name, asked.headers["content-type"].clone(), body)
                }
                _ => self.manifest(&name),
            });
        }
        if asked.path.contains("/blobs/uploads/") {
            let upload = match asked.method.as_str() {
                "POST" => Ok(self.begin(&repository, asked)),
                "PATCH" => self.part(reader, &name, asked),
                "PUT" => {
                    self.receive(reader, asked, usize::MAX)?;
                    Ok(self.end(&repository, &name, &asked.query["digest"]))
                }
                _ => Ok(self.status(&name)),
            };
            return upload;
        }
        let state = self.state();
        let there = state.repositories.get(&name).is_some_and(|all| all.contains(&repository));
        Ok(match state.blobs.get(&name).filter(|_| there) {
            Some(blob) => Some((200, Vec::new(), blob.clone())),
            None => answer(404),
        })
    }

    fn location(&self, session: &str) -> (&'static str, String) {
        let path = format!("/v2/any/blobs/uploads/{session}?state={session}");
        let location = match self.fault {
            Fault::Absolute => format!("http://127.0.0.1:{}{path}", self.port),
            Fault::Elsewhere(port) => format!("http://localhost:{port}{path}"),
            Fault::Location(place) => place.to_owned(),
            _ => path,
        };
        ("location", location)
    }

    fn begin(&self, repository: &str, asked: &Asked) -> Answer {
        let mut state = self.state();
        if let (Some(digest), Some(from)) = (asked.query.get("mount"), asked.query.get("from")) {
            let all = state.repositories.entry(digest.clone()).or_default();
            if all.contains(from) {
                all.push(repository.to_owned());
                return answer(201);
            }
        }
        // The repository is in the session's name: places of sessions need not have it in their paths.
        let session = format!("{}-{}", repository.replace('/', "+"), state.requests.len());
        state.sessions.insert(session.clone(), Vec::new());
        drop(state);
        Some((202, vec![self.location(&session)], Vec::new()))
    }

    fn part(&self, reader: &mut impl Read, session: &str, asked: &Asked) -> std::io::Result<Answer> {
        let at = asked
            .headers
            .get("content-range")
            .and_then(|range| range.split('-').next()?.parse::<usize>().ok());
        let (had, first) = {
            let mut state = self.state();
            state.faults += 1;
            let first = state.faults == 1;
            match state.sessions.get(session) {
                None => return Ok(answer(404)),
                Some(bytes) if bytes.len() != at.unwrap_or(0) => return Ok(answer(416)),
                Some(bytes) => (bytes.len(), first),
            }
        };
        let most = match self.fault {
            Fault::Cut(most) => most,
            Fault::BadlyJoined(most) if first => most,
            Fault::Forgotten if first => 1000,
            _ => usize::MAX,
        };
        let length: usize = asked.headers["content-length"].parse().unwrap();
        let mut body = self.receive(reader, asked, most)?;
        if matches!(self.fault, Fault::BadlyJoined(_)) && had > 0 && self.state().faults == 2 {
            body[0] ^= 1;
        }
        let mut state = self.state();
        if let Some(bytes) = state.sessions.get_mut(session) {
            bytes.extend(&body);
        }
        if self.fault == Fault::Forgotten && first {
            state.sessions.remove(session);
        }
        drop(state);
        Ok(match body.len() < length {
            true => None,
            false => Some((202, vec![self.location(session)], Vec::new())),
        })
    }

    fn status(&self, session: &str) -> Answer {
        let state = self.state();
        let Some(bytes) = state.sessions.get(session) else { return answer(404) };
        let range = format!("0-{}", bytes.len().max(1) - 1);
        Some((204, vec![("range", range), self.location(session)], Vec::new()))
    }

    fn end(&self, repository: &str, session: &str, wanted: &str) -> Answer {
        let repository = match session.rsplit_once('-') {
            Some((name, _)) => name.replace('+', "/"),
            None => repository.to_owned(),
        };
        let mut state = self.state();
        let Some(bytes) = state.sessions.remove(session) else { return answer(404) };
        if digest(&bytes) != wanted {
            return refusal(400, "DIGEST_INVALID", "provided digest did not match uploaded content");
        }
        state.repositories.entry(wanted.to_owned()).or_default().push(repository);
        state.blobs.insert(wanted.to_owned(), bytes);
        match self.fault == Fault::LostAnswer {
            true => None,
            false => Some((201, vec![("docker-content-digest", wanted.to_owned())], Vec::new())),
        }
    }

    fn store_manifest(&self, tag: String, kind: String, body: Vec<u8>) -> Answer {
        let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let parts = parsed["layers"].as_array().unwrap().iter().chain([&parsed["config"]]);
        let mut state = self.state();
        for part in parts {
            if !state.blobs.contains_key(part["digest"].as_str().unwrap()) {
                return refusal(400, "MANIFEST_BLOB_UNKNOWN", "a blob of the manifest is unknown");
            }
        }
        let stored = match self.fault {
            Fault::Unsupported => return refusal(415, "MANIFEST_INVALID", "OCI index not allowed"),
            Fault::OtherDigest => digest(b"another"),
            _ => digest(&body),
        };
        state.manifests.insert(digest(&body), (kind.clone(), body.clone()));
        state.manifests.insert(tag, (kind, body));
        Some((201, vec![("docker-content-digest", stored)], Vec::new()))
    }

    fn manifest(&self, name: &str) -> Answer {
        let state = self.state();
        let Some((kind, body)) = state.manifests.get(name) else { return answer(404) };
        let headers = vec![("content-type", kind.clone()), ("docker-content-digest", digest(body))];
        Some((200, headers, body.clone()))
    }
}
