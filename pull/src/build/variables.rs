//! What a build takes of the caller's environment: proxies for RUN, and what flags name.

/// Arguments that need no ARG.
const PROXIES: [&str; 5] = ["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"];

/// True for a variable by which programs find a proxy.
pub(super) fn is_proxy(name: &str) -> bool {
    PROXIES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Those that the caller has.
pub(super) fn proxies() -> Vec<(String, String)> {
    let names = PROXIES.iter().flat_map(|name| [(*name).to_owned(), name.to_lowercase()]);
    names.filter_map(|name| of_caller(&name).map(|value| (name, value))).collect()
}

/// The caller's value of a variable that a flag names.
pub(crate) fn of_caller(name: &str) -> Option<String> {
    rt_sys::caller::variable(name)
}
