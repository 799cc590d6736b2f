//! What a URL names: a file, or a repository of git. Both are fetched into a directory of the build's.
//!
//! git is the host's, without the caller's configuration and without anything to ask a person. It executes nothing of a repository:
//! a new repository has no hooks, and none of a fetched one are taken over.
//!
//! ssh finds keys and control sockets in the home that passwd(5) names. They are the caller's: whoever else names a repository, a
//! Containerfile, a base image or a repository its submodules, gets the agent of `--ssh` alone.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::context::Local;
use super::copy::Found;
use super::variables;
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_registry::{Program, file};
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::open_in;
use rt_sys::{bail, disk, err, look, tree};
use rustix::fs::OFlags;

/// This program as a web server and its users know it.
const CLIENT: Program =
    Program { name: "rt-pull", no_such_host: "rt doctor looks at proxies", ..Program::ANY };

/// What a word that is a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remote {
    /// A file, by http or https.
    File(String),
    /// A repository.
    Git(Repository),
}

/// A repository, and what of it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    url: String,
    /// A branch, a tag or a commit; that of HEAD by default.
    reference: String,
    /// The directory in it.
    dir: String,
    /// The caller has named it.
    is_callers: bool,
}

impl Repository {
    fn is_by_ssh(&self) -> bool {
        self.url.split_once("://").is_none_or(|(scheme, _)| scheme == "ssh")
    }
}

/// True for a word that names something on another machine.
pub(crate) fn is_url(word: &str) -> bool {
    word.contains("://") || word.starts_with("git@")
}

impl Remote {
    /// Reads a URL. Whoever calls `rt` may name a repository on this machine (`file://`), and a Containerfile may not.
    pub(super) fn parse(url: &str, by_caller: bool) -> Result<Remote> {
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = rest.split_once("://").map_or("ssh", |(scheme, _)| scheme);
        let is_git = path.ends_with(".git") || matches!(scheme, "git" | "ssh");
        match scheme {
            "http" | "https" if !is_git => return Ok(Remote::File(rest.to_owned())),
            "http" | "https" | "git" | "ssh" => {}
            "file" if by_caller && is_git => {}
            _ => bail!("{}: use http or https, or git", shown_url(url)),
        }
        let (mut reference, mut dir) = fragment.split_once(':').unwrap_or((fragment, ""));
        for field in query.split('&').filter(|field| !field.is_empty()) {
            match field.split_once('=') {
                Some(("ref" | "branch" | "tag", value)) => reference = value,
                Some(("subdir", value)) => dir = value,
                _ => bail!("{path}: {field:?}: of a repository only ref= and subdir= can be asked for"),
            }
        }
        if reference.starts_with('-') || reference.contains([':', '+', '*']) {
            bail!("{path}: {reference:?}: neither a branch nor a tag nor a commit");
        }
        let reference = if reference.is_empty() { "HEAD" } else { reference }.to_owned();
        let (url, dir) = (path.to_owned(), dir.to_owned());
        Ok(Remote::Git(Repository { url, reference, dir, is_callers: by_caller }))
    }

    /// Its name without what is secret.
    pub(super) fn shown(&self) -> &str {
        match self {
            Remote::File(url) => shown_url(url),
            Remote::Git(repository) => &repository.url,
        }
    }
}

/// How git reaches a repository.
#[derive(Clone, Copy)]
struct Reach {
    protocols: &'static str,
    keys: Keys,
}

/// Whose keys ssh has.
#[derive(Clone, Copy)]
enum Keys {
    /// All that the caller's configuration of ssh names.
    OfCaller,
    /// Those of the agent of `--ssh`.
    OfAgent,
}

/// Who fetches, and where to.
pub(super) struct Fetcher<'a> {
    /// A directory of the build's.
    pub session: &'a Path,
    /// The socket of the agent that `--ssh` gives.
    pub agent: Option<&'a Path>,
    /// Asked between pieces.
    pub interrupt: &'a Interrupt,
}

/// What was fetched, and where it is.
pub(super) struct Fetched {
    pub local: Local,
    pub found: Found,
}

