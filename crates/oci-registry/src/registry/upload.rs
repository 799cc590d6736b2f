//! Writing to a registry: blobs by a session that goes on after a broken connection, and manifests.

use std::fs::File;

use ureq::http::Uri;
use ureq::http::header::HeaderMap;

use super::{Connection, Patience, Registry};
use crate::http::{self, Answer, Failure, FailureKind, Part, Payload, Request, is_busy, status_error};
use oci_content::digest::Digest;
use oci_content::meter::Meter;
use oci_content::notes;
use rt_sys::error::{Error, Kind, Result};
use rt_sys::{bail, err};

/// A blob that is in a file.
pub struct LocalBlob {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The file.
    pub file: std::sync::Arc<File>,
    /// Where it begins there.
    pub offset: u64,
}

/// How a blob came to a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploaded {
    /// It was there.
    Present,
    /// The registry took it over from another repository.
    Mounted,
    /// It was sent.
    Sent,
}

/// What became of the bytes of a session.
enum Sending {
    /// The registry has all of them.
    Complete,
    /// The registry has so many of them.
    Partial(u64),
    /// The registry does not know the session any more.
    Lost,
}

/// An upload that the registry has begun.
struct Session {
    /// Where to send the next bytes. Each answer names the next place.
    url: String,
}

impl Registry {
    /// Sends a blob, unless the registry has it. `from`: a repository of this registry that may have it. `meter` counts its bytes
    /// from what it has now.
    ///
    /// # Errors
    /// Of kind [`Kind::Damaged`] where the registry says that its bytes have another digest.
    pub fn upload(&self, blob: &LocalBlob, from: Option<&str>, meter: &Meter) -> Result<Uploaded> {
        let connection = self.own()?;
        let before = meter.have();
        let done = |uploaded| {
            meter.set(before + blob.size);
            Ok(uploaded)
        };
        if self.has_blob(connection, blob)? {
            return done(Uploaded::Present);
        }
        let named = |e: Error| e.context(format!("blob {}", blob.digest.short()));
        let mut session = match self.begin(connection, blob, from).map_err(named)? {
            Some(session) => session,
            None => return done(Uploaded::Mounted),
        };
        // Nobody knows whether the registry joined the bytes of two connections well, so what it finds damaged is sent as a whole
        // once more.
        let mut last = false;
        loop {
            let whole = self.send_all(connection, blob, &mut session, meter, before).map_err(named)?;
            match self.finish(connection, blob, &session).map_err(named)? {
                None => return done(Uploaded::Sent),
                Some(refused) if last || whole => return Err(named(refused.of_kind(Kind::Damaged))),
                Some(refused) => log::info!("{}: sending it once more", named(refused)),
            }
            last = true;
            session = self.session(connection, "blobs/uploads/").map_err(named)?;
        }
    }

    /// Stores a manifest under the reference's tag.
    pub fn put_manifest(&self, media_type: &str, bytes: &[u8]) -> Result<()> {
        let connection = self.own()?;
        let digest = Digest::of(bytes);
        let url = self.url(connection, &format!("manifests/{}", self.reference.manifest_name()));
        let headers = [("content-type", media_type)];
        let payload = Payload::Bytes(bytes);
        let request = Request { method: "PUT", url: &url, headers: &headers, payload, ..Request::default() };
        let answer = self.exchange(connection, &request, Patience::Much).map_err(|failure| failure.error)?;
        match answer.response.status().as_u16() {
            200..=202 => same_digest(answer.response.headers(), &digest).map_err(|e| e.context("manifest")),
            415 => Err(self
                .refused(connection, answer.response)
                .hint(format!("it does not take manifests of {media_type}"))),
            _ => Err(self.refused(connection, answer.response).context("manifest")),
        }
    }

    /// The registry itself.
    fn own(&self) -> Result<&Connection> {
        self.endpoints.last().ok_or_else(|| err!("{}: no registry to push to", self.reference))
    }

