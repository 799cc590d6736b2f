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

/// The bytes of a blob that count as progress over several attempts; a sixteenth of a smaller one does.
const PROGRESS: u64 = 1 << 20;

/// Attempts at a blob, each of which goes on where the one before has got to. What comes a byte an attempt does not count.
pub(crate) struct Attempts {
    /// How far it was when there was progress last.
    from: u64,
    /// How much is progress.
    least: u64,
    fruitless: u32,
}

impl Attempts {
    /// For a blob of `size` bytes of which `at` are there.
    pub(crate) fn new(size: u64, at: u64) -> Attempts {
        Attempts { from: at, least: (size / 16).clamp(1, PROGRESS), fruitless: 0 }
    }

    /// Another attempt has failed with `at` bytes there. Returns how many were without progress, this one included. One that was
    /// `slow` counts among them, whatever came in it.
    pub(crate) fn failed(&mut self, at: u64, slow: bool) -> u32 {
        let progress = at >= self.from.saturating_add(self.least);
        if progress {
            self.from = at;
        }
        self.fruitless = if progress && !slow { 0 } else { self.fruitless + 1 };
        self.fruitless
    }

    /// All of it is to be sent once more. Attempts without progress stay counted.
    pub(crate) fn again(&mut self) {
        self.from = 0;
    }
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
    fn a_byte_an_attempt_is_no_progress() {
        let mut attempts = Attempts::new(1 << 30, 0);
        let counted: Vec<u32> = (1..=3).map(|n| attempts.failed(n, false)).collect();
        assert_eq!(counted, [1, 2, 3]);
        assert_eq!((attempts.failed(1 << 20, false), attempts.failed(1 << 20, false)), (0, 1));
        // Less in each attempt, and enough in several.
        assert_eq!((attempts.failed(3 << 19, false), attempts.failed(4 << 19, false)), (2, 0));
        let mut small = Attempts::new(160, 0);
        assert_eq!((small.failed(9, false), small.failed(10, false), small.failed(20, false)), (1, 0, 0));
        assert_eq!(Attempts::new(0, 0).failed(u64::MAX, false), 0);
    }

    #[test]
    fn a_slow_attempt_is_fruitless_whatever_came() {
        let mut attempts = Attempts::new(1 << 30, 0);
        assert_eq!((attempts.failed(1 << 24, true), attempts.failed(1 << 25, true)), (1, 2));
        // What came slowly is no progress of the next one.
        assert_eq!((attempts.failed(1 << 25, false), attempts.failed(1 << 26, false)), (3, 0));
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
