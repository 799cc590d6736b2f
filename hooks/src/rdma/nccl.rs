//! Which transport NCCL will have. NCCL speaks verbs itself; to other fabrics it goes by a plug-in that it loads by name, such
//! as aws-ofi-nccl, and where there is none it takes TCP without a word.
//!
//! Only files by their names are looked for, in the directories that the loader searches.

use super::discover::Fabric;
use crate::kit::bundle::Bundle;
use crate::kit::edits::Edits;
use crate::kit::fit::Fit;
use std::path::PathBuf;

/// The library by which a container shows that it has NCCL.
const NCCL: &str = "libnccl.so.2";
/// What NCCL loads where no variable names a plug-in.
const PLUGIN: &str = "libnccl-net.so";
/// Plug-ins for libfabric under names that NCCL loads only where it is asked to, with the word that asks.
const KIN: [(&str, &str); 3] = [
    ("libnccl-net-ofi.so", "ofi"),
    ("libnccl-net-aws-ofi.so", "aws-ofi"),
    ("libnccl-net-libfabric.so", "libfabric"),
];
/// Libraries of the GPU's driver, which the GPU hook brings.
const OF_THE_DRIVER: [&str; 2] = ["libcuda.so", "libnvidia-"];

/// True where the container has NCCL, as far as its loader and its variables show. Python's packages have one that no loader
/// knows of.
pub(super) fn is_there(bundle: &Bundle, fit: &Fit) -> bool {
    let said = ["NCCL_VERSION", "NCCL_NET", "NCCL_NET_PLUGIN"].iter().any(|name| bundle.job(name).is_some());
    said || fit.container.find_with(NCCL, fit.flags, &directories(bundle)).is_some()
}

/// How NCCL will reach other nodes over one of the fabrics that the container can `use`, with what `edits` brings; as an error,
/// why it will use TCP.
pub(super) fn transport(
    bundle: &Bundle,
    used: &[Fabric],
    edits: &Edits,
    fit: &Fit,
) -> Result<String, String> {
    match bundle.job("NCCL_NET") {
        Some(net) if net.eq_ignore_ascii_case("socket") => return Err("NCCL_NET=Socket asks for that".into()),
        _ => {}
    }
    let no_verbs = bundle.job("NCCL_IB_DISABLE").is_some_and(|off| !matches!(off.trim(), "" | "0"));
    if used.contains(&Fabric::Verbs) && !no_verbs {
        return Ok("verbs".into());
    }
    if used.iter().all(|fabric| *fabric == Fabric::Verbs) {
        return Err(match used {
            [] => "the container can use no fabric".into(),
            _ => "NCCL_IB_DISABLE is set".into(),
        });
    }
    let dirs = directories(bundle);
    let find = |name: &str| fit.container.find_with(name, fit.flags, &dirs);
    let path = match bundle.job("NCCL_NET_PLUGIN").map(str::trim).filter(|word| !word.is_empty()) {
        Some("none") => return Err("NCCL_NET_PLUGIN=none".into()),
        Some(word) => [format!("libnccl-net-{word}.so"), word.to_owned()]
            .iter()
            .find_map(|name| find(name))
            .ok_or_else(|| format!("the container has no plug-in of NCCL's by NCCL_NET_PLUGIN={word}"))?,
        None => find(PLUGIN).ok_or_else(|| match KIN.iter().find(|(name, _)| find(name).is_some()) {
            Some((name, word)) => format!("{name} is loaded only with NCCL_NET_PLUGIN={word}"),
            None => format!("the container has no {PLUGIN}, such as aws-ofi-nccl's"),
        })?,
    };
    let elf = fit.container.elf(&path).ok_or_else(|| format!("{}: no library", path.display()))?;
    let is_there = |name: &String| {
        OF_THE_DRIVER.iter().any(|driver| name.starts_with(driver))
            || edits.libraries.iter().any(|library| library.name == *name)
            || find(name).is_some()
    };
    match elf.needed.iter().find(|name| !is_there(name)) {
        Some(missing) => Err(format!("{} needs {missing}, which is not there", path.display())),
        None => Ok(format!("{}", path.display())),
    }
}

/// Where the loader looks first.
fn directories(bundle: &Bundle) -> Vec<PathBuf> {
    /// No honest list is longer.
    const MOST: usize = 64;
    let list = bundle.env("LD_LIBRARY_PATH").unwrap_or_default();
    list.split(':').filter(|dir| dir.starts_with('/')).take(MOST).map(PathBuf::from).collect()
}