    fn has_blob(&self, connection: &Connection, blob: &LocalBlob) -> Result<bool> {
        let response = self.ask(connection, "HEAD", &format!("blobs/{}", blob.digest), &[])?;
        // An answer to HEAD has no body that could say why; if there is something wrong, the POST that follows says it.
        Ok(response.status().as_u16() == 200)
    }

    /// Begins a session; none where the registry took the blob over from another repository.
    fn begin(
        &self,
        connection: &Connection,
        blob: &LocalBlob,
        from: Option<&str>,
    ) -> Result<Option<Session>> {
        if let Some(from) = from {
            let mount = format!("blobs/uploads/?mount={}&from={}", blob.digest, http::encode(from));
            let answer = self.post(connection, &mount)?;
            match answer.response.status().as_u16() {
                201 => return Ok(None),
                202 => return Session::of(connection, &answer).map(Some),
                // A registry may refuse to read the other repository, and still let the user write.
                _ => {}
            }
        }
        self.session(connection, "blobs/uploads/").map(Some)
    }

    fn post(&self, connection: &Connection, path: &str) -> Result<Answer> {
        let url = self.url(connection, path);
        let request =
            Request { method: "POST", url: &url, payload: Payload::Bytes(b""), ..Request::default() };
        self.exchange(connection, &request, Patience::Much).map_err(|failure| failure.error)
    }

    fn session(&self, connection: &Connection, path: &str) -> Result<Session> {
        let answer = self.post(connection, path)?;
        match answer.response.status().as_u16() {
            202 => Session::of(connection, &answer),
            _ => Err(self.refused(connection, answer.response)),
        }
    }

    /// Sends all bytes; a broken connection goes on where the registry has got to, as long as each brings something. True where
    /// they went in one piece. A registry may say anything of what it has, so only a good part more than ever before in a
    /// session counts as progress, and sessions are lost only so often.
    fn send_all(
        &self,
        connection: &Connection,
        blob: &LocalBlob,
        session: &mut Session,
        meter: &Meter,
        before: u64,
    ) -> Result<bool> {
        let retries = self.connect.retries.unwrap_or(http::RETRIES);
        let (mut at, mut lost, mut whole) = (0, 0, true);
        let mut attempts = http::Attempts::new(blob.size, 0);
        while at < blob.size {
            meter.set(before + at);
            let failure = match self.send_from(connection, blob, session, at, meter) {
                Ok(()) => break,
                Err(failure) => failure,
            };
            self.interrupt.check()?;
            if !matches!(failure.kind, FailureKind::Busy | FailureKind::Broken | FailureKind::Unreachable) {
                return Err(failure.error);
            }
            whole = false;
            match self.progress(connection, blob, session).map_err(|_| failure.error.clone())? {
                Sending::Complete => break,
                Sending::Partial(size) => at = size,
                Sending::Lost => {
                    *session = self.session(connection, "blobs/uploads/")?;
                    at = 0;
                    attempts.again();
                    lost += 1;
                }
            }
            let fruitless = attempts.failed(at, false);
            if fruitless > retries || lost > retries {
                return Err(failure.error);
            }
            notes::note(&format!("{}; {at} of {} bytes are there, going on", failure.error, blob.size));
            self.interrupt.sleep(http::back_off(fruitless))?;
        }
        Ok(whole)
    }

