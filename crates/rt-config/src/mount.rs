//! A mount of the configuration.

use crate::expand::{Lookup, expand};
use rt_spec::mounts;
use rt_sys::bail;
use rt_sys::error::Result;
use std::path::Path;

/// The word among the options of a mount that is left out where its source is missing.
const OPTIONAL: &str = "optional";

/// Words of podman for labels, ownership and overlays, which have no meaning here.
const OF_PODMAN: [&str; 5] = ["", "z", "Z", "U", "O"];

/// A directory or file of the host, bound in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its path on the host.
    pub source: String,
    /// Its path in the container.
    pub target: String,
    /// Mount options, as in config.json.
    pub options: Vec<String>,
    /// It is left out where the source is missing.
    pub optional: bool,
}

impl Mount {
    /// Checks the parts of a mount. An empty target is the path of the source. `None` for an optional mount with a
    /// variable in its paths that is not set.
    pub(crate) fn new(
        source: &str,
        target: &str,
        options: impl IntoIterator<Item = String>,
        optional: bool,
        variable: Lookup<'_>,
    ) -> Result<Option<Mount>> {
        let mut options: Vec<String> = options.into_iter().collect();
        let before = options.len();
        options.retain(|word| word != OPTIONAL);
        let optional = optional || options.len() < before;
        options.retain(|word| !OF_PODMAN.contains(&word.as_str()));
        for word in &options {
            mounts::check_option(word)?;
        }
        let target = if target.is_empty() { source } else { target };
        let (source, target) = match (expand(source, variable), expand(target, variable)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(_), _) | (_, Err(_)) if optional => return Ok(None),
            (Err(e), _) | (_, Err(e)) => return Err(e),
        };
        for (what, path) in [("source", &source), ("target", &target)] {
            if !Path::new(path).is_absolute() {
                bail!("{what} {path:?} is not an absolute path");
            }
        }
        Ok(Some(Mount { source, target, options, optional }))
    }

    /// Reads `SOURCE[:TARGET[:OPTIONS]]`, options separated by commas.
    pub(crate) fn parse(text: &str, variable: Lookup<'_>) -> Result<Option<Mount>> {
        let mut parts = text.splitn(3, ':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().unwrap_or_default();
        let options = parts.next().unwrap_or_default().split(',').map(str::to_owned);
        Mount::new(source, target, options, false, variable).map_err(|e| e.context(format!("mount {text:?}")))
    }
}

impl std::fmt::Display for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source, self.target)?;
        let words = self.options.iter().map(String::as_str).chain(self.optional.then_some(OPTIONAL));
        let words: Vec<&str> = words.collect();
        if words.is_empty() { Ok(()) } else { write!(f, ":{}", words.join(",")) }
    }
}
