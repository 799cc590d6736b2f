//! What a client does with the text of a URL. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::Uri;

/// `location` as a browser on `base` reads it (RFC 3986, 5.2, without dot segments).
pub(crate) fn resolve(base: &Uri, location: &str) -> String {
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

/// A URL without its query, which may hold a signature.
pub(crate) fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// What is escaped in a query or form: all but the unreserved characters (RFC 3986, 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as a part of a query or form.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
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
    fn queries() {
        assert_eq!(encode("repository:a/b:pull"), "repository%3Aa%2Fb%3Apull");
    }
}
