//! Why a request has no answer, told by the types of ureq and rustls.

use rustls::{AlertDescription, Error as TlsError};
use ureq::{Error as HttpError, Timeout};

use super::url;
use super::wire::{self, Ended};
use crate::program::Program;
use oci_content::interrupt::interrupted;
use rt_sys::err;
use rt_sys::error::Error;
use rt_sys::net::Lookup;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to tell.
    pub error: Error,
    /// What to do about it.
    pub kind: FailureKind,
}

/// What a [`Failure`] is to the code that decides whether the request is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The server answered that it cannot answer now (429, 500, 502, 503, 504).
    Busy,
    /// A connection broke, or the server was silent for too long.
    Broken,
    /// The name service knows no such host.
    NoSuchHost,
    /// The host takes no connections, or no name service answers.
    Unreachable,
    /// The server's certificate is not one that is trusted for its name.
    Certificate,
    /// The server takes no client without a certificate that it trusts.
    ClientCertificate,
    /// What the server sends is not TLS.
    NoTls,
    /// TLS cannot be agreed upon for another reason.
    Tls,
    /// The request cannot be made, or its redirects may not be followed.
    Request,
    /// The server was slower than the least rate.
    Slow,
    /// The user asked to stop.
    Interrupted,
}

impl FailureKind {
    /// How many times the request may be made again where `retries` are allowed for what may pass.
    pub(super) fn retries(self, retries: u32) -> u32 {
        match self {
            FailureKind::Busy | FailureKind::Broken => retries,
            // It mostly stays so.
            FailureKind::Unreachable | FailureKind::Slow => retries.min(2),
            _ => 0,
        }
    }

    fn of(error: &HttpError) -> FailureKind {
        if let Some(tls) = tls_error(error) {
            return match tls {
                TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented => {
                    FailureKind::Certificate
                }
                TlsError::AlertReceived(alert) if is_about_our_certificate(*alert) => {
                    FailureKind::ClientCertificate
                }
                // What HTTP answers to the first message of TLS is no message of TLS.
                TlsError::InvalidMessage(_) => FailureKind::NoTls,
                _ => FailureKind::Tls,
            };
        }
        if let HttpError::Io(io) = error
            && let Some(ended) = wire::ended(io)
        {
            return match ended {
                Ended::Interrupted => FailureKind::Interrupted,
                Ended::Slow(_) => FailureKind::Slow,
            };
        }
        match error {
            HttpError::ConnectionFailed | HttpError::ConnectProxyFailed(_) => FailureKind::Unreachable,
            HttpError::HostNotFound => FailureKind::NoSuchHost,
            HttpError::Timeout(Timeout::Connect | Timeout::Resolve) => FailureKind::Unreachable,
            HttpError::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => FailureKind::Unreachable,
            HttpError::Tls(_) | HttpError::Pem(_) => FailureKind::Tls,
            HttpError::BadUri(_)
            | HttpError::Http(_)
            | HttpError::InvalidProxyUrl
            | HttpError::TlsRequired => FailureKind::Request,
            _ => FailureKind::Broken,
        }
    }

    fn remedy(self, program: &Program) -> Option<String> {
        match self {
            FailureKind::Certificate => Some(format!(
                "put the registry's CA into ~/.config/containers/certs.d/HOST/ca.crt, or {}",
                program.insecure
            )),
            FailureKind::ClientCertificate => Some(
                "put a client certificate into ~/.config/containers/certs.d/HOST/client.cert and client.key"
                    .to_owned(),
            ),
            FailureKind::NoSuchHost => Some(program.no_such_host.to_owned()),
            FailureKind::NoTls => Some(format!("does it speak HTTP only? then {}", program.plain_http)),
            _ => None,
        }
    }
}

impl Failure {
    /// No retry and no other server helps.
    pub(crate) fn of_request(error: Error) -> Failure {
        Failure { error, kind: FailureKind::Request }
    }

    /// What ureq says about the request to `url`, where the connection was to `host` itself. ureq tells what the name service says by a text alone, so the
    /// service is asked again: a name that does not exist will not exist in a second either.
    pub(super) fn of_host(e: HttpError, url: &str, host: &str, program: &Program) -> Failure {
        let from_system = matches!(&e, HttpError::Io(io) if io.raw_os_error().is_some());
        let failure = Failure::of_connection(e, url, program);
        if failure.kind != FailureKind::Broken || from_system {
            return failure;
        }
        match rt_sys::net::look_up(host) {
            Lookup::Found => failure,
            Lookup::NoSuchName => Failure::of_connection(HttpError::HostNotFound, url, program),
            Lookup::NoAnswer => {
                let error = err!("no name service answers").context(url::shown(url));
                Failure { error, kind: FailureKind::Unreachable }
            }
        }
    }

