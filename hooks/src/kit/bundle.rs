//! The container that a hook is about: the state on standard input, the bundle, its config and environment.

use oci_spec::runtime::LinuxNamespaceType;
use rt_spec::caller_request::{ANNOTATION_ENV, CallerRequest, is_callers};
use rt_spec::{Config, Spec, json_error};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd, mount, ns};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use rt_spec::state::State;

/// A bundle and what its config says that matters to hooks.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The root file system, absolute.
    pub rootfs: PathBuf,
    /// The root ends up read-only.
    pub readonly: bool,
    /// The container has a mount namespace. Without one, a hook would change the host.
    pub has_mount_namespace: bool,
    /// The annotations of the config, and of the state over them.
    pub annotations: HashMap<String, String>,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// The directory in which it begins.
    pub cwd: PathBuf,
    /// CDI devices that the caller names by `--device`.
    pub devices: Vec<String>,
    /// The container's environment, which may be the image's.
    env: HashMap<String, String>,
    /// Variables that the caller sets by `-e`.
    said: HashMap<String, String>,
    /// This process's environment, which is that of the caller's job.
    caller: HashMap<String, String>,
    /// Others can put something else in the place of the root, at any time.
    is_of_others: bool,
    /// This process is in the container's namespaces. Some runtimes give such hooks the container's environment, so that
    /// it does not count as the caller's.
    inside: bool,
}

impl Bundle {
    /// Reads the bundle's config, or takes the one that `rt` has heeded in its place.
    pub fn load(dir: &Path, state: Option<&State>) -> Result<Bundle> {
        let config = match state.and_then(|state| state.caller_request.config.as_ref()) {
            Some(text) => Config::parse(text.clone().into_bytes())?,
            None => Config::load(&dir.join("config.json"))?,
        };
        let mut bundle = Bundle::from_spec(&config.spec, dir)?;
        if let Some(state) = state {
            bundle.annotations.extend(state.annotations.clone().unwrap_or_default());
            bundle.inside = is_inside(state.pid);
            bundle = bundle.told(&state.caller_request);
        }
        if let Some(text) = bundle.annotations.get(ANNOTATION_ENV) {
            let list: Vec<String> = serde_json::from_str(text)
                .map_err(|e| json_error(e).context(format!("annotation {ANNOTATION_ENV}")))?;
            bundle.env.extend(variables_of(&list));
        }
        bundle.caller = std::env::vars().collect();
        Ok(bundle)
    }