impl Fetcher<'_> {
    /// Fetches what `remote` names, and compares it with `checksum`: the digest of a file, the beginning of a commit's name.
    pub(super) fn fetch(&self, remote: &Remote, checksum: Option<&str>, keeps_git: bool) -> Result<Fetched> {
        let shown = remote.shown().to_owned();
        match remote {
            Remote::File(url) => self.file(url, checksum),
            Remote::Git(repository) => self.repository(repository, checksum, keeps_git),
        }
        .context(|| shown)
    }

    /// A new, empty directory.
    pub(super) fn new_dir(&self) -> Result<PathBuf> {
        let dir = self.session.join(format!("remote-{}", rt_sys::unique::name()));
        let made = fs::DirBuilder::new().mode(0o755).create(&dir);
        made.context(|| format!("make {}", dir.display()))?;
        Ok(dir)
    }

    fn file(&self, url: &str, checksum: Option<&str>) -> Result<Fetched> {
        let wanted: Option<Digest> = checksum.map(str::parse).transpose().context(|| "--checksum")?;
        let path = shown_url(url).split_once("://").map_or("", |(_, rest)| rest);
        let name = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next()).unwrap_or_default();
        let name = if matches!(name, "" | "." | "..") { UNNAMED } else { name };
        let dir = self.new_dir()?;
        let root = disk::open_root(&dir)?;
        let file = disk::create_file(root.as_fd(), name.as_bytes(), 0o600)?;
        let got = self.download(url, &file, wanted.as_ref())?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != got.digest) {
            return Err(wanted.mismatch(&got.digest));
        }
        disk::set_times(file.as_fd(), (got.modified, 0))?;
        let found = Found::whole(name.to_owned(), false);
        Ok(Fetched { local: Local::plain(root, shown_url(url).to_owned()), found })
    }

    fn download(&self, url: &str, file: &File, wanted: Option<&Digest>) -> Result<Downloaded> {
        let mut hasher = wanted.map_or_else(oci_content::digest::Hasher::sha256, Digest::hasher);
        let modified = file::fetch(url, CLIENT, self.interrupt, &mut |bytes| {
            hasher.update(bytes);
            disk::Named(file).write_all(bytes).context(|| "write what was fetched")
        })?;
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        // Without a time of its own a file has always the same one.
        Ok(Downloaded { digest: hasher.finish(), modified: modified.map_or(0, |time| time.as_secs() as i64) })
    }

    fn repository(&self, of: &Repository, checksum: Option<&str>, keeps_git: bool) -> Result<Fetched> {
        if of.is_by_ssh() && !of.is_callers && self.agent.is_none() {
            return Err(
                err!("git by ssh has no keys here").hint("--ssh default gives it those of your agent")
            );
        }
        let dir = self.new_dir()?;
        let others = Reach { protocols: self.protocols(), keys: Keys::OfAgent };
        let git = |words: &[&str]| self.git(&dir, others, words);
        // Without a template the repository has no hooks.
        git(&["init", "--quiet", "--template="])?;
        // What the caller has named can be on this machine, and be reached by his keys. A submodule cannot.
        let reach = match of.is_callers {
            true if of.url.starts_with("file://") => Reach { protocols: "file", keys: Keys::OfAgent },
            true => Reach { protocols: WITH_SSH, keys: Keys::OfCaller },
            false => others,
        };
        let fetch =
            |words: &[&str]| self.git(&dir, reach, &[&["fetch", "--progress", "--no-tags"], words].concat());
        // A server may give neither a part of the history nor a commit by its name. All of it has every branch and tag.
        let shallow = fetch(&["--depth=1", "--", &of.url, &of.reference]).map(|_| "FETCH_HEAD".to_owned());
        let commit = shallow.or_else(|e| {
            self.interrupt.check()?;
            fetch(&[
                "--",
                &of.url,
                "+HEAD:refs/remotes/o/HEAD",
                "+refs/heads/*:refs/remotes/o/*",
                "+refs/tags/*:refs/tags/*",
            ])
            .map_err(|_| e)?;
            let forms = [
                format!("refs/remotes/o/{}", of.reference),
                format!("refs/tags/{}", of.reference),
                of.reference.clone(),
            ];
            let known = |form: &&String| {
                git(&["rev-parse", "--quiet", "--verify", "--end-of-options", &format!("{form}^{{commit}}")])
                    .is_ok()
            };
            forms
                .iter()
                .find(known)
                .cloned()
                .ok_or_else(|| err!("{}: no such branch, tag or commit", of.reference))
        })?;
        let name = git(&["rev-parse", "--verify", "--end-of-options", &format!("{commit}^{{commit}}")])?;
        if let Some(wanted) = checksum.filter(|wanted| wanted.len() < 7 || !name.trim().starts_with(*wanted))
        {
            bail!("--checksum={wanted}: the commit is {}", name.trim());
        }
        git(&["checkout", "--progress", "--detach", name.trim()])?;
        if look::exists(dir.join(".gitmodules"))? {
            git(&["submodule", "update", "--init", "--recursive", "--depth=1", "--progress"])?;
        }
        if !keeps_git {
            tree::remove_path(&dir.join(".git"))?;
        }
        let top = disk::open_root(&dir)?;
        let root = open_in(top.as_fd(), Path::new(&of.dir), OFlags::RDONLY | OFlags::DIRECTORY);
        let root = root.context(|| format!("{:?} in it", of.dir))?;
        let found = Found::whole(String::new(), true);
        Ok(Fetched { local: Local::plain(root, of.url.clone()), found })
    }

    /// How a repository is reached that the caller has not named.
    fn protocols(&self) -> &'static str {
        if self.agent.is_some() { WITH_SSH } else { PROTOCOLS }
    }

    /// Runs git in `dir`, and returns what it says.
    fn git(&self, dir: &Path, reach: Reach, words: &[&str]) -> Result<String> {
        let path = variables::of_caller("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let mut command = Command::new("git");
        command
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            .args([
                "-c",
                "http.lowSpeedLimit=1024",
                "-c",
                "http.lowSpeedTime=60",
                "-c",
                "advice.detachedHead=false",
            ])
            .args(words)
            .current_dir(dir);
        command.env_clear().env("PATH", path).env("HOME", self.session).env("LC_ALL", "C.UTF-8");
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0");
        let ssh = match reach.keys {
            Keys::OfCaller => format!("ssh {SSH_OPTIONS}"),
            Keys::OfAgent => format!("ssh -F none {SSH_OPTIONS} {AGENT_ALONE}"),
        };
        command.env("GIT_ALLOW_PROTOCOL", reach.protocols).env("GIT_SSH_COMMAND", ssh);
        command.envs(variables::proxies());
        command.envs(self.agent.map(|agent| ("SSH_AUTH_SOCK", agent)));
        // Modes of files are in the layer: as docker has them.
        rt_sys::process::give_umask(&mut command, 0o022);
        let goes_on = || self.interrupt.check().is_ok();
        let output = rt_sys::output::of_talking(&mut command, SILENCE, goes_on);
        self.interrupt.check()?;
        let output = output.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                err!("git: no such program on this host, which fetches repositories")
            }
            std::io::ErrorKind::TimedOut => {
                err!("git {}: nothing has come for {} seconds", words[0], SILENCE.as_secs())
            }
            std::io::ErrorKind::FileTooLarge => {
                err!("git {}: it has printed more than {} MiB", words[0], rt_sys::output::MOST >> 20)
            }
            _ => err!("execute git: {e}"),
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(Error::new(format!("git {}: {}", words[0], last_line(&text(&output.stderr))))),
        }
    }
}

