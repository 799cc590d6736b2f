//! HTTP as registries need it: certificates, proxies, redirects without credentials, patience.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | a client of one host: requests, redirects, connections |
//! | `failure.rs` | why there is no answer, and whether to ask again |
//! | `patience.rs` | how long to wait before that |
//! | `trust.rs` | certificates |
//! | `proxy.rs` | the proxy of the environment |
//! | `payload.rs` | the body of a request |
//! | `body.rs` | small bodies of answers, and a registry's own words for an error |
//! | `wire.rs` | connections that end at Ctrl-C, and where next to nothing comes |
//! | `url.rs` | the text of a URL |

mod body;
mod failure;
mod patience;
mod payload;
mod proxy;
mod trust;
mod url;
mod wire;

use std::sync::Mutex;
use std::time::Duration;

use ureq::http::{Response, StatusCode, Uri};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};
use ureq::{Agent, AsSendBody, Body, Proxy};

pub(crate) use self::body::{read_body, status_error, time_of};
pub(crate) use self::failure::{Failure, FailureKind, of_reading, was_slow};
pub(crate) use self::patience::{Attempts, back_off, retry_after};
pub(crate) use self::payload::{Part, Payload};
pub(crate) use self::url::{encode, resolve, shown};
pub use self::wire::LeastRate;
use self::wire::Wire;
use crate::program::Program;
use crate::registries_conf::Certificates;
use oci_content::interrupt::Interrupt;
use oci_content::notes;
use rt_sys::err;
use rt_sys::error::Result;

/// A connection is made, and says something, within this time.
const CONNECT: Duration = Duration::from_secs(15);
/// An answer starts within this time, and never pauses for longer.
const IDLE: Duration = Duration::from_secs(40);
/// Hops of a redirect.
const REDIRECTS: usize = 8;
/// The longest that a Retry-After is followed.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How many times a failed request is made again.
pub(crate) const RETRIES: u32 = 6;

/// True for the answers of a server that cannot answer now.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}

/// What an agent is made for; agents keep their connections.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AgentKey {
    /// The proxy's URL.
    proxy: Option<String>,
    /// The registry itself, for which certs.d may have certificates, or a host to which it redirects.
    is_registry: bool,
    https: bool,
}

/// A client of one host, and of those to which it redirects.
pub(crate) struct Http {
    certificates: Certificates,
    insecure: bool,
    agents: Mutex<Vec<(AgentKey, Agent)>>,
    own_host: String,
    retries: u32,
    interrupt: Interrupt,
    least_rate: LeastRate,
    program: Program,
}

/// What is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request<'a> {
    /// GET, HEAD, POST, PATCH or PUT.
    pub method: &'a str,
    /// Where to.
    pub url: &'a str,
    /// Headers but `authorization`.
    pub headers: &'a [(&'a str, &'a str)],
    /// The header `authorization`, which no other host may see.
    pub authorization: Option<&'a str>,
    /// The body.
    pub payload: Payload<'a>,
    /// The time that the body of the answer may take, where it is more than that of a document.
    pub time: Option<Duration>,
}

/// An answer, and whether it is that of the host that was asked: scheme, name and port, at each hop of a redirect.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer.
    pub response: Response<Body>,
    /// False where a redirect led to another host.
    pub same_host: bool,
    /// Where it is from, after redirects.
    pub url: Uri,
}

/// The answer to a request, whose body may take so much time. This time holds within a read as well, which takes in trailers.
fn run(
    agent: &Agent,
    request: ureq::http::Request<impl AsSendBody>,
    time: Duration,
) -> Result<Response<Body>, ureq::Error> {
    agent.run(agent.configure_request(request).timeout_recv_body(Some(time)).build())
}

