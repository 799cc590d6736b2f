//! CUDA forward compatibility: an image may bring a libcuda that is newer than the driver's, and works with it.
//!
//! Such libraries are in /usr/local/cuda/compat. Newer ones have an ELF note that names their CUDA version and the driver
//! branches on which they run. Of others, the branch in the file's name must be newer than the driver's.

use super::driver::Driver;
use super::parts;
use crate::kit::edits::{Edits, Library};
use crate::kit::tree::Tree;
use ld_so_cache::elf::Elf;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const DIR: &str = "/usr/local/cuda/compat";
const OWNER: &str = "NVIDIA Corporation";

/// The note's description, which is JSON.
#[derive(Debug, Default, Deserialize)]
struct CompatNote {
    #[serde(rename = "CUDA Version")]
    cuda: String,
    #[serde(default, rename = "Driver")]
    branches: Vec<u32>,
}

/// Makes the container's own compatibility libraries come before the injected ones, where they fit.
pub(crate) fn prefer(edits: &mut Edits, driver: &Driver, container: &Tree) {
    let names = container.list(DIR);
    let libcuda: Vec<&String> = names.iter().filter(|name| versioned_libcuda(name).is_some()).collect();
    let [libcuda] = libcuda[..] else { return };
    let path = Path::new(DIR).join(libcuda);
    let Some(file) = container.file(&path) else { return };
    let Ok(elf) = Elf::read(&file) else {
        edits.note(format!("{}: not a library, so the driver's libcuda is used", path.display()));
        return;
    };
    let notes = elf.notes(&file).unwrap_or_default();
    let note = notes.iter().find(|n| n.owner == OWNER);
    let note: Option<CompatNote> = note.and_then(|n| serde_json::from_slice(trimmed(&n.description)).ok());
    let branch = versioned_libcuda(libcuda).unwrap_or(0);
    match fits(note.as_ref(), branch, driver) {
        Ok(why) => edits.note(format!("{}: {why}, so it is used rather than the driver's", path.display())),
        Err(why) => {
            edits.note(format!("{}: {why}, so the driver's libcuda is used", path.display()));
            return;
        }
    }
    let Some(flags) = elf.cache_flags() else { return };
    // All libraries of the directory belong together, and ldconfig would enter all of them.
    let libraries: Vec<Library> = names
        .iter()
        .filter(|name| name.starts_with("lib") && name.contains(".so"))
        .map(|name| Library { name: name.clone(), path: PathBuf::from(DIR).join(name), flags })
        .collect();
    let replaced = |l: &Library| libraries.iter().any(|new| new.name == l.name && new.flags == l.flags);
    edits.libraries.retain(|l| !replaced(l));
    edits.libraries.splice(0..0, libraries);
}

/// Why the libraries are to be used; as an error, why they are not.
fn fits(note: Option<&CompatNote>, branch: u32, driver: &Driver) -> Result<String, String> {
    let Some(note) = note else {
        return match branch > driver.branch() {
            true => Ok(format!("branch {branch} is newer than the driver's")),
            false => Err(format!("branch {branch} is no newer than the driver's")),
        };
    };
    let host = parts::cuda_version(driver);
    if !newer(&note.cuda, host) {
        return Err(format!("CUDA {} is no newer than the driver's {host}", note.cuda));
    }
    if !note.branches.is_empty() && !note.branches.contains(&driver.branch()) {
        return Err(format!("CUDA {} does not run on driver branch {}", note.cuda, driver.branch()));
    }
    Ok(format!("CUDA {} is newer than the driver's {host}", note.cuda))
}

/// The branch in `libcuda.so.550.54.14`.
fn versioned_libcuda(name: &str) -> Option<u32> {
    let (branch, rest) = name.strip_prefix("libcuda.so.")?.split_once('.')?;
    (!rest.is_empty()).then(|| branch.parse().ok())?
}

/// True where version `a` is newer than `b`, compared number by number; false where one is not a version.
fn newer(a: &str, b: &str) -> bool {
    let numbers = |v: &str| v.split('.').map(|n| n.parse::<u32>().ok()).collect::<Option<Vec<_>>>();
    match (numbers(a), numbers(b)) {
        (Some(a), Some(b)) => a > b,
        _ => false,
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
    &bytes[..end]
}

/// Reads a note's description, for the fuzzer.
pub fn parse_note(description: &[u8]) -> bool {
    serde_json::from_slice::<CompatNote>(trimmed(description)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_decides_and_else_the_name() {
        let driver = Driver { version: "535.261.03".into(), ..Driver::default() };
        let note = |cuda: &str, branches: &[u32]| CompatNote { cuda: cuda.into(), branches: branches.into() };
        assert!(fits(Some(&note("12.4", &[535, 550])), 550, &driver).is_ok());
        assert!(fits(Some(&note("12.4", &[])), 550, &driver).is_ok());
        assert!(fits(Some(&note("12.4", &[470])), 550, &driver).is_err());
        assert!(fits(Some(&note("12.2", &[535])), 550, &driver).is_err());
        assert!(fits(None, 550, &driver).is_ok() && fits(None, 535, &driver).is_err());
        assert_eq!(versioned_libcuda("libcuda.so.550.54.14"), Some(550));
        assert_eq!(versioned_libcuda("libcuda.so.1"), None);
        assert!(newer("12.10", "12.9") && !newer("12.2", "12.2") && !newer("x", "12"));
        assert!(parse_note(b"{\"CUDA Version\":\"12.4\",\"Driver\":[535]}\0\0") && !parse_note(b"{}"));
    }
}