    /// The bundle of a parsed config, with an empty environment of the caller.
    pub fn from_spec(spec: &Spec, dir: &Path) -> Result<Bundle> {
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        let variables = spec.process().as_ref().and_then(|p| p.env().as_deref()).unwrap_or_default();
        let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_deref()).unwrap_or_default();
        let process = spec.process().as_ref();
        Ok(Bundle {
            args: process.and_then(|p| p.args().clone()).unwrap_or_default(),
            cwd: process.map(|p| p.cwd().clone()).unwrap_or_default(),
            rootfs: dir.join(root.path()),
            readonly: root.readonly().unwrap_or(false),
            has_mount_namespace: namespaces.iter().any(|n| n.typ() == LinuxNamespaceType::Mount),
            annotations: spec.annotations().clone().unwrap_or_default(),
            env: variables_of(variables),
            ..Bundle::default()
        })
    }

    /// Opens the container's root, as a place in the tree (O_PATH), in the container's mount namespace. In a bundle of others it is what
    /// `rt` has mounted, which no name there leads away from.
    ///
    /// # Errors
    /// Something else has its place; those of open(2).
    pub fn open_root(&self) -> Result<OwnedFd> {
        let shown = || format!("rootfs {}", self.rootfs.display());
        if !self.is_of_others {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return fs::open(&self.rootfs, flags, Mode::empty()).context(shown);
        }
        let (root, _) = fd::open_without_links(&self.rootfs).context(shown)?;
        match mount::is_root(&root).context(shown)? {
            true => Ok(root),
            false => Err(err!("{}: somebody has put another directory in its place", shown())),
        }
    }

    /// Adds the variables and devices that, as `rt` says, its caller has named, and where the root is mounted.
    pub fn told(mut self, said: &CallerRequest) -> Bundle {
        self.said = variables_of(&said.env);
        self.env.extend(self.said.clone());
        self.devices.clone_from(&said.devices);
        self.is_of_others = said.others_root;
        if let Some(rootfs) = &said.rootfs {
            self.rootfs.clone_from(rootfs);
        }
        if let Some(program) = &said.program {
            self.args.clone_from(&program.args);
            self.cwd.clone_from(&program.cwd);
            self.env.extend(variables_of(&program.search));
        }
        self
    }

    /// Replaces the environment of the caller.
    pub fn called_with(mut self, caller: impl IntoIterator<Item = (String, String)>) -> Bundle {
        self.caller = caller.into_iter().collect();
        self
    }

    /// A variable of the container's environment. A variable that only the caller may set counts only if the caller has
    /// set the same value, because it may be the image's.
    pub fn env(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name)?;
        (!is_callers(name, value) || self.caller(name) == Some(value)).then_some(value)
    }

    /// A variable that the caller or the site has set: on `rt`'s command line, or else in this process's environment.
    pub fn caller(&self, name: &str) -> Option<&str> {
        let own = || self.caller.get(name).filter(|_| !self.inside);
        self.said.get(name).or_else(own).map(String::as_str)
    }

    /// Warnings about variables of the container that only the caller may set, and has not set.
    pub fn refused(&self) -> Vec<String> {
        let refused = self.env.iter().filter(|(name, _)| self.env(name).is_none());
        let mut all: Vec<String> = refused
            .map(|(name, value)| {
                format!(
                    "{name}={value} may be the image's word and is not heeded (say it by rt run -e, or in the \
                     caller's environment)"
                )
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// A variable of the job: the container's environment, else the caller's.
    pub fn job(&self, name: &str) -> Option<&str> {
        self.env(name).or_else(|| self.caller.get(name).map(String::as_str))
    }

    /// The container's variables whose names begin with `prefix`, sorted.
    pub fn env_with_prefix(&self, prefix: &str) -> Vec<(&str, &str)> {
        let all = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut all: Vec<_> = all.filter(|(name, _)| name.starts_with(prefix)).collect();
        all.sort_unstable();
        all
    }
}

/// `NAME=VALUE` each; of several, the last counts.
fn variables_of(list: &[String]) -> HashMap<String, String> {
    let pairs = list.iter().filter_map(|variable| variable.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// True where this process is in the mount namespace of the container's first process, as hooks of the stage
/// createContainer are. The state that crun gives to such hooks has the pid 0.
fn is_inside(pid: i32) -> bool {
    let of = |pid: &str| PathBuf::from(format!("/proc/{pid}/ns/mnt"));
    pid == 0 || ns::same_namespace(&of(&pid.to_string()), &of("self"))
}

/// Checks that the root file system is a directory.
pub fn require_root(bundle: &Bundle) -> Result<()> {
    let found =
        std::fs::metadata(&bundle.rootfs).context(|| format!("rootfs {}", bundle.rootfs.display()))?;
    if !found.is_dir() {
        bail!("rootfs {}: not a directory", bundle.rootfs.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_variable_counts_and_the_caller_comes_second() {
        let text = r#"{"ociVersion":"1.0.0","root":{"path":"rootfs","readonly":true},
            "process":{"cwd":"/","user":{"uid":0,"gid":0},"args":["a"],"env":["A=1","A=2","NV_B=3","broken"]},
            "linux":{"namespaces":[{"type":"mount"}]}}"#;
        let spec = Config::parse(text.as_bytes().to_vec()).unwrap().spec;
        let caller = [("A".to_owned(), "9".to_owned()), ("C".to_owned(), "4".to_owned())];
        let bundle = Bundle::from_spec(&spec, Path::new("/b")).unwrap().called_with(caller);
        assert_eq!((bundle.env("A"), bundle.job("A"), bundle.job("C")), (Some("2"), Some("2"), Some("4")));
        assert_eq!(bundle.env("C"), None);
        assert_eq!(bundle.env_with_prefix("NV_"), [("NV_B", "3")]);
        assert_eq!(bundle.rootfs, Path::new("/b/rootfs"));
        assert!(bundle.readonly && bundle.has_mount_namespace);
    }

    #[test]
    fn an_image_says_no_paths() {
        let bundle = |env: &[(&str, &str)], said: &[&str], caller: &[(&str, &str)], inside| {
            let owned = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
            let env = env.iter().map(owned).collect();
            let bundle = Bundle { env, inside, ..Bundle::default() };
            let said = CallerRequest {
                env: said.iter().map(|v| (*v).to_owned()).collect(),
                ..CallerRequest::default()
            };
            bundle.called_with(caller.iter().map(owned)).told(&said)
        };
        let name = "CUDA_MPS_PIPE_DIRECTORY";
        let image = [(name, "/image")];
        for (said, caller, inside, env, by_caller) in [
            (&[][..], &[][..], false, None, None),
            (&["CUDA_MPS_PIPE_DIRECTORY=/said"], &[], false, Some("/said"), Some("/said")),
            (&[], &[(name, "/own")], false, None, Some("/own")),
            (&[], &[(name, "/image")], false, Some("/image"), Some("/image")),
            (&[], &[(name, "/image")], true, None, None),
        ] {
            let bundle = bundle(&image, said, caller, inside);
            assert_eq!((bundle.env(name), bundle.caller(name)), (env, by_caller), "{said:?} {caller:?}");
            assert_eq!(bundle.refused().len(), usize::from(env.is_none()));
        }
        let plain = bundle(&[("NVIDIA_VISIBLE_DEVICES", "0,1"), ("NVIDIA_GDS", "enabled")], &[], &[], false);
        assert!(plain.refused().is_empty() && plain.env("NVIDIA_VISIBLE_DEVICES") == Some("0,1"));
        let cdi = bundle(&[("NVIDIA_VISIBLE_DEVICES", "v/c=0")], &[], &[], false);
        assert_eq!(cdi.env("NVIDIA_VISIBLE_DEVICES"), None);
    }
}
