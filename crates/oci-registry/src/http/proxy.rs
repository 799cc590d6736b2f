//! The proxy that the environment names for a host, by the rules of curl.

use ureq::http::Uri;

/// The proxy that the environment names for a URL, as curl reads it.
pub(super) fn proxy_for(uri: &Uri) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_no_proxy() {
        assert!(exempt("localhost,.site", "r.site"));
        assert!(exempt("site", "r.site"));
        assert!(exempt("10.0.0.1:5000", "10.0.0.1"));
        assert!(exempt("*", "x"));
        assert!(!exempt("site", "website"));
        assert!(!exempt("", "x"));
    }
}
