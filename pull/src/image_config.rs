//! The image config's own rules: what to run, and as whom (image-spec, conversion.md).

use std::os::fd::{AsFd, OwnedFd};

use serde_json::Value;

use super::manifest::Execution;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, disk, err};
use std::io::Read;

/// What Docker and podman put into PATH where the image says nothing.
pub(crate) const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// passwd and group files of images are not longer.
const ACCOUNTS_LIMIT: u64 = 8 << 20;

/// The user that the image asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Groups that name the user in the image's group file.
    pub groups: Vec<u32>,
    /// Home directory, if the image's passwd file has one.
    pub home: Option<String>,
}

/// Entrypoint followed by Cmd; a shell where there is neither.
pub(crate) fn arguments(execution: &Execution) -> Vec<String> {
    let entrypoint = execution.entrypoint.iter().flatten();
    let args: Vec<String> = entrypoint.chain(execution.cmd.iter().flatten()).cloned().collect();
    if args.is_empty() { vec!["/bin/sh".to_owned()] } else { args }
}

/// Entrypoint or Cmd as the text of an annotation, a JSON array; none where the image has none.
pub(crate) fn words(words: Option<&[String]>) -> Option<String> {
    words.filter(|words| !words.is_empty()).map(|words| Value::from(words.to_vec()).to_string())
}

/// Env, with a PATH if there is none.
pub(crate) fn environment(execution: &Execution) -> Vec<String> {
    // Slurm mixes these into the variables of the job, where they would say what is mounted.
    let configures = |variable: &&String| {
        let name = variable.split_once('=').map(|(name, _)| name);
        rt_config::KEYS.iter().any(|key| key.variable.is_some() && key.variable == name)
            || name.is_some_and(|name| name.starts_with(rt_spec::environment::REQUEST_PREFIX))
    };
    let variables = execution.env.iter().flatten().filter(|e| e.contains('='));
    let mut env: Vec<String> = variables.filter(|e| !configures(e)).cloned().collect();
    if !env.iter().any(|e| e.starts_with("PATH=")) {
        env.insert(0, PATH.to_owned());
    }
    env
}

/// HOME for a user.
pub(crate) fn home_of(user: &User) -> String {
    format!("HOME={}", user.home.as_deref().unwrap_or("/"))
}

/// WorkingDir, absolute.
pub(crate) fn working_dir(execution: &Execution) -> String {
    match execution.working_dir.as_deref() {
        None | Some("") => "/".to_owned(),
        Some(dir) if dir.starts_with('/') => dir.to_owned(),
        Some(dir) => format!("/{dir}"),
    }
}

/// Looks the image's `User` up in its own account files, below `root`.
///
/// # Errors
/// A name that they do not have, or one of them cannot be read.
pub(crate) fn user(execution: &Execution, root: &OwnedFd) -> Result<User> {
    let text = execution.user.as_deref().unwrap_or("");
    let passwd = accounts(root, b"passwd")?;
    let group = accounts(root, b"group")?;
    find_user(text, &passwd, &group)
}

fn find_user(text: &str, passwd: &str, group: &str) -> Result<User> {
    let (name, group_name) = match text.split_once(':') {
        Some((name, group)) => (name, Some(group).filter(|g| !g.is_empty())),
        None => (text, None),
    };
    let name = if name.is_empty() { "0" } else { name };
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<String>>();
    let number: Option<u32> = name.parse().ok();
    let entry = passwd
        .lines()
        .map(fields)
        .find(|f| f.len() >= 6 && (f[0] == name || number.is_some_and(|n| f[2].parse() == Ok(n))));
    let uid = match (number, &entry) {
        (Some(uid), _) => uid,
        (None, Some(f)) => {
            f[2].parse().map_err(|_| err!("user {name:?}: a damaged /etc/passwd in the image"))?
        }
        (None, None) => bail!("user {name:?}: not in the image's /etc/passwd"),
    };
    let login = entry.as_ref().map_or(name, |f| f[0].as_str());
    let gid = match group_name {
        None => entry.as_ref().and_then(|f| f[3].parse().ok()).unwrap_or(0),
        Some(wanted) => match wanted.parse() {
            Ok(gid) => gid,
            Err(_) => group
                .lines()
                .map(fields)
                .find(|f| f.len() >= 3 && f[0] == wanted)
                .and_then(|f| f[2].parse().ok())
                .ok_or_else(|| err!("group {wanted:?}: not in the image's /etc/group"))?,
        },
    };
    // With a group given, it is the only one (image-spec, config: User).
    let mut groups = Vec::new();
    if group_name.is_none() {
        let member = |f: &Vec<String>| f.len() >= 4 && f[3].split(',').any(|m| m == login);
        groups = group.lines().map(fields).filter(member).filter_map(|f| f[2].parse().ok()).collect();
        groups.retain(|g| *g != gid);
    }
    let home = entry.map(|f| f[5].clone()).filter(|home| home.starts_with('/'));
    Ok(User { uid, gid, groups, home })
}

/// `/etc/NAME` of the tree, through no symbolic link: those may lead out of it.
fn accounts(root: &OwnedFd, name: &[u8]) -> Result<String> {
    let missing = |e: &Error| e.is(libc::ENOENT) || e.is(libc::ENOTDIR);
    let opened = disk::open_dir(root.as_fd(), b"etc").and_then(|etc| disk::open_if_file(etc.as_fd(), name));
    let file = match opened {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(String::new()),
        Err(e) if missing(&e) => return Ok(String::new()),
        Err(e) => return Err(e),
    };
    let mut text = Vec::new();
    let shown = || format!("read the image's /etc/{}", String::from_utf8_lossy(name));
    file.take(ACCOUNTS_LIMIT).read_to_end(&mut text).context(shown)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/false\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nextra:x:50:web,other\n";

    #[test]
    fn users_by_name_and_number() {
        let find = |text: &str| find_user(text, PASSWD, GROUP).map(|u| (u.uid, u.gid, u.groups));
        assert_eq!(find("").unwrap(), (0, 0, vec![]));
        assert_eq!(find("web").unwrap(), (33, 34, vec![50]));
        assert_eq!(find("33").unwrap(), (33, 34, vec![50]));
        assert_eq!(find("web:extra").unwrap(), (33, 50, vec![]));
        assert_eq!(find("1000:7").unwrap(), (1000, 7, vec![]));
        assert!(find("nobody").is_err() && find("web:none").is_err());
        assert_eq!(find_user("web", PASSWD, GROUP).unwrap().home.as_deref(), Some("/var/www"));
    }

    #[test]
    fn commands() {
        let both = Execution {
            entrypoint: Some(vec!["a".into()]),
            cmd: Some(vec!["b".into()]),
            ..Execution::default()
        };
        assert_eq!(arguments(&both), ["a", "b"]);
        assert_eq!(words(both.entrypoint.as_deref()).as_deref(), Some(r#"["a"]"#));
        assert_eq!((words(None), words(Some(&[]))), (None, None));
        assert_eq!(arguments(&Execution::default()), ["/bin/sh"]);
        assert_eq!(environment(&Execution::default()), [PATH]);
        assert_eq!(working_dir(&Execution::default()), "/");
    }
}
