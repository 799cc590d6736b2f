//! A registry by the distribution-spec: manifests and blobs, with tokens, mirrors and resumption.

mod upload;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Mutex;

use ureq::http::Response;
use ureq::{Body, http::StatusCode};

use crate::auth::{self, Challenge, Token, base64};
use crate::credentials::{CredentialFiles, Credentials};
use crate::http::{self, Answer, Failure, Http, LeastRate, Payload, Request, read_body, status_error};
use crate::program::Program;
use crate::reference::Reference;
use crate::registries_conf::{Endpoint, Registries};
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_content::notes;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err};

pub use self::upload::{LocalBlob, Uploaded};

/// The media types that a registry is asked for, best first.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// No manifest or index is larger (the distribution-spec asks registries to take 4 MiB).
pub const MANIFEST_LIMIT: u64 = 8 << 20;
/// How to connect.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// Credentials of the user, which count before those of the files; none: the files alone.
    pub credentials: Option<Credentials>,
    /// Files with credentials.
    pub credential_files: CredentialFiles,
    /// Certificates are not checked, HTTP is tried after HTTPS.
    pub insecure: bool,
    /// HTTP from the start.
    pub plain_http: bool,
    /// Failures that are borne; none: the default.
    pub retries: Option<u32>,
    /// The rate below which a server is given up.
    pub least_rate: LeastRate,
    /// The program that connects.
    pub program: Program,
}

/// The registry of one image, with its mirrors.
pub struct Registry {
    reference: Reference,
    endpoints: Vec<Connection>,
    access: Access,
    connect: ConnectOptions,
    interrupt: Interrupt,
}

/// What a token shall allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// To read the repository.
    Pull,
    /// To write it, and perhaps to read another one from which blobs are taken over.
    Push {
        /// The other repository.
        from: Option<String>,
    },
}

/// One host that has the image.
struct Connection {
    endpoint: Endpoint,
    http: Http,
    /// `https` or `http`, once one of them answered.
    scheme: Mutex<Option<&'static str>>,
    /// The challenge of its last answer without authorization, and the tokens that were bought for it.
    challenge: Mutex<Option<Challenge>>,
    tokens: Mutex<HashMap<String, Token>>,
}

/// Whether a request is made again after failures that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Much,
    None,
}

impl Connection {
    /// `https` or `http`. Only an insecure registry may be asked over HTTP, and only if HTTPS gets no answer.
    fn scheme(&self) -> &'static str {
        let Endpoint { host, insecure, .. } = &self.endpoint;
        let mut known = self.scheme.lock().unwrap_or_else(|e| e.into_inner());
        let scheme = match *known {
            Some(scheme) => scheme,
            None if *insecure => match self.http.try_once(&Request {
                method: "GET",
                url: &format!("https://{host}/v2/"),
                ..Request::default()
            }) {
                Ok(_) => "https",
                Err(_) => "http",
            },
            None => "https",
        };
        *known = Some(scheme);
        scheme
    }

    /// True where the URL is one of the registry itself: of its scheme, name and port.
    fn is_own(&self, url: &str) -> bool {
        let own = format!("{}://{}/", self.scheme(), self.endpoint.host);
        url.get(..own.len()).is_some_and(|start| start.eq_ignore_ascii_case(&own))
    }
}

impl Registry {
    /// The registry of `reference`. Connects to nothing yet.
    pub fn new(
        reference: &Reference,
        registries: &Registries,
        connect: ConnectOptions,
        interrupt: &Interrupt,
    ) -> Result<Registry> {
        let connection = |mut endpoint: Endpoint| {
            // Docker Hub's API has another name than its images.
            if endpoint.host == "docker.io" {
                endpoint.host = "registry-1.docker.io".into();
            }
            endpoint.insecure |= connect.insecure;
            let retries = connect.retries.unwrap_or(http::RETRIES);
            let http = Http::new(
                &endpoint.host,
                endpoint.insecure,
                retries,
                connect.least_rate,
                connect.program,
                interrupt.clone(),
            )?;
            Ok(Connection {
                endpoint,
                http,
                scheme: Mutex::new(connect.plain_http.then_some("http")),
                challenge: Mutex::default(),
                tokens: Mutex::default(),
            })
        };
        let endpoints =
            registries.endpoints(reference)?.into_iter().map(connection).collect::<Result<_>>()?;
        Ok(Registry {
            reference: reference.clone(),
            endpoints,
            access: Access::Pull,
            connect,
            interrupt: interrupt.clone(),
        })
    }

