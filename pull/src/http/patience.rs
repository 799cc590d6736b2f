//! How long to wait before a request is made again.

use std::time::{Duration, SystemTime};

use rt_sys::time::parse_http_date;
use ureq::http::HeaderMap;

/// How long the server asks to wait. RFC 9110, 10.2.3: seconds or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_http_date(text)?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    // All nodes of a job were told the same: spread them.
    Some(wait + jitter(Duration::from_millis(500 + 250 * wait.as_secs().min(20))))
}

/// How long to wait after so many failures.
pub(crate) fn back_off(attempt: u32) -> Duration {
    let most = Duration::from_millis(400) * 2u32.pow(attempt.min(6));
    most / 2 + jitter(most / 2)
}

fn jitter(most: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish() % 1000;
    most * random as u32 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_differ() {
        assert!(back_off(1) < Duration::from_secs(1));
        assert!(back_off(6) >= Duration::from_secs(12));
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        assert!((3..=5).contains(&retry_after(&headers).unwrap().as_secs()));
    }

    #[test]
    fn dates_that_have_passed_are_not_waited_for() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert!(retry_after(&headers).unwrap() < Duration::from_secs(1));
        headers.insert("retry-after", "soon".parse().unwrap());
        assert_eq!(retry_after(&headers), None);
    }
}
