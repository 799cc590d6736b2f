//! The account of a plan, whose lines the annotation `rt.passwd` asks for, and the mount that `rt.home` asks for.

use super::mounts::{MountKind, MountPlan};
use oci_spec::runtime::{Mount, MountBuilder};
use rt_launch::job_environment::JobEnvironment;
use rt_spec::rootless::Adapted;
use rt_spec::{Spec, annotations};
use rt_sys::error::Result;
use rt_sys::{caller, err, look};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The home of a user whose home is not in the container: a place that can be written.
const NO_HOME: &str = "/tmp";

/// The account that the container's passwd(5) and group(5) show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// The name, if no other account of the image has it.
    pub name: String,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Home directory inside.
    pub home: String,
}

impl Account {
    /// The account that `spec` asks for, of a process with the ids that `adapted` decided. Its home is the caller's where
    /// one of `mounts` shows that.
    pub(super) fn asked_for(
        spec: &Spec,
        adapted: &Adapted,
        mounts: &[MountPlan],
        job: &JobEnvironment,
    ) -> Result<Option<Account>> {
        if !annotations::asks_for_account(spec)? {
            return Ok(None);
        }
        // Root has a line in every image, with root's home.
        if adapted.uid == 0 {
            return Ok(None);
        }
        let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| job.of_user(name));
        let name = names.into_iter().find(|name| is_name(name)).unwrap_or_else(|| "user".to_owned());
        let above = |home: &String| mounts.iter().rfind(|m| Path::new(home).starts_with(&m.destination));
        let shown = |home: &String| above(home).is_some_and(|m| matches!(m.kind, MountKind::Bind(_)));
        let home = caller_home(job).filter(shown).unwrap_or_else(|| NO_HOME.to_owned());
        Ok(Some(Account { name, uid: adapted.uid, gid: adapted.gid, home }))
    }
}

/// `$HOME`, if it can stand in passwd(5) and is not the root. Slurm calls without it: that of the job counts only where it
/// is a directory that the caller owns.
fn caller_home(job: &JobEnvironment) -> Option<String> {
    let uid = caller::uid();
    let is_own = |home: &String| std::fs::metadata(home).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    let fits = |home: &String| home.starts_with('/') && home.len() > 1 && !home.contains([':', '\n']);
    let jobs = || job.of_user("HOME").filter(is_own);
    caller::said("HOME").or_else(jobs).filter(fits)
}

/// The bind of the caller's home at its own place, where the annotation `rt.home` asks for one and it is there.
pub(super) fn home_mount(spec: &Spec, job: &JobEnvironment) -> Result<Option<Mount>> {
    if !annotations::asks_for_home(spec)? {
        return Ok(None);
    }
    let home = match caller_home(job) {
        Some(home) if look::is_dir(&home)? => home,
        _ => {
            log::debug!("the caller's home directory is not there: it is not mounted");
            return Ok(None);
        }
    };
    let options = ["rbind", "rslave", "nosuid", "nodev"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(&home).source(&home).typ("bind").options(options).build();
    mount.map(Some).map_err(|e| err!("mount {home}: {e}"))
}

/// useradd(8)'s names, which no reader of the files takes for anything else.
fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.len() <= 32 && name.starts_with(first) && name.chars().all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_accounts() {
        assert!(["me", "_apt", "a.b-c", "User1"].into_iter().all(is_name));
        assert!(!["", "1x", "a:b", "a b", "a\nb", "-x", "ä", &"x".repeat(33)].into_iter().any(is_name));
    }
}