    /// The registry to write to: without mirrors, which are only read.
    pub fn for_push(mut self, from: Option<String>) -> Registry {
        self.endpoints.retain(|connection| !connection.endpoint.mirror);
        self.access = Access::Push { from };
        self
    }

    /// The digest behind the reference, by one HEAD; none where the registry does not tell it.
    pub fn digest(&self) -> Result<Option<Digest>> {
        if let Some(digest) = &self.reference.digest {
            return Ok(Some(digest.clone()));
        }
        self.first(|connection| {
            let url = format!("manifests/{}", self.reference.manifest_name());
            let response = self.ask(connection, "HEAD", &url, &[("accept", ACCEPT)])?;
            let digest = response.headers().get("docker-content-digest").and_then(|d| d.to_str().ok());
            // Some registries do not know HEAD, and its answer has no body that could say why: the GET will.
            Ok(digest.filter(|_| response.status() == StatusCode::OK).and_then(|d| d.parse().ok()))
        })
    }

    /// A manifest by tag or digest, with its digest, which was checked if it was asked for.
    pub fn manifest(&self, name: &str) -> Result<(Digest, Vec<u8>)> {
        self.first(|connection| {
            let response =
                self.ask(connection, "GET", &format!("manifests/{name}"), &[("accept", ACCEPT)])?;
            if response.status() != StatusCode::OK {
                return Err(self.refused(connection, response));
            }
            let bytes = read_body(response, MANIFEST_LIMIT, &self.connect.program)
                .context(|| self.url(connection, &format!("manifests/{name}")))?;
            let digest = match name.parse::<Digest>() {
                Ok(wanted) => {
                    wanted.check(&bytes).context(|| "manifest")?;
                    wanted
                }
                Err(_) => Digest::of(&bytes),
            };
            Ok((digest, bytes))
        })
    }

    /// A blob's bytes from `offset` on, in order, to `sink`. A broken connection goes on where it
    /// broke, as long as each brings something.
    pub fn blob(
        &self,
        digest: &Digest,
        size: u64,
        offset: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = offset;
        let mut result = Ok(());
        for connection in &self.endpoints {
            let mut sink_failed = false;
            result = self.blob_from(connection, (digest, size), &mut at, &mut |bytes| {
                sink(bytes).inspect_err(|_| sink_failed = true)
            });
            if result.is_ok() || sink_failed {
                return result;
            }
            self.interrupt.check()?;
        }
        result
    }