    /// One connection's attempt at the bytes from `at` on.
    fn send_from(
        &self,
        connection: &Connection,
        blob: &LocalBlob,
        session: &mut Session,
        at: u64,
        meter: &Meter,
    ) -> Result<(), Failure> {
        let range = format!("{at}-{}", blob.size - 1);
        let all = [("content-type", "application/octet-stream"), ("content-range", range.as_str())];
        // Some registries take a content-range for one of several pieces, and want a size of their own for these.
        let headers = if at > 0 { &all[..] } else { &all[..1] };
        let interrupt = &self.interrupt;
        let (offset, length) = (blob.offset + at, blob.size - at);
        let part = Payload::Part(Part { file: &blob.file, offset, length, meter, interrupt });
        let url = session.url.clone();
        let request = Request { method: "PATCH", url: &url, headers, payload: part, ..Request::default() };
        let answer = self.exchange(connection, &request, Patience::None)?;
        let status = answer.response.status();
        match status.as_u16() {
            200..=204 => {
                session.next(connection, &answer).map_err(Failure::of_request)?;
                Ok(())
            }
            _ if is_busy(status) => {
                let wait = http::retry_after(answer.response.headers());
                let error = status_error(answer.response).context(http::shown(&url));
                if let Some(wait) = wait {
                    self.interrupt.sleep(wait.min(http::LONGEST_WAIT)).map_err(Failure::of_request)?;
                }
                Err(Failure { error, kind: FailureKind::Busy })
            }
            // The session is gone, or it is further than we know: its state will say.
            404 | 416 if at > 0 => {
                Err(Failure { error: status_error(answer.response), kind: FailureKind::Broken })
            }
            _ => Err(Failure::of_request(self.refused(connection, answer.response))),
        }
    }

    /// Asks how much of a blob has arrived.
    fn progress(&self, connection: &Connection, blob: &LocalBlob, session: &mut Session) -> Result<Sending> {
        let request = Request { method: "GET", url: &session.url, ..Request::default() };
        let answer = self.exchange(connection, &request, Patience::Much).map_err(|failure| failure.error)?;
        match answer.response.status().as_u16() {
            200 | 202 | 204 => {}
            // The connection broke after the registry had everything.
            _ if self.has_blob(connection, blob)? => return Ok(Sending::Complete),
            _ => return Ok(Sending::Lost),
        }
        let range = answer.response.headers().get("range").and_then(|range| range.to_str().ok());
        let last =
            range.and_then(|range| range.trim_start_matches("bytes=").split_once('-')?.1.parse::<u64>().ok());
        let Some(last) = last else { return Ok(Sending::Lost) };
        session.next(connection, &answer)?;
        Ok(match last {
            // What registries say of nothing at all, too. If there is one byte, they refuse a piece that begins before it.
            0 => Sending::Partial(0),
            last if last < blob.size => Sending::Partial(last + 1),
            _ => Sending::Lost,
        })
    }

    /// Ends a session. Returned is what the registry says where it finds the bytes damaged.
    fn finish(&self, connection: &Connection, blob: &LocalBlob, session: &Session) -> Result<Option<Error>> {
        let separator = if session.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}digest={}", session.url, http::encode(blob.digest.as_str()));
        let payload = Payload::Bytes(b"");
        let headers = [("content-type", "application/octet-stream")];
        let request = Request { method: "PUT", url: &url, headers: &headers, payload, ..Request::default() };
        let answer = self.exchange(connection, &request, Patience::Much).map_err(|failure| failure.error)?;
        match answer.response.status().as_u16() {
            200..=204 => same_digest(answer.response.headers(), &blob.digest).map(|()| None),
            // The answer to the first PUT may have been lost.
            _ if self.has_blob(connection, blob)? => Ok(None),
            400 | 404 | 416 => Ok(Some(self.refused(connection, answer.response))),
            _ => Err(self.refused(connection, answer.response)),
        }
    }
}

impl Session {
    fn of(connection: &Connection, answer: &Answer) -> Result<Session> {
        let mut session = Session { url: String::new() };
        session.next(connection, answer)?;
        if session.url.is_empty() {
            bail!("{}: begins an upload and does not say where", connection.endpoint.host);
        }
        Ok(session)
    }

    /// Takes the place for what comes next from an answer, where it names one.
    fn next(&mut self, connection: &Connection, answer: &Answer) -> Result<()> {
        let location = answer.response.headers().get("location").and_then(|location| location.to_str().ok());
        if let Some(location) = location {
            self.url = place(&answer.url, location, connection)?;
        }
        Ok(())
    }
}

