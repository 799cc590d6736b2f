//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use super::manifest;
use super::reference::Source;

/// What parses as a name of an image is one, whatever its transport.
pub fn source(text: &str) {
    let _ = text.parse::<Source>();
}

/// No document makes the parsers panic.
pub fn manifest(bytes: &[u8]) {
    if let Ok(manifest::Document::Manifest(manifest)) = manifest::parse(bytes) {
        let _ = manifest.check();
    }
    let _ = manifest::parse_config(bytes);
}

#[cfg(test)]
mod tests {
    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        super::source("docker-archive:x.tar:debian:12");
        super::manifest(b"{}");
    }
}
