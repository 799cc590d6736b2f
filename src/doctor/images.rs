//! What pulling images needs: rt-pull, proxies that can be understood, certificates.

use super::{Check, program};

pub(super) fn checks() -> Vec<Check> {
    let mut all = vec![match program("rt-pull") {
        Some(path) => Check::ok("rt-pull", path.display().to_string()),
        None => Check::note("rt-pull", "neither beside rt nor in PATH: rt pull does not work")
            .remedy("make install installs it beside rt"),
    }];
    all.extend(certificates());
    all.extend(proxies());
    all
}

/// Certificates of authorities that the environment names. Without any, rt-pull has a list of its own.
fn certificates() -> Option<Check> {
    const NAME: &str = "certificates";
    let path = std::env::var("SSL_CERT_FILE").ok().filter(|path| !path.is_empty())?;
    Some(match std::fs::read(&path) {
        Ok(text) if text.windows(11).any(|window| window == b"-----BEGIN ") => {
            Check::ok(NAME, format!("SSL_CERT_FILE names {path}"))
        }
        Ok(_) => Check::note(NAME, format!("SSL_CERT_FILE names {path}, which has no certificate (PEM)"))
            .remedy("name another file, or unset SSL_CERT_FILE"),
        Err(e) => Check::note(NAME, format!("SSL_CERT_FILE names {path}: {}", rt_sys::error::Error::from(e)))
            .remedy("name another file, or unset SSL_CERT_FILE"),
    })
}

fn proxies() -> Vec<Check> {
    let names = ["https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"];
    let set = names
        .iter()
        .filter_map(|name| Some((name, std::env::var(name).ok().filter(|value| !value.is_empty())?)));
    let check = |(name, value): (&&str, String)| match wrong_with(&value) {
        None => Check::ok("proxy", format!("{name}={}", without_password(&value))),
        Some(why) => Check::note("proxy", format!("{name}={}: {why}", without_password(&value)))
            .remedy("a proxy is http://HOST:PORT"),
    };
    set.map(check).collect()
}

fn wrong_with(value: &str) -> Option<&'static str> {
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let known = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    if !known.contains(&scheme) {
        return Some("its scheme is unknown");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Some("it names no host");
    }
    (port.is_some_and(|port| port.parse::<u16>().is_err())).then_some("its port is no number")
}

fn without_password(value: &str) -> String {
    match value.rsplit_once('@') {
        Some((before, host)) => {
            let scheme =
                before.split_once("://").map(|(scheme, _)| format!("{scheme}://")).unwrap_or_default();
            format!("{scheme}...@{host}")
        }
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_understood() {
        for good in
            ["http://proxy:3128", "proxy:3128", "http://u:p@proxy.site:80/", "socks5h://h", "http://[::1]:80"]
        {
            assert_eq!(wrong_with(good), None, "{good}");
        }
        for bad in ["ftp://proxy", "http://", "http://proxy:port", "http://:80", "a b"] {
            assert!(wrong_with(bad).is_some(), "{bad}");
        }
        assert_eq!(without_password("http://u:p@h:1"), "http://...@h:1");
    }
}
