//! passwd(5): who the caller is where the environment does not say it, as in a job of `sbatch --export=NONE`.
//!
//! The file is read first. The name service behind it (LDAP, sssd) can only be asked by programs that load its modules, which
//! a static one does not: getent(1) asks it.

use crate::{fd, output};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Account files of images are not longer. A longer one is not read: it may be hostile.
const MOST: usize = 4 << 20;
/// Where getent(1) is. It is not looked for: PATH may lead anywhere.
const GETENT: &str = "/usr/bin/getent";

/// A line of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user's name.
    pub name: String,
    /// The home directory, an absolute path.
    pub home: String,
}

/// The account of `uid` by the /etc/passwd that this process sees. `None` where the file has no such user, or no absolute
/// path for the home.
pub fn in_file(uid: u32) -> Option<Account> {
    let passwd = fd::read_hostile(Path::new("/etc/passwd"), MOST)?;
    find(&String::from_utf8_lossy(&passwd), uid)
}

/// What this process's own account says for the variable `name`, one of HOME, USER and LOGNAME. It is looked up once.
pub(crate) fn variable(name: &str) -> Option<String> {
    static OWN: OnceLock<Option<Account>> = OnceLock::new();
    if !["HOME", "USER", "LOGNAME"].contains(&name) {
        return None;
    }
    let uid = rustix::process::geteuid().as_raw();
    let account = OWN.get_or_init(|| in_file(uid).or_else(|| by_service(uid))).clone()?;
    Some(if name == "HOME" { account.home } else { account.name })
}

/// The account by the name service, where that is more than files.
fn by_service(uid: u32) -> Option<Account> {
    let switch = fd::read_hostile(Path::new("/etc/nsswitch.conf"), MOST)?;
    if !asks_a_service(&String::from_utf8_lossy(&switch)) {
        return None;
    }
    let uid_text = uid.to_string();
    let mut command = Command::new(GETENT);
    command.args(["passwd", &uid_text]).env_clear().stderr(Stdio::null());
    find(&String::from_utf8_lossy(&output::stdout_of(&mut command, None).ok()?.1), uid)
}

/// True where nsswitch.conf(5) has another source of accounts than files and systemd's own.
fn asks_a_service(switch: &str) -> bool {
    let line = switch.lines().find_map(|line| line.trim_start().strip_prefix("passwd:"));
    let sources = line.unwrap_or_default().split_whitespace().take_while(|word| !word.starts_with('#'));
    sources.filter(|word| !word.starts_with('[')).any(|word| !["files", "compat", "systemd"].contains(&word))
}

/// The account of `uid` in the text of a passwd(5).
fn find(passwd: &str, uid: u32) -> Option<Account> {
    let uid = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let home = fields.nth(2).filter(|home| id == uid && home.starts_with('/'))?;
        Some(Account { name: name.to_owned(), home: home.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_uid() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n\nshort:x\nme:x:7:7::/home/me\nno:x:70:7::relative:/bin/sh\n";
        let home = |uid| find(passwd, uid).map(|account| account.home);
        assert_eq!(home(0).as_deref(), Some("/root"));
        assert_eq!(find(passwd, 7), Some(Account { name: "me".to_owned(), home: "/home/me".to_owned() }));
        assert_eq!((home(70), home(8)), (None, None));
    }

    #[test]
    fn a_service_is_asked_where_there_is_one() {
        assert!(asks_a_service("# x\npasswd:  files sss [NOTFOUND=return]\ngroup: files\n"));
        for switch in ["passwd: files systemd # ldap\n", "group: ldap\n", "passwd: files [SUCCESS=merge]", ""]
        {
            assert!(!asks_a_service(switch), "{switch}");
        }
    }
}
