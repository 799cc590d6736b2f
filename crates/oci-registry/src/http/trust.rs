//! Whom TLS trusts: the system's certificate authorities, and what certs.d has for the registry.

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};

use crate::registries_conf::{Certificates, certificate};
use rt_sys::error::Result;
use rt_sys::{err, look};
use std::path::Path;

/// Where distributions keep the CAs, the usual first.
const CA_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Everybody whom the system trusts and, with `registry`, whom certs.d names; then also the caller's own certificate.
pub(super) fn verified(registry: Option<&Certificates>) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder();
    let mut roots = system_roots()?;
    if let Some(registry) = registry {
        for pem in &registry.authorities {
            roots.extend(certificates(pem));
        }
        if let Some((chain, key)) = &registry.client {
            let chain: Vec<_> = certificates(chain).collect();
            let key = PrivateKey::from_pem(key).map_err(|e| err!("client key in certs.d: {e}"))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
    }
    let roots = if roots.is_empty() { RootCerts::WebPki } else { RootCerts::new_with_certs(&roots) };
    Ok(tls.root_certs(roots).build())
}

/// Whoever answers.
pub(super) fn anybody() -> TlsConfig {
    TlsConfig::builder().disable_verification(true).build()
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = Certificate<'static>> {
    ureq::tls::parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    })
}

/// The system's CAs; none where it has none, and then Mozilla's list in the program is used.
fn system_roots() -> Result<Vec<Certificate<'static>>> {
    let named = std::env::var("SSL_CERT_FILE").ok().filter(|f| !f.is_empty());
    let files = named.iter().map(String::as_str).chain(CA_FILES);
    let mut text = Vec::new();
    for path in files {
        if let Some(found) = certificate(Path::new(path))? {
            text = found;
            break;
        }
    }
    if let Some(dir) = std::env::var_os("SSL_CERT_DIR").filter(|d| !d.is_empty()) {
        for path in look::entries(dir)? {
            text.extend(certificate(&path)?.unwrap_or_default());
        }
    }
    Ok(certificates(&text).collect())
}