/// How repositories on other machines are reached (GIT_ALLOW_PROTOCOL, git(1)).
const PROTOCOLS: &str = "http:https:git";
/// The same where ssh has keys that may be used.
const WITH_SSH: &str = "http:https:git:ssh";
/// What ssh(1) is told in any case: it asks nobody, hands the agent on to nobody, and gives up a server that does not answer.
const SSH_OPTIONS: &str =
    "-o BatchMode=yes -o ForwardAgent=no -o ConnectTimeout=30 -o ServerAliveInterval=20";
/// What keeps it from all keys and tickets but those of the agent.
const AGENT_ALONE: &str = "-o IdentityFile=none -o ControlPath=none -o GSSAPIAuthentication=no";
/// How long git may say nothing: it tells its progress each second.
const SILENCE: Duration = Duration::from_secs(90);
/// The name of a file whose URL has none.
pub(super) const UNNAMED: &str = "unnamed";

struct Downloaded {
    digest: Digest,
    /// In seconds since 1970.
    modified: i64,
}

/// A URL without its query, which may hold a signature.
fn shown_url(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_urls_name() {
        let git = |url: &str| match Remote::parse(url, false).unwrap() {
            Remote::Git(Repository { url, reference, dir, .. }) => (url, reference, dir),
            Remote::File(_) => panic!("{url}"),
        };
        let expected =
            |url: &str, reference: &str, dir: &str| (url.to_owned(), reference.to_owned(), dir.to_owned());
        assert_eq!(git("https://h/x.git"), expected("https://h/x.git", "HEAD", ""));
        assert_eq!(git("https://h/x.git#v1:sub/dir"), expected("https://h/x.git", "v1", "sub/dir"));
        assert_eq!(git("https://h/x.git?ref=v1&subdir=d"), expected("https://h/x.git", "v1", "d"));
        assert_eq!(git("git@h:team/x.git#:d"), expected("git@h:team/x.git", "HEAD", "d"));
        assert_eq!(git("ssh://git@h/x"), expected("ssh://git@h/x", "HEAD", ""));
        assert_eq!(
            Remote::parse("https://h/x.tar?a=b", false).unwrap(),
            Remote::File("https://h/x.tar?a=b".into())
        );
        for bad in [
            "ftp://h/x",
            "file:///x.git",
            "https://h/x.git#--upload-pack=x",
            "https://h/x.git?q=1",
            "ext::sh.git",
        ] {
            assert!(Remote::parse(bad, false).is_err() || !is_url(bad), "{bad}");
        }
        assert!(Remote::parse("file:///x.git", true).is_ok());
    }
}
