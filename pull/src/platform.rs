//! Platforms of an index, and which of them this machine runs best.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use rt_sys::bail;
use rt_sys::error::{Error, Result};

/// A platform as image indexes name it (image-spec, image-index: `platform`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Platform {
    /// Go's name of the operating system.
    #[serde(default)]
    pub os: String,
    /// Go's name of the architecture.
    #[serde(default)]
    pub architecture: String,
    /// The variant: `v7` of arm, `v2` to `v4` of amd64.
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// This machine.
    pub(crate) fn host() -> Platform {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", x86_level()),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "powerpc64" => ("ppc64", None),
            "x86" => ("386", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        Platform {
            os: "linux".into(),
            architecture: architecture.into(),
            variant: variant.map(str::to_owned),
        }
    }

    /// How well an image for `self` suits `wanted`: none where it does not, higher is better.
    pub(crate) fn suits(&self, wanted: &Platform) -> Option<u32> {
        if self.os != wanted.os || self.architecture != wanted.architecture {
            return None;
        }
        let level = |p: &Platform| -> u32 {
            let given = p.variant.as_deref().and_then(|v| v.strip_prefix('v')).and_then(|v| v.parse().ok());
            given.unwrap_or(match p.architecture.as_str() {
                "arm64" => 8,
                "arm" => 6,
                _ => 1,
            })
        };
        let (has, most) = (level(self), level(wanted));
        if has > most { None } else { Some(has) }
    }
}

#[cfg(target_arch = "x86_64")]
fn x86_level() -> Option<&'static str> {
    let v2 = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("popcnt");
    let v3 = v2
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt");
    let v4 = v3
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    Some(match (v2, v3, v4) {
        (_, _, true) => "v4",
        (_, true, _) => "v3",
        (true, ..) => "v2",
        _ => "v1",
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn x86_level() -> Option<&'static str> {
    None
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = Error;

    /// `ARCH`, `OS/ARCH` or `OS/ARCH/VARIANT`; uname's names of architectures are understood too.
    fn from_str(text: &str) -> Result<Platform> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [architecture] => ("linux", architecture, None),
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
            _ => bail!("platform {text:?}: not OS/ARCH or OS/ARCH/VARIANT"),
        };
        if os.is_empty() || architecture.is_empty() {
            bail!("platform {text:?}: not OS/ARCH or OS/ARCH/VARIANT");
        }
        let architecture = match architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Ok(Platform { os: os.into(), architecture: architecture.into(), variant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_variant_that_the_machine_runs() {
        let machine: Platform = "linux/amd64/v3".parse().unwrap();
        let suits = |text: &str| text.parse::<Platform>().unwrap().suits(&machine);
        assert_eq!(suits("linux/amd64"), Some(1));
        assert_eq!(suits("linux/amd64/v2"), Some(2));
        assert_eq!(suits("linux/amd64/v4"), None);
        assert_eq!(suits("linux/arm64"), None);
        assert_eq!(suits("unknown/unknown"), None);
        assert_eq!("x86_64".parse::<Platform>().unwrap().to_string(), "linux/amd64");
    }
}
