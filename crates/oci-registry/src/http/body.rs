//! Bodies of answers that are small enough to be held, and what a registry says in them about an error.

use std::io::Read;
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::Response;

use super::wire::LeastRate;
use crate::program::Program;
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err};

/// A body that is held in memory has come within this time. Each read has a time of its own, and a server that sends a byte in
/// each, or trailers without end, would keep its client for days.
pub(super) const WHOLE: Duration = Duration::from_secs(40);

/// The longest time for any body.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a body of `size` bytes may take at the least rate. It bounds what is no part of the body and comes with it, too: the
/// rate counts the bytes of the connection.
pub(crate) fn time_of(size: u64, least: LeastRate) -> Duration {
    let at_least_rate = size.checked_div(least.bytes).map_or(LONGEST, Duration::from_secs);
    (WHOLE.saturating_add(least.over)).saturating_add(at_least_rate).min(LONGEST)
}

/// A body, up to `limit` bytes.
pub(crate) fn read_body(response: Response<Body>, limit: u64, program: &Program) -> Result<Vec<u8>> {
    let start = Instant::now();
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(limit + 1);
    let mut piece = vec![0; 16 << 10];
    loop {
        match reader.read(&mut piece).map_err(|e| super::of_reading(e, program))? {
            0 => break,
            n => bytes.extend_from_slice(&piece[..n]),
        }
        // The request may have been for a blob, which has more time than an error.
        if start.elapsed() > WHOLE {
            bail!("the answer has not ended after {} seconds", WHOLE.as_secs());
        }
    }
    if bytes.len() as u64 > limit {
        bail!("the answer is longer than {limit} bytes");
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
    let body = read_body(response, 64 << 10, &Program::ANY).unwrap_or_default();
    let message = serde_json::from_slice::<Body>(&body).ok().and_then(|body| {
        let first = body.errors.into_iter().next().map(|one| match one.message.is_empty() {
            true => one.code,
            false => one.message,
        });
        first.or(body.details)
    });
    match message {
        // A hostile registry shall not paint the user's terminal.
        Some(message) => err!(
            "{} ({})",
            message.chars().filter(|c| !c.is_control()).take(300).collect::<String>(),
            status.as_u16()
        ),
        None => err!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_time_of_the_least_rate() {
        let least = LeastRate { bytes: 1000, over: Duration::from_secs(60) };
        assert_eq!(time_of(0, least), Duration::from_secs(100));
        assert_eq!(time_of(5_000_000, least), Duration::from_secs(5100));
        assert_eq!(time_of(u64::MAX, LeastRate { bytes: 1, over: Duration::MAX }), LONGEST);
        assert_eq!(time_of(1, LeastRate { bytes: 0, ..least }), LONGEST);
    }
}