impl Http {
    /// A client of `host`. `insecure`: certificates are not checked.
    pub(crate) fn new(
        host: &str,
        insecure: bool,
        retries: u32,
        least_rate: LeastRate,
        program: Program,
        interrupt: Interrupt,
    ) -> Result<Http> {
        Ok(Http {
            certificates: Certificates::for_host(host)?,
            insecure,
            agents: Mutex::default(),
            own_host: host.to_owned(),
            retries,
            interrupt,
            least_rate,
            program,
        })
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
                Ok(answer) if !is_busy(answer.response.status()) => return Ok(answer),
                Ok(Answer { response, .. }) => {
                    let wait = retry_after(response.headers());
                    let status = response.status().as_u16();
                    let error = status_error(response).context(url::shown(request.url));
                    let error = match status {
                        429 => error.hint(format!(
                            "too many requests: {} raises the limit at most registries",
                            self.program.login
                        )),
                        _ => error,
                    };
                    (Failure { error, kind: FailureKind::Busy }, wait)
                }
                Err(failure) => (failure, None),
            };
            attempt += 1;
            if attempt > failure.kind.retries(self.retries) {
                return Err(failure);
            }
            let wait = wait.unwrap_or_else(|| back_off(attempt));
            if wait > LONGEST_WAIT {
                let error = failure.error.context(format!("asked to wait {} seconds", wait.as_secs()));
                return Err(Failure { error, ..failure });
            }
            notes::note(&format!("retrying in {:.1} s ({})", wait.as_secs_f32(), failure.error));
            let slept = self.interrupt.sleep(wait);
            slept.map_err(|error| Failure { error, kind: FailureKind::Interrupted })?;
        }
    }

    /// One request, without patience. Redirects are followed here and not by ureq, since the authorization may be sent on
    /// only while scheme, host and port stay the same (RFC 9110, 15.4).
    pub(crate) fn try_once(&self, request: &Request) -> Result<Answer, Failure> {
        let Request { method, headers, mut authorization, payload, time, .. } = *request;
        let time = time.unwrap_or(body::WHOLE);
        let shown = |text: &str| url::shown(text).to_owned();
        let fatal = Failure::of_request;
        let mut url = request.url.to_owned();
        let mut same_host = true;
        for _ in 0..REDIRECTS {
            let uri: Uri = url.parse().map_err(|e| fatal(err!("{:?}: {e}", shown(&url))))?;
            let mut request = ureq::http::Request::builder()
                .method(method)
                .uri(&uri)
                .header("user-agent", self.program.name);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            let agent = self.agent(&uri).map_err(fatal)?;
            for (name, value) in payload.headers() {
                request = request.header(name, value);
            }
            let unsendable = |e| fatal(err!("{}: {e}", shown(&url)));
            let response = payload.with_body(|body| match payload {
                Payload::None => Ok(run(&agent, request.body(()).map_err(unsendable)?, time)),
                _ => Ok(run(&agent, request.body(body).map_err(unsendable)?, time)),
            })?;
            let response = response.map_err(|e| match (proxy::proxy_for(&uri), uri.host()) {
                (None, Some(host)) => Failure::of_host(e, &url, host, &self.program),
                (Some(proxy), _) => Failure::of_connection(e, &url, &self.program).by_proxy(&proxy),
                (None, None) => Failure::of_connection(e, &url, &self.program),
            })?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer { response, same_host, url: uri });
            }
            if !matches!(payload, Payload::None | Payload::Form(_))
                && !matches!(response.status().as_u16(), 307 | 308)
            {
                // After the other ones a client asks by GET, which sends nothing (RFC 9110, 15.4).
                return Err(fatal(err!("{}: redirects without taking what was sent", shown(&url))));
            }
            let location = response.headers().get("location").and_then(|l| l.to_str().ok());
            let location = location.ok_or_else(|| fatal(err!("{}: redirects to nowhere", shown(&url))))?;
            let next = url::resolve(&uri, location);
            let next_uri: Uri = next.parse().map_err(|e| fatal(err!("{:?}: {e}", shown(&next))))?;
            if uri.scheme_str() == Some("https") && next_uri.scheme_str() != Some("https") && !self.insecure {
                return Err(fatal(err!("{}: redirects from https to {}", shown(&url), shown(&next))));
            }
            if (next_uri.authority(), next_uri.scheme()) != (uri.authority(), uri.scheme()) {
                if matches!(payload, Payload::Form(_)) {
                    return Err(fatal(err!("{}: redirects to {}", shown(&url), shown(&next))));
                }
                authorization = None;
                same_host = false;
            }
            url = next;
        }
        Err(fatal(err!("{}: more than {REDIRECTS} redirects", shown(&url))))
    }

    /// The agent for a host. Agents keep their connections, so there are few of them.
    fn agent(&self, uri: &Uri) -> Result<Agent> {
        let authority = uri.authority().map_or("", |a| a.as_str());
        let key = AgentKey {
            proxy: proxy::proxy_for(uri),
            is_registry: authority == self.own_host,
            https: uri.scheme_str() == Some("https"),
        };
        let mut agents = self.agents.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, agent)) = agents.iter().find(|(known, _)| *known == key) {
            return Ok(agent.clone());
        }
        let proxy = key.proxy.as_deref().map(Proxy::new).transpose();
        let proxy = proxy.map_err(|e| err!("proxy named by the environment: {e}"))?;
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
        if key.https {
            config = config.tls_config(match self.insecure {
                true => trust::anybody(),
                false => trust::verified(key.is_registry.then_some(&self.certificates))?,
            });
        }
        let wire = Wire { interrupt: self.interrupt.clone(), least_rate: self.least_rate };
        // The order of ureq's own chain: a proxy's connection comes first, and TLS lies above all of them.
        let connector = ().chain(ConnectProxyConnector::default()).chain(wire.clone());
        let agent = Agent::with_parts(config.build(), connector.chain(RustlsConnector::default()), wire);
        agents.push((key, agent.clone()));
        Ok(agent)
    }
}
