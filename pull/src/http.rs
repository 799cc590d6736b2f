//! HTTP as registries need it: certificates, proxies, redirects without credentials, patience.

use std::io::Read;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use ureq::http::{HeaderMap, Response, Uri};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use super::interrupt::Interrupt;
use super::registries_conf::Certificates;
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err};

/// A connection is made, and says something, within this time.
const CONNECT: Duration = Duration::from_secs(15);
/// An answer starts within this time, and never pauses for longer.
const IDLE: Duration = Duration::from_secs(40);
/// Hops of a redirect.
const REDIRECTS: usize = 8;
/// The longest that a Retry-After is followed.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Where distributions keep the CAs, the usual first.
const CA_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How many times a failed request is made again.
pub(crate) const RETRIES: u32 = 6;

/// Proxy, whether it is the registry itself, whether it is https.
type AgentKey = (String, bool, bool);

/// A client of one host, and of those to which it redirects.
pub(crate) struct Http {
    certificates: Certificates,
    insecure: bool,
    agents: Mutex<Vec<(AgentKey, Agent)>>,
    own_host: String,
    retries: u32,
    interrupt: Interrupt,
}

/// What is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request<'a> {
    /// GET, HEAD or POST.
    pub method: &'a str,
    /// Where to.
    pub url: &'a str,
    /// Headers but `authorization`.
    pub headers: &'a [(&'a str, &'a str)],
    /// That header, which no other host may see.
    pub authorization: Option<&'a str>,
    /// The body, of a form.
    pub form: Option<&'a str>,
}

/// An answer, and whether it is that of the host that was asked: scheme, name and port, at each hop of a redirect.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer.
    pub response: Response<Body>,
    /// False where a redirect led to another host.
    pub own: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to tell.
    pub error: Error,
    /// Whether it may pass.
    pub transient: bool,
    /// No connection at all: the other scheme may do.
    pub connect: bool,
}

impl Http {
    /// A client of `host`. `insecure`: certificates are not checked.
    pub(crate) fn new(host: &str, insecure: bool, retries: u32, interrupt: Interrupt) -> Http {
        let certificates = Certificates::for_host(host);
        Http {
            certificates,
            insecure,
            agents: Mutex::default(),
            own_host: host.to_owned(),
            retries,
            interrupt,
        }
    }

    /// One request, made again after failures that may pass.
    ///
    /// # Errors
    /// No answer, or one of 429, 500, 502, 503 or 504 to the end.
    pub(crate) fn send(&self, request: &Request) -> Result<Answer, Failure> {
        let mut attempt = 0;
        loop {
            let result = self.try_once(request);
            let (failure, wait) = match result {
                Ok(answer) if !matches!(answer.response.status().as_u16(), 429 | 500 | 502 | 503 | 504) => {
                    return Ok(answer);
                }
                Ok(Answer { response, .. }) => {
                    let wait = retry_after(response.headers());
                    let status = response.status().as_u16();
                    let error = status_error(response).context(url_shown(request.url));
                    let error = match status {
                        429 => error.hint("too many requests: rt login raises the limit at most registries"),
                        _ => error,
                    };
                    (Failure { error, transient: true, connect: false }, wait)
                }
                Err(failure) => (failure, None),
            };
            attempt += 1;
            // A host that refuses connections or does not exist stays so.
            let patience = if failure.connect { self.retries.min(2) } else { self.retries };
            if !failure.transient || attempt > patience {
                return Err(failure);
            }
            let wait = wait.unwrap_or_else(|| back_off(attempt));
            if wait > LONGEST_WAIT {
                let error = failure.error.context(format!("asked to wait {} seconds", wait.as_secs()));
                return Err(Failure { error, ..failure });
            }
            log::info!("{}: again in {:.1} s", failure.error, wait.as_secs_f32());
            self.interrupt.sleep(wait).map_err(|error| Failure {
                error,
                transient: false,
                connect: false,
            })?;
        }
    }

