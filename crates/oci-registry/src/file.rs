//! A file of a web server, which is no registry: by http or https, through the caller's proxies, without credentials.

use std::io::Read;
use std::time::{Duration, SystemTime};

use oci_content::interrupt::Interrupt;
use rt_sys::error::Result;

use crate::http::{self, Http, LeastRate, Request};
use crate::program::Program;

/// How long a file may take, whose size nobody knows before.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Gives the bytes of the file at `url`, in their order, to `sink`, and returns when it was last changed, where the server says it.
///
/// # Errors
/// The server does not give the whole file within a day, or `sink` fails.
pub fn fetch(
    url: &str,
    program: Program,
    interrupt: &Interrupt,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<SystemTime>> {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let http = Http::new(host, false, http::RETRIES, LeastRate::default(), program, interrupt.clone())?;
    let request = Request { method: "GET", url, time: Some(LONGEST), ..Request::default() };
    let response = http.send(&request).map_err(|failure| failure.error)?.response;
    if !response.status().is_success() {
        return Err(http::status_error(response));
    }
    let modified = response.headers().get("last-modified").and_then(|value| value.to_str().ok());
    let modified = modified.and_then(rt_sys::time::parse_http_date);
    let mut reader = response.into_body().into_reader();
    let mut buffer = vec![0; 128 << 10];
    loop {
        interrupt.check()?;
        match reader.read(&mut buffer).map_err(|e| http::of_reading(e, &program))? {
            0 => return Ok(modified),
            n => sink(&buffer[..n])?,
        }
    }
}
