//! What a command line says of an image: what stands before its name, and when the registry is asked for it. `rt` and `rt-pull`
//! read both.

use rt_sys::bail;
use rt_sys::error::{Error, Result};
use std::str::FromStr;

/// Where an image is that no registry has. It is on this machine, and can change at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A directory in the layout of the image specification.
    OciLayout,
    /// A tar of such a directory.
    OciArchive,
    /// What `docker save` writes.
    DockerArchive,
    /// The storage of docker.
    Docker,
    /// The storage of podman.
    Podman,
}

impl Transport {
    /// By what stands before the colon.
    const ALL: [(&str, Transport); 7] = [
        ("oci", Transport::OciLayout),
        ("oci-archive", Transport::OciArchive),
        ("docker-archive", Transport::DockerArchive),
        ("docker-daemon", Transport::Docker),
        ("dockerd", Transport::Docker),
        ("podman", Transport::Podman),
        ("containers-storage", Transport::Podman),
    ];

    /// The transport of `image`, and what is behind its colon; none where no transport is before one.
    pub fn split(image: &str) -> Option<(Transport, &str)> {
        let (before, behind) = image.split_once(':')?;
        let (_, transport) = Transport::ALL.into_iter().find(|(name, _)| *name == before)?;
        Some((transport, behind))
    }
}

/// When a registry is asked for an image of which the store has the name (`--pull`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time.
    Always,
    /// If the store does not have it.
    Missing,
    /// Never, also where the store does not have the image.
    Never,
}

impl PullPolicy {
    const ALL: [PullPolicy; 3] = [PullPolicy::Always, PullPolicy::Missing, PullPolicy::Never];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            PullPolicy::Always => "always",
            PullPolicy::Missing => "missing",
            PullPolicy::Never => "never",
        }
    }
}

impl FromStr for PullPolicy {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match PullPolicy::ALL.into_iter().find(|policy| policy.word() == word) {
            Some(policy) => Ok(policy),
            None => bail!("--pull {word}: use always, missing or never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_stand_before_a_colon() {
        assert_eq!(Transport::split("oci-archive:x.tar:v1"), Some((Transport::OciArchive, "x.tar:v1")));
        assert_eq!(Transport::split("dockerd://a:1"), Some((Transport::Docker, "//a:1")));
        for name in ["docker://x", "oci/x", "oci", "debian:12", "host:5000/oci:1"] {
            assert_eq!(Transport::split(name), None, "{name}");
        }
    }

    #[test]
    fn policies_are_words() {
        for policy in PullPolicy::ALL {
            assert_eq!(policy.word().parse::<PullPolicy>().ok(), Some(policy));
        }
        assert!("sometimes".parse::<PullPolicy>().is_err());
    }
}