    /// One request, without patience. Redirects are followed, with the authorization only while the host stays the
    /// same.
    pub(crate) fn try_once(&self, request: &Request) -> Result<Answer, Failure> {
        let Request { method, headers, mut authorization, form, .. } = *request;
        let fatal = |error: Error| Failure { error, transient: false, connect: false };
        let mut url = request.url.to_owned();
        let mut own = true;
        for _ in 0..REDIRECTS {
            let uri: Uri = url.parse().map_err(|e| fatal(err!("{url:?}: {e}")))?;
            let mut request =
                ureq::http::Request::builder().method(method).uri(&uri).header("user-agent", "rt-pull");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            let agent = self.agent(&uri).map_err(fatal)?;
            let response = match form {
                Some(form) => {
                    let request = request.header("content-type", "application/x-www-form-urlencoded");
                    agent.run(request.body(form.to_owned()).map_err(|e| fatal(err!("{url}: {e}")))?)
                }
                None => agent.run(request.body(()).map_err(|e| fatal(err!("{url}: {e}")))?),
            };
            let response = response.map_err(|e| failure(e, &url))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer { response, own });
            }
            let location = response.headers().get("location").and_then(|l| l.to_str().ok());
            let location = location.ok_or_else(|| fatal(err!("{url}: a redirect to nowhere")))?;
            let next = resolve(&uri, location);
            let next_uri: Uri = next.parse().map_err(|e| fatal(err!("{:?}: {e}", url_shown(&next))))?;
            if uri.scheme_str() == Some("https") && next_uri.scheme_str() != Some("https") && !self.insecure {
                return Err(fatal(err!("{}: redirects from https to {}", url_shown(&url), url_shown(&next))));
            }
            if (next_uri.authority(), next_uri.scheme()) != (uri.authority(), uri.scheme()) {
                // A form holds a token, as the header does.
                if form.is_some() {
                    return Err(fatal(err!("{}: redirects to {}", url_shown(&url), url_shown(&next))));
                }
                authorization = None;
                own = false;
            }
            url = next;
        }
        Err(fatal(err!("{}: more than {REDIRECTS} redirects", url_shown(&url))))
    }

    /// Agents keep connections; one for the registry with its certificates, one for the rest.
    fn agent(&self, uri: &Uri) -> Result<Agent> {
        let authority = uri.authority().map_or("", |a| a.as_str());
        let own = authority == self.own_host;
        let https = uri.scheme_str() == Some("https");
        let key = (proxy_for(uri).unwrap_or_default(), own, https);
        let mut agents = self.agents.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, agent)) = agents.iter().find(|(known, _)| *known == key) {
            return Ok(agent.clone());
        }
        let proxy = match key.0.as_str() {
            "" => None,
            url => Some(Proxy::new(url).map_err(|e| err!("the proxy of the environment: {e}"))?),
        };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(IDLE))
            .timeout_per_read(Some(IDLE))
            .timeout_per_write(Some(IDLE))
            .max_idle_connections_per_host(8)
            .input_buffer_size(256 << 10);
        if https {
            config = config.tls_config(self.tls(own)?);
        }
        let agent = Agent::new_with_config(config.build());
        agents.push((key, agent.clone()));
        Ok(agent)
    }

    fn tls(&self, own: bool) -> Result<TlsConfig> {
        let mut tls = TlsConfig::builder().disable_verification(self.insecure);
        if self.insecure {
            return Ok(tls.build());
        }
        let mut roots = system_roots();
        if own {
            for pem in &self.certificates.authorities {
                roots.extend(certificates(pem));
            }
            if let Some((chain, key)) = &self.certificates.client {
                let chain: Vec<_> = certificates(chain).collect();
                let key = PrivateKey::from_pem(key).map_err(|e| err!("client key in certs.d: {e}"))?;
                tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
            }
        }
        let roots = if roots.is_empty() { RootCerts::WebPki } else { RootCerts::new_with_certs(&roots) };
        Ok(tls.root_certs(roots).build())
    }
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = Certificate<'static>> {
    ureq::tls::parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    })
}