    fn blob_from(
        &self,
        connection: &Connection,
        (digest, size): (&Digest, u64),
        at: &mut u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let url = self.url(connection, &format!("blobs/{digest}"));
        let retries = self.connect.retries.unwrap_or(http::RETRIES);
        let mut attempts = http::Attempts::new(size, *at);
        let mut buffer = vec![0; 256 << 10];
        while *at < size {
            let range = format!("bytes={at}-");
            let headers: &[(&str, &str)] = if *at > 0 { &[("range", &range)] } else { &[] };
            // A server that ignores ranges sends all of it.
            let time = Some(http::time_of(size, self.connect.least_rate));
            let request = Request { method: "GET", url: &url, headers, time, ..Request::default() };
            let answer = self.exchange(connection, &request, Patience::Much);
            let response = answer.map_err(|failure| failure.error)?.response;
            let mut skip = match response.status().as_u16() {
                206 => {
                    let start = response.headers().get("content-range").and_then(|r| r.to_str().ok());
                    let start =
                        start.and_then(|r| r.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
                    match start {
                        Some(start) if start <= *at => *at - start,
                        _ => bail!("blob {}: the registry sent another range than it was asked for", digest),
                    }
                }
                200 => *at,
                _ => return Err(self.refused(connection, response).context(format!("blob {}", digest))),
            };
            let mut reader = response.into_body().into_reader();
            let broken = loop {
                match reader.read(&mut buffer) {
                    Ok(0) => break None,
                    Ok(n) => {
                        let skipped = skip.min(n as u64) as usize;
                        skip -= skipped as u64;
                        if skipped < n {
                            sink(&buffer[skipped..n])?;
                            *at += (n - skipped) as u64;
                        }
                    }
                    Err(e) => break Some(e),
                }
            };
            if *at >= size {
                break;
            }
            self.interrupt.check()?;
            let slow = broken.as_ref().is_some_and(http::was_slow);
            let fruitless = attempts.failed(*at, slow);
            let why = broken
                .map_or_else(|| err!("the connection ended"), |e| http::of_reading(e, &self.connect.program));
            let error = why.context(format!("blob {}: {} of {} bytes", digest, at, size));
            // A slow server mostly stays so, and each attempt takes a minute.
            if fruitless > if slow { retries.min(2) } else { retries } {
                return Err(error);
            }
            notes::note(&format!("{error}; going on"));
            self.interrupt.sleep(std::time::Duration::from_millis(200) * 2u32.pow(fruitless.min(6)))?;
        }
        Ok(())
    }

    /// Asks for the API's root with the credentials (`GET /v2/`), as a login does.
    pub fn check_login(&self) -> Result<()> {
        self.first(|connection| {
            let response = self.ask(connection, "GET", "", &[])?;
            if response.status() == StatusCode::OK { Ok(()) } else { Err(status_error(response)) }
        })
    }

    /// Runs `request` with each endpoint until one answers.
    fn first<T>(&self, request: impl Fn(&Connection) -> Result<T>) -> Result<T> {
        let mut last_error: Option<Error> = None;
        for connection in &self.endpoints {
            match request(connection) {
                Ok(value) => {
                    if self.endpoints.len() > 1 {
                        log::debug!("{}: {} has answered", self.reference, connection.endpoint.host);
                    }
                    return Ok(value);
                }
                Err(e) => {
                    self.interrupt.check()?;
                    if self.endpoints.len() > 1 {
                        log::info!("{}: {e}", connection.endpoint.host);
                    }
                    // The last one is the registry itself.
                    last_error = Some(e);
                }
            }
        }
        Err(last_error.unwrap_or_else(|| err!("{}: no registry or mirror to ask", self.reference)))
    }

    /// One request below the image's API path; an empty path is the API's root.
    fn ask(
        &self,
        connection: &Connection,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Body>> {
        let url = self.url(connection, path);
        let request = Request { method, url: &url, headers, ..Request::default() };
        self.exchange(connection, &request, Patience::Much)
            .map(|answer| answer.response)
            .map_err(|failure| failure.error)
    }

    /// One request, with the authorization that the registry asks for. Only the registry itself gets that, and nothing else
    /// at `request.url`.
    fn exchange(
        &self,
        connection: &Connection,
        request: &Request,
        patience: Patience,
    ) -> Result<Answer, Failure> {
        let own = connection.is_own(request.url);
        for attempt in 0..3 {
            let authorization = match own {
                true => self.authorization(connection, attempt > 0).map_err(Failure::of_request)?,
                false => None,
            };
            let request = Request { authorization: authorization.as_deref(), ..*request };
            let answer = match patience {
                Patience::Much => connection.http.send(&request)?,
                Patience::None => connection.http.try_once(&request)?,
            };
            let Answer { response, same_host, .. } = &answer;
            if response.status() != StatusCode::UNAUTHORIZED || attempt == 2 {
                return Ok(answer);
            }
            if !own || !same_host {
                // It is not the registry that asks, and it could name any token server.
                return Err(Failure::of_request(status_error(answer.response).context(format!(
                    "{}: redirects to a server that asks for credentials, which only the registry may get",
                    connection.endpoint.host
                ))));
            }
            let values = response.headers().get_all("www-authenticate");
            let values: Vec<&str> = values.iter().filter_map(|value| value.to_str().ok()).collect();
            let Some(challenge) = auth::parse(&values.join(", ")) else { return Ok(answer) };
            // A name and password that were refused once are refused again. A token may only have ended, so a new one is worth an attempt.
            let same =
                connection.challenge.lock().unwrap_or_else(|e| e.into_inner()).replace(challenge.clone());
            if attempt > 0 && same == Some(challenge.clone()) && matches!(challenge, Challenge::Basic) {
                return Ok(answer);
            }
        }
        Err(Failure::of_request(err!("{}: asks for credentials again and again", connection.endpoint.host)))
    }

    /// The URL of what is below the image's API path.
    fn url(&self, connection: &Connection, path: &str) -> String {
        let Endpoint { host, repository, .. } = &connection.endpoint;
        let scheme = connection.scheme();
        match path {
            "" => format!("{scheme}://{host}/v2/"),
            _ => format!("{scheme}://{host}/v2/{repository}/{path}"),
        }
    }

    /// The header that the last challenge asks for. `refused`: what it was last time will not do.
    fn authorization(&self, connection: &Connection, refused: bool) -> Result<Option<String>> {
        let challenge = connection.challenge.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let Some(challenge) = challenge else { return Ok(None) };
        match challenge {
            Challenge::Basic => Ok(match self.credentials(connection, None)? {
                Some(Credentials::Password { user, password }) => {
                    Some(format!("Basic {}", base64(format!("{user}:{password}").as_bytes())))
                }
                _ => None,
            }),
            Challenge::Bearer { realm, service, scope } => {
                let scope = self.access.scope(scope, &connection.endpoint.repository);
                let mut tokens = connection.tokens.lock().unwrap_or_else(|e| e.into_inner());
                if let Some(token) = tokens.get(&scope).filter(|token| token.fresh() && !refused) {
                    return Ok(Some(format!("Bearer {}", token.text)));
                }
                let token = self.token(connection, &realm, service.as_deref(), &scope)?;
                let header = format!("Bearer {}", token.text);
                tokens.insert(scope, token);
                Ok(Some(header))
            }
        }
    }

    /// Asks the token server: anonymously, with a password, or with an identity token (OAuth2).
    fn token(
        &self,
        connection: &Connection,
        realm: &str,
        service: Option<&str>,
        scope: &str,
    ) -> Result<Token> {
        let scheme = *connection.scheme.lock().unwrap_or_else(|e| e.into_inner());
        if !is_safe(scheme, realm) {
            bail!(
                "{}: its token server {realm} is not https, though the registry is",
                connection.endpoint.host
            );
        }
        let credentials = self.credentials(connection, Some(realm))?;
        let mut query = Vec::new();
        if let Some(service) = service {
            query.push(format!("service={}", http::encode(service)));
        }
        for scope in scope.split(' ').filter(|scope| !scope.is_empty()) {
            query.push(format!("scope={}", http::encode(scope)));
        }
        let response = match &credentials {
            Some(Credentials::IdentityToken(token)) => {
                // Of a form only one scope is read, with spaces in it.
                query.retain(|part| !part.starts_with("scope="));
                query.push(format!("scope={}", http::encode(scope)));
                let client = self.connect.program.name;
                query.push(format!("grant_type=refresh_token&client_id={client}"));
                query.push(format!("refresh_token={}", http::encode(token)));
                let form = query.join("&");
                connection.http.send(&Request {
                    method: "POST",
                    url: realm,
                    payload: Payload::Form(&form),
                    ..Request::default()
                })
            }
            other => {
                let authorization = match other {
                    Some(Credentials::Password { user, password }) => {
                        query.push(format!("account={}", http::encode(user)));
                        Some(format!("Basic {}", base64(format!("{user}:{password}").as_bytes())))
                    }
                    _ => None,
                };
                let separator = if realm.contains('?') { '&' } else { '?' };
                let url = format!("{realm}{separator}{}", query.join("&"));
                let authorization = authorization.as_deref();
                connection.http.send(&Request {
                    method: "GET",
                    url: &url,
                    authorization,
                    ..Request::default()
                })
            }
        };
        let response = response.map_err(|failure| failure.error)?.response;
        if response.status() != StatusCode::OK {
            let user = user_of(credentials.as_ref());
            return Err(self.denied(connection, user, status_error(response).context("token server")));
        }
        Token::parse(
            &read_body(response, 1 << 20, &self.connect.program)
                .context(|| format!("token server {realm}"))?,
        )
    }

    fn credentials(&self, connection: &Connection, realm: Option<&str>) -> Result<Option<Credentials>> {
        let Endpoint { host, repository, mirror, .. } = &connection.endpoint;
        // What the user gave is for the registry that the user named, not for its mirrors.
        if let Some(given) = self.connect.credentials.as_ref().filter(|_| !mirror) {
            return Ok(Some(given.clone()));
        }
        let host = if host == "registry-1.docker.io" { "docker.io" } else { host };
        let mut found = self.connect.credential_files.find(host, repository)?;
        // enroot's netrc file lists token servers under their own names. A registry may only name one of its own domain, or
        // it would be given a token of the user's for another registry.
        if found.is_none()
            && let Some(server) = realm.and_then(|r| r.split("://").nth(1)?.split('/').next())
            && is_beside(server, host)
        {
            found = CredentialFiles {
                netrc: self.connect.credential_files.netrc.clone(),
                ..CredentialFiles::default()
            }
            .find(server, "")?;
        }
        Ok(found)
    }

    fn refused(&self, connection: &Connection, response: Response<Body>) -> Error {
        let status = response.status().as_u16();
        let error = status_error(response);
        let challenge = connection.challenge.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let credentials = match (status, challenge) {
            // What a token was bought with is right, or there would be no token.
            (401, Some(Challenge::Basic)) => self.credentials(connection, None).unwrap_or_default(),
            _ => None,
        };
        match status {
            401 | 403 => self.denied(connection, user_of(credentials.as_ref()), error),
            _ => error.context(&self.reference),
        }
    }

    /// The error of a registry that denies something; `refused` is the user whose password it does not take.
    fn denied(&self, connection: &Connection, refused: Option<&str>, error: Error) -> Error {
        let (login, registry) = (self.connect.program.login, &self.reference.registry);
        error.context(&self.reference).hint(match (&self.access, refused) {
            (_, Some(user)) => {
                let host = &connection.endpoint.host;
                format!(
                    "{host} does not take the name or the password of user {user}: run {login} {registry}"
                )
            }
            (Access::Pull, None) => format!("wrong name, or credentials needed: run {login} {registry}"),
            (Access::Push { .. }, None) => {
                format!("no right to push there, or credentials needed: run {login} {registry}")
            }
        })
    }
}

impl Access {
    /// The scope of a token for a repository; `requested` is what the registry asks for. For a push it is asked for all at once, since
    /// a registry names only what the refused request needed.
    fn scope(&self, requested: Option<String>, repository: &str) -> String {
        let named = requested.as_deref().and_then(|scope| {
            let (name, _) = scope.strip_prefix("repository:")?.rsplit_once(':')?;
            Some(name.to_owned())
        });
        match self {
            Access::Pull => requested.unwrap_or_else(|| match repository {
                "" => String::new(),
                repository => format!("repository:{repository}:pull"),
            }),
            Access::Push { from } => {
                let name = named.unwrap_or_else(|| repository.to_owned());
                let other = from.as_ref().map(|from| format!(" repository:{from}:pull")).unwrap_or_default();
                format!("repository:{name}:pull,push{other}")
            }
        }
    }
}

/// The user whose password these are.
fn user_of(credentials: Option<&Credentials>) -> Option<&str> {
    match credentials {
        Some(Credentials::Password { user, .. }) => Some(user),
        Some(Credentials::IdentityToken(_)) | None => None,
    }
}

/// True where a registry that is asked over `scheme` may send the user to the token server `realm`.
fn is_safe(scheme: Option<&str>, realm: &str) -> bool {
    scheme == Some("http") || realm.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
}

/// True where one of two hosts is the other, or within its domain.
fn is_beside(one: &str, other: &str) -> bool {
    let within = |name: &str, domain: &str| {
        domain.contains('.') && name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    one == other || within(one, other) || within(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_servers_of_an_https_registry_are_https() {
        assert!(is_safe(Some("https"), "https://auth.docker.io/token"));
        assert!(is_safe(Some("https"), "HTTPS://auth.docker.io/token"));
        assert!(is_safe(Some("http"), "http://127.0.0.1:5001/token"));
        for realm in ["http://auth.docker.io/token", "", "https:/", "ftp://x"] {
            assert!(!is_safe(Some("https"), realm) && !is_safe(None, realm), "{realm}");
        }
    }

    #[test]
    fn scopes() {
        let push = |from: Option<&str>| Access::Push { from: from.map(str::to_owned) };
        assert_eq!(Access::Pull.scope(None, "a/b"), "repository:a/b:pull");
        assert_eq!(Access::Pull.scope(Some("x".into()), "a/b"), "x");
        assert_eq!(
            push(None).scope(Some("repository:p/a/b:pull".into()), "a/b"),
            "repository:p/a/b:pull,push"
        );
        assert_eq!(push(Some("c")).scope(None, "a/b"), "repository:a/b:pull,push repository:c:pull");
    }

    #[test]
    fn token_servers_of_a_registry() {
        for (server, registry) in
            [("nvcr.io", "nvcr.io"), ("gitlab.com", "registry.gitlab.com"), ("auth.site.org", "site.org")]
        {
            assert!(is_beside(server, registry), "{server}");
        }
        for (server, registry) in [
            ("auth.docker.io", "evil.io"),
            ("evilsite.org", "site.org"),
            ("org", "site.org"),
            ("site.org:5000", "site.org"),
            ("site.org@evil.org", "site.org"),
        ] {
            assert!(!is_beside(server, registry), "{server}");
        }
    }
}