    /// The failure of a request that went to `proxy`, the URL of one that the environment names: with a proxy, nobody sees from
    /// the registry's name who has refused.
    pub(super) fn by_proxy(self, proxy: &str) -> Failure {
        if self.kind == FailureKind::Interrupted {
            return self;
        }
        let host = proxy.rsplit_once('@').map_or(proxy, |(_, host)| host);
        let error = self.error.hint(format!("asked through the proxy {host}, which the environment names"));
        Failure { error, ..self }
    }

    /// What ureq says about the request to `url`.
    pub(super) fn of_connection(e: HttpError, url: &str, program: &Program) -> Failure {
        let kind = FailureKind::of(&e);
        if kind == FailureKind::Interrupted {
            return Failure { error: interrupted(), kind };
        }
        let error = match e {
            HttpError::Io(io) => of_reading(io, program),
            HttpError::HostNotFound => err!("no such host"),
            other => err!("{other}"),
        };
        let error = error.context(url::shown(url));
        Failure { error: kind.remedy(program).into_iter().fold(error, Error::hint), kind }
    }
}

/// What the body of an answer says when it cannot be read.
pub(crate) fn of_reading(error: std::io::Error, program: &Program) -> Error {
    match wire::ended(&error) {
        Some(Ended::Interrupted) => interrupted(),
        Some(slow) => err!("{slow}").hint(program.least_rate),
        None if is_late(&error) => err!("the answer has not ended in time"),
        None => Error::from(error),
    }
}

/// True where reading the body of an answer ended because the server was too slow.
pub(crate) fn was_slow(error: &std::io::Error) -> bool {
    is_late(error) || matches!(wire::ended(error), Some(Ended::Slow(_)))
}

/// True where the body of an answer has taken more than its time.
fn is_late(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|e| e.downcast_ref());
    matches!(error, Some(HttpError::Timeout(Timeout::RecvBody)))
}

/// The error of rustls behind that of ureq. One that arises while rustls reads or writes comes wrapped in an I/O error.
fn tls_error(error: &HttpError) -> Option<&TlsError> {
    match error {
        HttpError::Rustls(tls) => Some(tls),
        HttpError::Io(e) => e.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// RFC 8446, 6.2: the alerts that a server sends because of the client's certificate, or because there is none.
fn is_about_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CertificateError, InvalidMessage};
    use std::io;

    fn failure(e: HttpError) -> (FailureKind, String) {
        let failure = Failure::of_connection(e, "https://r.example/v2/?signature", &Program::ANY);
        (failure.kind, failure.error.to_string())
    }

    #[test]
    fn errors_of_tls_are_told_by_their_type() {
        let unknown_issuer = || TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        for (tls, kind, word) in [
            (unknown_issuer(), FailureKind::Certificate, "ca.crt"),
            (TlsError::NoCertificatesPresented, FailureKind::Certificate, "ca.crt"),
            (
                TlsError::AlertReceived(AlertDescription::CertificateRequired),
                FailureKind::ClientCertificate,
                "client.key",
            ),
            (
                TlsError::AlertReceived(AlertDescription::UnknownCA),
                FailureKind::ClientCertificate,
                "client.key",
            ),
            (TlsError::AlertReceived(AlertDescription::HandshakeFailure), FailureKind::Tls, ""),
            (
                TlsError::InvalidMessage(InvalidMessage::InvalidContentType),
                FailureKind::NoTls,
                "insecure = true for it in registries.conf",
            ),
            (TlsError::HandshakeNotComplete, FailureKind::Tls, ""),
        ] {
            // As rustls gives it, and as it comes through a read.
            let read = HttpError::Io(io::Error::new(io::ErrorKind::InvalidData, tls.clone()));
            for e in [HttpError::Rustls(tls), read] {
                let (found, text) = failure(e);
                assert_eq!(found, kind, "{text}");
                assert!(text.contains(word) && !text.contains("signature"), "{text}");
                assert_eq!(kind.retries(6), 0, "it does not get better");
            }
        }
    }

    #[test]
    fn texts_decide_nothing() {
        let (kind, text) =
            failure(HttpError::Io(io::Error::other("certificate CertificateRequired UnknownIssuer")));
        assert_eq!(kind, FailureKind::Broken);
        assert!(!text.contains("certs.d"), "{text}");
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let refused = HttpError::Io(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        for (e, kind, retries) in [
            (HttpError::HostNotFound, FailureKind::NoSuchHost, 0),
            (refused, FailureKind::Unreachable, 2),
            (HttpError::Timeout(Timeout::Connect), FailureKind::Unreachable, 2),
            (HttpError::Timeout(Timeout::RecvResponse), FailureKind::Broken, 6),
            (HttpError::Io(io::ErrorKind::UnexpectedEof.into()), FailureKind::Broken, 6),
            (HttpError::BadUri("x".into()), FailureKind::Request, 0),
        ] {
            let (found, text) = failure(e);
            assert_eq!((found, found.retries(6)), (kind, retries), "{text}");
        }
    }
}