/// The system's CAs; none where it has none, and then Mozilla's list in the program is used.
fn system_roots() -> Vec<Certificate<'static>> {
    let named = std::env::var("SSL_CERT_FILE").ok().filter(|f| !f.is_empty());
    let files = named.iter().map(String::as_str).chain(CA_FILES);
    let mut text = files.filter_map(|path| std::fs::read(path).ok()).next().unwrap_or_default();
    if let Some(dir) = std::env::var_os("SSL_CERT_DIR").filter(|d| !d.is_empty()) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            text.extend(std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    certificates(&text).collect()
}

/// The proxy that the environment names for a URL, as curl reads it.
fn proxy_for(uri: &Uri) -> Option<String> {
    let variable = |names: [&str; 2]| {
        names.iter().find_map(|name| std::env::var(name).ok()).filter(|value| !value.is_empty())
    };
    let host = uri.host()?.trim_matches(['[', ']']);
    if variable(["no_proxy", "NO_PROXY"]).is_some_and(|list| exempt(&list, host)) {
        return None;
    }
    // HTTP_PROXY in upper case may come from a request's header (httpoxy); curl leaves it out too.
    let own = match uri.scheme_str() {
        Some("http") => std::env::var("http_proxy").ok().filter(|value| !value.is_empty()),
        _ => variable(["https_proxy", "HTTPS_PROXY"]),
    };
    own.or_else(|| variable(["all_proxy", "ALL_PROXY"]))
}

fn exempt(list: &str, host: &str) -> bool {
    list.split([',', ' ']).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.trim_start_matches("*.").trim_start_matches('.');
        let entry =
            entry.rsplit_once(':').filter(|(_, p)| p.parse::<u16>().is_ok()).map_or(entry, |(h, _)| h);
        entry == "*" || host == entry || host.strip_suffix(entry).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// `location` as a browser on `base` reads it (RFC 3986, 5.2, without dot segments).
fn resolve(base: &Uri, location: &str) -> String {
    let origin =
        format!("{}://{}", base.scheme_str().unwrap_or("https"), base.authority().map_or("", |a| a.as_str()));
    if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", base.scheme_str().unwrap_or("https"))
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else {
        let dir = base.path().rsplit_once('/').map_or("", |(dir, _)| dir);
        format!("{origin}{dir}/{location}")
    }
}

/// RFC 9110, 10.2.3: seconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => http_date(text)?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    // All nodes of a job were told the same: spread them.
    Some(wait + jitter(Duration::from_millis(500 + 250 * wait.as_secs().min(20))))
}

/// RFC 9110, 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`. The obsolete forms are nobody's any more.
fn http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let time: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = time[..] else { return None };
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from civil, the year beginning in March, so that a leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second))
}

fn back_off(attempt: u32) -> Duration {
    let most = Duration::from_millis(400) * 2u32.pow(attempt.min(6));
    most / 2 + jitter(most / 2)
}

fn jitter(most: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish() % 1000;
    most * random as u32 / 1000
}

