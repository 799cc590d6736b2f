//! The commands of `rt-pull`, one file each.

pub mod cache;
pub mod inspect;
pub mod login;
pub mod pull;
pub mod save;

use super::cache::Cache;
use super::cli::Call;
use super::credentials::{Credentials, Places};
use super::lease;
use super::registry::Access;
use crate::err;
use crate::error::Result;
use std::path::PathBuf;

/// What the options say about the registry.
fn access(call: &Call) -> Result<Access> {
    let credentials = match call.value("creds") {
        Some(pair) => Some(Credentials::from_pair(pair).ok_or_else(|| err!("--creds: not USER:PASSWORD"))?),
        None => None,
    };
    let mut places = Places::from_environment();
    if let Some(path) = call.value("authfile") {
        places.docker.insert(0, PathBuf::from(path));
    }
    Ok(Access {
        credentials,
        places,
        insecure: call.has("insecure"),
        plain_http: call.has("plain-http"),
        retries: call.number("retries")?.map(|n| n.min(100) as u32),
    })
}

/// A cache that is removed with the command: `--no-cache`, or no place for a lasting one.
struct Scratch(Option<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// The cache that the options ask for; `scratch` is where one for this call alone would be.
fn cache(call: &Call, scratch: Option<PathBuf>) -> Result<(Cache, Scratch)> {
    if call.has("no-cache") {
        let path =
            scratch.unwrap_or_else(|| std::env::temp_dir().join(format!("rt-pull-{}", lease::unique())));
        return Ok((Cache::open(path.clone())?, Scratch(Some(path))));
    }
    let root = call.value("cache").map_or_else(Cache::default_root, PathBuf::from);
    Ok((Cache::open(root)?, Scratch(None)))
}