/// Where `location` leads. It may be another host, which gets no credentials.
///
/// # Errors
/// It may not be http where the registry is asked over https. What a registry behind a proxy says of its own name is read
/// as https.
fn place(base: &Uri, location: &str, connection: &Connection) -> Result<String> {
    let url = http::resolve(base, location);
    let uri: Uri = url.parse().map_err(|e| err!("{:?}: {e}", http::shown(&url)))?;
    let (scheme, insecure) = (connection.scheme(), connection.endpoint.insecure);
    let host = |uri: &Uri| uri.host().unwrap_or_default().to_ascii_lowercase();
    let registry: Uri = format!("{scheme}://{}/", connection.endpoint.host).parse().unwrap_or_default();
    let same = uri.scheme_str() == Some(scheme) && port(&uri) == port(&registry);
    let behind_proxy =
        scheme == "https" && uri.scheme_str() == Some("http") && uri.port_u16() == registry.port_u16();
    if host(&uri) == host(&registry) && (same || behind_proxy) {
        let rest = uri.path_and_query().map_or("/", |rest| rest.as_str());
        return Ok(format!("{scheme}://{}{rest}", connection.endpoint.host));
    }
    if scheme == "https" && uri.scheme_str() != Some("https") && !insecure {
        bail!("{}: sends an upload from https to {}", connection.endpoint.host, http::shown(&url));
    }
    Ok(url)
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 })
}

/// # Errors
/// The registry says that what it stored has another digest.
fn same_digest(headers: &HeaderMap, digest: &Digest) -> Result<()> {
    match headers.get("docker-content-digest").and_then(|stored| stored.to_str().ok()) {
        Some(stored) if stored.starts_with("sha256:") && stored != digest.as_str() => {
            bail!("the registry stored {stored} instead of {digest}")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registries_conf::Registries;
    use crate::registry::ConnectOptions;
    use oci_content::interrupt::Interrupt;

    fn leads(registry: &str, plain_http: bool, location: &str) -> String {
        let reference = format!("{registry}/x").parse().unwrap();
        let connect = ConnectOptions { plain_http, ..ConnectOptions::default() };
        let registry =
            Registry::new(&reference, &Registries::default(), connect, &Interrupt::default()).unwrap();
        let connection = registry.own().unwrap();
        let base = format!("{}://{}/v2/x/blobs/uploads/", connection.scheme(), connection.endpoint.host);
        match place(&base.parse().unwrap(), location, connection) {
            Ok(url) => format!("{}{url}", if connection.is_own(&url) { "own " } else { "" }),
            Err(_) => "refused".to_owned(),
        }
    }

    /// Credentials are for what is "own" only.
    #[test]
    fn where_uploads_go() {
        for (location, wanted) in [
            ("/v2/x/u?a=b", "own https://r.example/v2/x/u?a=b"),
            ("https://R.example:443/u", "own https://r.example/u"),
            ("http://r.example/u", "own https://r.example/u"),
            ("http://r.example:5000/u", "refused"),
            ("http://s3.example/u", "refused"),
            ("https://r.example:5000/u", "https://r.example:5000/u"),
            ("https://s3.example/u?sig", "https://s3.example/u?sig"),
            ("https://r.example@evil.example/u", "https://r.example@evil.example/u"),
            ("//r.example.evil/u", "https://r.example.evil/u"),
        ] {
            assert_eq!(leads("r.example", false, location), wanted, "{location}");
        }
        assert_eq!(leads("r.example:5000", false, "https://r.example/u"), "https://r.example/u");
        assert_eq!(leads("127.0.0.1:5000", true, "http://127.0.0.1:5000/u"), "own http://127.0.0.1:5000/u");
        assert_eq!(leads("127.0.0.1:5000", true, "http://127.0.0.1:5001/u"), "http://127.0.0.1:5001/u");
    }
}