/// A URL without its query, which may hold a signature.
fn url_shown(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

fn failure(e: ureq::Error, url: &str) -> Failure {
    use ureq::Error as E;
    let connect = match &e {
        E::HostNotFound | E::ConnectionFailed | E::ConnectProxyFailed(_) => true,
        E::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        E::Io(io) => io.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    };
    let tls = matches!(e, E::Tls(_) | E::Rustls(_) | E::Pem(_));
    let fatal = tls || matches!(e, E::BadUri(_) | E::Http(_) | E::InvalidProxyUrl | E::TlsRequired);
    // rustls' errors come wrapped in an I/O error, and a bad certificate does not get better.
    let text = e.to_string();
    let certificate = text.contains("certificate") || text.contains("UnknownIssuer");
    let wants_ours = text.contains("BadCertificate") || text.contains("CertificateRequired");
    let plain = text.contains("corrupt message") || text.contains("InvalidContentType");
    let mut error = match e {
        E::Io(io) => Error::from(io),
        E::HostNotFound => err!("no such host"),
        other => err!("{other}"),
    };
    error = error.context(url_shown(url));
    if certificate {
        error = error
            .hint("put the registry's CA into ~/.config/containers/certs.d/HOST/ca.crt, or use --insecure");
    } else if wants_ours {
        let remedy =
            "put a client certificate into ~/.config/containers/certs.d/HOST/client.cert and client.key";
        error = error.hint(remedy);
    } else if plain {
        error = error.hint("does it speak HTTP only? then use --plain-http");
    }
    Failure {
        error,
        transient: !fatal && !certificate && !wants_ours && !plain,
        connect: connect || tls || certificate || wants_ours || plain,
    }
}

/// A body, up to `limit` bytes.
pub(crate) fn read_body(response: Response<Body>, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(limit + 1);
    reader.read_to_end(&mut bytes).map_err(|e| err!("read the answer: {e}"))?;
    if bytes.len() as u64 > limit {
        bail!("an answer longer than {limit} bytes");
    }
    Ok(bytes)
}

/// The registry's own words, from the distribution-spec's error body.
pub(crate) fn status_error(response: Response<Body>) -> Error {
    #[derive(serde::Deserialize)]
    struct Body {
        #[serde(default)]
        errors: Vec<One>,
        details: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let status = response.status();
    let body = read_body(response, 64 << 10).unwrap_or_default();
    let said = serde_json::from_slice::<Body>(&body).ok().and_then(|body| {
        let first = body.errors.into_iter().next().map(|one| match one.message.is_empty() {
            true => one.code,
            false => one.message,
        });
        first.or(body.details)
    });
    match said {
        // A hostile registry shall not paint the user's terminal.
        Some(said) => err!(
            "{} ({})",
            said.chars().filter(|c| !c.is_control()).take(300).collect::<String>(),
            status.as_u16()
        ),
        None => err!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or("")),
    }
}

/// For a query or form (RFC 3986, 2.3).
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let base: Uri = "https://r.example/v2/x/blobs/y".parse().unwrap();
        assert_eq!(resolve(&base, "https://s3.example/z?sig"), "https://s3.example/z?sig");
        assert_eq!(resolve(&base, "//s3.example/z"), "https://s3.example/z");
        assert_eq!(resolve(&base, "/z"), "https://r.example/z");
        assert_eq!(resolve(&base, "z"), "https://r.example/v2/x/blobs/z");
    }

    #[test]
    fn who_needs_no_proxy() {
        assert!(exempt("localhost,.site", "r.site"));
        assert!(exempt("site", "r.site"));
        assert!(exempt("10.0.0.1:5000", "10.0.0.1"));
        assert!(exempt("*", "x"));
        assert!(!exempt("site", "website"));
        assert!(!exempt("", "x"));
    }

    #[test]
    fn waits_grow_and_differ() {
        assert!(back_off(1) < Duration::from_secs(1));
        assert!(back_off(6) >= Duration::from_secs(12));
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        assert!((3..=5).contains(&retry_after(&headers).unwrap().as_secs()));
    }

    #[test]
    fn waits_until_a_date() {
        let seconds = |text: &str| {
            http_date(text).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        // `date -u -d @N '+%a, %d %b %Y %H:%M:%S GMT'`
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        for bad in [
            "",
            "soon",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1 08:49:37 GMT",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert!(retry_after(&headers).unwrap() < Duration::from_secs(1), "a date that has passed");
    }

    #[test]
    fn queries() {
        assert_eq!(encode("repository:a/b:pull"), "repository%3Aa%2Fb%3Apull");
    }
}
