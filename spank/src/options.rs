//! The options of srun, sbatch and salloc, with the names, the rules and the variables of pyxis, and what becomes of them
//! for `rt`: variables `RT_CONTAINER_*`.

use std::collections::BTreeSet;

/// What an option is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Image,
    Mounts,
    Workdir,
    Name,
    Save,
    MountHome,
    RemapRoot,
    Entrypoint,
    EntrypointLog,
    Writable,
    Env,
    Unshare,
    Cache,
    Broadcast,
    Checkpoint,
}

/// An option as Slurm lists it.
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// The argument's place-holder; `None` where it takes none.
    pub(crate) argument: Option<&'static str>,
    pub(crate) usage: &'static str,
    pub(crate) topic: Topic,
    /// What it says where it takes no argument.
    pub(crate) on: bool,
}

const fn word(name: &'static str, argument: &'static str, topic: Topic, usage: &'static str) -> Form {
    Form { name, argument: Some(argument), usage, topic, on: true }
}

const fn flag(name: &'static str, topic: Topic, on: bool, usage: &'static str) -> Form {
    Form { name, argument: None, usage, topic, on }
}

/// All options, in the order of `srun --help`.
pub(crate) const FORMS: [Form; 20] = [
    word(
        "container-image",
        "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
        Topic::Image,
        "[rt] run the tasks in a container of this image: a name in a registry, a squashfs or SIF file, or a bundle",
    ),
    word(
        "container-mounts",
        "SRC:DST[:FLAGS][,SRC:DST...]",
        Topic::Mounts,
        "[rt] directories and files of the node to be shown in the container. Flags are separated by \"+\": \"ro+rprivate\"",
    ),
    word("container-workdir", "PATH", Topic::Workdir, "[rt] working directory in the container"),
    word(
        "container-name",
        "NAME[:auto|create|exec|no_exec|job|global[+...]]",
        Topic::Name,
        "[rt] name of a container that stays on the node after the step, until the job has ended or (global) it is removed. One that exists is used, and no image is needed",
    ),
    word(
        "container-save",
        "PATH",
        Topic::Save,
        "[rt] write the container to this squashfs file when the step has ended",
    ),
    flag("container-mount-home", Topic::MountHome, true, "[rt] show your home directory in the container"),
    flag(
        "no-container-mount-home",
        Topic::MountHome,
        false,
        "[rt] do not show your home directory in the container",
    ),
    flag(
        "container-remap-root",
        Topic::RemapRoot,
        true,
        "[rt] be root in the container, with the rights that you have outside",
    ),
    flag("no-container-remap-root", Topic::RemapRoot, false, "[rt] be yourself in the container"),
    flag("container-entrypoint", Topic::Entrypoint, true, "[rt] execute the image's entry point first"),
    flag("no-container-entrypoint", Topic::Entrypoint, false, "[rt] do not execute the image's entry point"),
    flag("container-entrypoint-log", Topic::EntrypointLog, true, "[rt] show what the entry point prints"),
    flag("container-writable", Topic::Writable, true, "[rt] the container's files can be changed"),
    flag("container-readonly", Topic::Writable, false, "[rt] the container's files cannot be changed"),
    word(
        "container-env",
        "NAME[,NAME...]",
        Topic::Env,
        "[rt] variables that keep the value of your environment where the image has one, too",
    ),
    word("container-unshare", "NS[,NS...]", Topic::Unshare, "[rt] namespaces of its own: net, ipc, uts"),
    flag(
        "container-cache",
        Topic::Cache,
        true,
        "[rt] take the image as the node or the store has it, without asking the registry",
    ),
    flag("no-container-cache", Topic::Cache, false, "[rt] ask the registry whether there is a newer image"),
    flag(
        "container-broadcast",
        Topic::Broadcast,
        true,
        "[rt] copy an image that is one file to the nodes of the job by sbcast, once",
    ),
    word(
        "container-checkpoint",
        "DIR",
        Topic::Checkpoint,
        "[rt] go on from the last checkpoint in this directory, and write one there at USR1 and TERM; %j is the job's number",
    ),
];

/// The variables that stand for an option, without their prefix. READONLY is `container-writable` the other way round.
const VARIABLES: [(&str, Topic, bool); 16] = [
    ("IMAGE", Topic::Image, true),
    ("MOUNTS", Topic::Mounts, true),
    ("WORKDIR", Topic::Workdir, true),
    ("NAME", Topic::Name, true),
    ("SAVE", Topic::Save, true),
    ("MOUNT_HOME", Topic::MountHome, true),
    ("REMAP_ROOT", Topic::RemapRoot, true),
    ("ENTRYPOINT", Topic::Entrypoint, true),
    ("ENTRYPOINT_LOG", Topic::EntrypointLog, true),
    ("WRITABLE", Topic::Writable, true),
    ("READONLY", Topic::Writable, false),
    ("ENV", Topic::Env, true),
    ("UNSHARE", Topic::Unshare, true),
    ("CACHE", Topic::Cache, true),
    ("BROADCAST", Topic::Broadcast, true),
    ("CHECKPOINT", Topic::Checkpoint, true),
];

/// Prefixes of the variables, those that count more first: pyxis' and `rt`'s own.
pub(crate) const PREFIXES: [&str; 2] = ["PYXIS_CONTAINER_", "RT_CONTAINER_"];

/// The names of all variables that stand for options.
pub(crate) fn variables() -> impl Iterator<Item = String> {
    PREFIXES.iter().flat_map(|prefix| VARIABLES.iter().map(move |(name, ..)| format!("{prefix}{name}")))
}

/// What has been asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) image: Option<Vec<u8>>,
    pub(crate) mounts: Vec<Vec<u8>>,
    pub(crate) workdir: Option<Vec<u8>>,
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) save: Option<Vec<u8>>,
    pub(crate) mount_home: Option<bool>,
    pub(crate) remap_root: Option<bool>,
    pub(crate) entrypoint: Option<bool>,
    pub(crate) entrypoint_log: Option<bool>,
    pub(crate) writable: Option<bool>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) unshare: Vec<Vec<u8>>,
    pub(crate) cache: Option<bool>,
    pub(crate) broadcast: Option<bool>,
    pub(crate) checkpoint: Option<Vec<u8>>,
}

/// Yes or no, as pyxis reads them.
pub(crate) fn switch(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"true" | b"yes" | b"y" => Some(true),
        b"0" | b"false" | b"no" | b"n" => Some(false),
        _ => None,
    }
}

impl Options {
    /// Takes one option. Slurm may give the same one twice.
    pub(crate) fn set(&mut self, form: &Form, value: &[u8]) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("--{}: {why}", form.name));
        if form.argument.is_none() {
            let place = self.flag(form.topic);
            if form.topic != Topic::EntrypointLog && place.is_some_and(|before| before != form.on) {
                let other = FORMS.iter().find(|f| f.topic == form.topic && f.on != form.on);
                let other = other.map_or("", |f| f.name);
                return Err(format!("--{} and --{other} exclude each other", form.name));
            }
            *place = Some(form.on);
            return Ok(());
        }
        if value.is_empty() {
            return wrong("its argument is missing");
        }
        self.check(form.topic, value).or_else(|why| wrong(&why))?;
        match form.topic {
            Topic::Mounts => add(&mut self.mounts, value).or_else(|why| wrong(&why))?,
            Topic::Env => add(&mut self.env, value).or_else(|why| wrong(&why))?,
            Topic::Unshare => add(&mut self.unshare, value).or_else(|why| wrong(&why))?,
            topic => {
                let place = self.word(topic);
                if place.as_ref().is_some_and(|before| before != value) {
                    return wrong("it was given twice; a step has one container, in all of its components");
                }
                *place = Some(value.to_owned());
            }
        }
        Ok(())
    }

    /// Takes what variables with one of `prefixes` say of options that the command line does not name. What is no value is
    /// passed over, as pyxis does with switches.
    pub(crate) fn complete<'a>(
        &mut self,
        environment: impl Iterator<Item = &'a [u8]>,
        prefixes: &[&str],
    ) -> Result<(), String> {
        // Every step comes here, and most have none of these.
        let is_ours = |entry: &&[u8]| prefixes.iter().any(|prefix| entry.starts_with(prefix.as_bytes()));
        let ours: Vec<&[u8]> = environment.filter(is_ours).collect();
        if ours.is_empty() {
            return Ok(());
        }
        for prefix in prefixes {
            // Those of one prefix do not exclude each other by their order.
            let before = self.clone();
            for (name, topic, sense) in VARIABLES {
                let variable = format!("{prefix}{name}");
                let find = |entry: &'a [u8]| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"=");
                let Some(value) = ours.iter().copied().find_map(find).filter(|v| !v.is_empty()) else {
                    continue;
                };
                if before.has(topic) || (!sense && self.has(topic)) {
                    continue;
                }
                let is_flag = FORMS.iter().any(|f| f.topic == topic && f.argument.is_none());
                if is_flag {
                    if let Some(on) = switch(value) {
                        *self.flag(topic) = Some(on == sense);
                    }
                } else if let Some(form) = FORMS.iter().find(|f| f.topic == topic) {
                    self.set(form, value).map_err(|why| format!("{variable}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    /// True where a container is asked for.
    pub(crate) fn enabled(&self) -> bool {
        self.image.is_some() || self.name.is_some()
    }

    /// The options that say nothing without a container.
    pub(crate) fn idle(&self) -> impl Iterator<Item = &'static str> {
        let given: Vec<Topic> = FORMS.iter().map(|f| f.topic).filter(|topic| self.has(*topic)).collect();
        let mut seen = Vec::new();
        FORMS.iter().filter_map(move |form| {
            let new = given.contains(&form.topic) && !seen.contains(&form.topic);
            seen.push(form.topic);
            new.then_some(form.name)
        })
    }

    /// The variables for `rt`, but for what only the node knows. An empty value is one that is unset.
    pub(crate) fn variables(&self) -> Vec<(&'static str, Vec<u8>)> {
        let word = |value: &Option<Vec<u8>>| value.clone().unwrap_or_default();
        let list = |values: &Vec<Vec<u8>>| values.join(&b","[..]);
        let flag = |value: Option<bool>| {
            value.map_or(Vec::new(), |on| if on { b"1".to_vec() } else { b"0".to_vec() })
        };
        vec![
            ("RT_CONTAINER_IMAGE", word(&self.image)),
            ("RT_CONTAINER_MOUNTS", list(&self.mounts)),
            ("RT_CONTAINER_WORKDIR", word(&self.workdir)),
            ("RT_CONTAINER_NAME", word(&self.name)),
            ("RT_CONTAINER_SAVE", word(&self.save)),
            ("RT_CONTAINER_MOUNT_HOME", flag(self.mount_home)),
            ("RT_CONTAINER_REMAP_ROOT", flag(self.remap_root)),
            ("RT_CONTAINER_ENTRYPOINT", flag(self.entrypoint)),
            ("RT_CONTAINER_ENTRYPOINT_LOG", flag(self.entrypoint_log)),
            ("RT_CONTAINER_WRITABLE", flag(self.writable)),
            ("RT_CONTAINER_ENV", list(&self.env)),
            ("RT_CONTAINER_UNSHARE", list(&self.unshare)),
            ("RT_CONTAINER_CACHE", flag(self.cache)),
            ("RT_CONTAINER_BROADCAST", flag(self.broadcast)),
            ("RT_CONTAINER_CHECKPOINT", word(&self.checkpoint)),
        ]
    }

    /// True where something was said of it.
    pub(crate) fn has(&self, topic: Topic) -> bool {
        match topic {
            Topic::Image => self.image.is_some(),
            Topic::Mounts => !self.mounts.is_empty(),
            Topic::Workdir => self.workdir.is_some(),
            Topic::Name => self.name.is_some(),
            Topic::Save => self.save.is_some(),
            Topic::MountHome => self.mount_home.is_some(),
            Topic::RemapRoot => self.remap_root.is_some(),
            Topic::Entrypoint => self.entrypoint.is_some(),
            Topic::EntrypointLog => self.entrypoint_log.is_some(),
            Topic::Writable => self.writable.is_some(),
            Topic::Env => !self.env.is_empty(),
            Topic::Unshare => !self.unshare.is_empty(),
            Topic::Cache => self.cache.is_some(),
            Topic::Broadcast => self.broadcast.is_some(),
            Topic::Checkpoint => self.checkpoint.is_some(),
        }
    }

    /// Takes back a word or a flag. Lists are of the job and of the step together.
    pub(crate) fn forget(&mut self, topic: Topic) {
        match topic {
            Topic::Mounts | Topic::Env | Topic::Unshare => {}
            _ if FORMS.iter().any(|f| f.topic == topic && f.argument.is_none()) => *self.flag(topic) = None,
            _ => *self.word(topic) = None,
        }
    }

    fn flag(&mut self, topic: Topic) -> &mut Option<bool> {
        match topic {
            Topic::MountHome => &mut self.mount_home,
            Topic::RemapRoot => &mut self.remap_root,
            Topic::Entrypoint => &mut self.entrypoint,
            Topic::EntrypointLog => &mut self.entrypoint_log,
            Topic::Writable => &mut self.writable,
            Topic::Cache => &mut self.cache,
            _ => &mut self.broadcast,
        }
    }

    fn word(&mut self, topic: Topic) -> &mut Option<Vec<u8>> {
        match topic {
            Topic::Image => &mut self.image,
            Topic::Workdir => &mut self.workdir,
            Topic::Name => &mut self.name,
            Topic::Checkpoint => &mut self.checkpoint,
            _ => &mut self.save,
        }
    }

    /// What can be said of a value without the node. `rt` checks the rest there.
    fn check(&self, topic: Topic, value: &[u8]) -> Result<(), String> {
        let show = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let mut parts = value.split(|c| *c == b',');
        match topic {
            Topic::Mounts => parts.try_for_each(mount),
            Topic::Env => match parts.any(<[u8]>::is_empty) {
                true => Err(format!("{:?} has an empty name", show(value))),
                false => Ok(()),
            },
            Topic::Unshare => match parts.find(|n| !matches!(*n, b"net" | b"ipc" | b"uts")) {
                Some(other) => {
                    Err(format!("unknown namespace {:?}; there are net, ipc and uts", show(other)))
                }
                None => Ok(()),
            },
            Topic::Save if value.ends_with(b"/") => Err("its argument is a directory".to_owned()),
            Topic::Name => {
                let (name, flags) = match value.iter().position(|c| *c == b':') {
                    Some(at) => (&value[..at], &value[at + 1..]),
                    None => (value, &b"auto"[..]),
                };
                let known = |flag: &&[u8]| {
                    matches!(*flag, b"" | b"auto" | b"create" | b"exec" | b"no_exec" | b"job" | b"global")
                };
                match flags.split(|c| *c == b'+').find(|flag| !known(flag)) {
                    _ if name.is_empty() => Err("the name is empty".to_owned()),
                    Some(other) => {
                        let known = "auto, create, exec, no_exec, job and global";
                        Err(format!("{:?} is none of {known}", show(other)))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// How many entries a list may have. Root's slurmstepd reads it, and each mount is some system calls later.
const MOST: usize = 4096;

fn add(list: &mut Vec<Vec<u8>>, value: &[u8]) -> Result<(), String> {
    // To compare each with all the others would be quadratic.
    let mut known: BTreeSet<&[u8]> = list.iter().map(Vec::as_slice).collect();
    let new: Vec<Vec<u8>> =
        value.split(|c| *c == b',').filter(|part| known.insert(part)).map(<[u8]>::to_owned).collect();
    if list.len() + new.len() > MOST {
        return Err(format!("more than {MOST} entries"));
    }
    list.extend(new);
    Ok(())
}

/// The form of one mount: paths begin with "/" or ".", so that names of file systems are not taken for them.
fn mount(text: &[u8]) -> Result<(), String> {
    let is_path = |part: &[u8]| part.starts_with(b"/") || part.starts_with(b".");
    let mut parts = text.splitn(3, |c| *c == b':');
    let source = parts.next().unwrap_or_default();
    let target = parts.next().unwrap_or(source);
    let shown = String::from_utf8_lossy(text);
    if source.is_empty() || target.is_empty() {
        Err(format!("{shown:?} is not SRC:DST[:FLAGS]"))
    } else if !is_path(source) && !matches!(source, b"tmpfs" | b"umount") {
        Err(format!("the source of {shown:?} is no path (beginning with / or .), tmpfs or umount"))
    } else if !is_path(target) {
        Err(format!("the target of {shown:?} is no path, beginning with / or ."))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(&str, &str)]) -> Result<Options, String> {
        let mut all = Options::default();
        for (name, value) in options {
            let form = FORMS.iter().find(|f| f.name == *name).unwrap();
            all.set(form, value.as_bytes())?;
        }
        Ok(all)
    }

    fn variable(options: &Options, name: &str) -> String {
        let all = options.variables();
        let (_, value) = all.iter().find(|(n, _)| *n == name).unwrap();
        String::from_utf8(value.clone()).unwrap()
    }

    #[test]
    fn lists_have_a_bound() {
        let mounts = |n: usize| (0..n).map(|n| format!("/m{n}:/m{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(given(&[("container-mounts", &mounts(4096))]).unwrap().mounts.len(), 4096);
        // Entries that are given twice count once.
        assert!(given(&[("container-mounts", &mounts(4096)), ("container-mounts", &mounts(4096))]).is_ok());
        let start = std::time::Instant::now();
        let why = given(&[("container-mounts", &mounts(64_000))]).unwrap_err();
        assert_eq!(why, "--container-mounts: more than 4096 entries");
        // It took 5 s to compare each with all the others.
        assert!(start.elapsed() < std::time::Duration::from_secs(2));
        let parts: Vec<(String, String)> =
            (0..64_000).map(|n| ("container-env".to_owned(), format!("A{n}"))).collect();
        assert!(given(&parts.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn options_become_variables() {
        let all = given(&[
            ("container-image", "debian:12"),
            ("container-mounts", "/a:/b:ro+rprivate,/c"),
            ("container-mounts", "/c,tmpfs:/t"),
            ("no-container-mount-home", ""),
            ("container-readonly", ""),
            ("container-env", "A,B"),
            ("container-unshare", "net"),
            ("container-unshare", "uts,net"),
        ])
        .unwrap();
        assert!(all.enabled());
        for (name, value) in [
            ("RT_CONTAINER_IMAGE", "debian:12"),
            ("RT_CONTAINER_MOUNTS", "/a:/b:ro+rprivate,/c,tmpfs:/t"),
            ("RT_CONTAINER_MOUNT_HOME", "0"),
            ("RT_CONTAINER_REMAP_ROOT", ""),
            ("RT_CONTAINER_WRITABLE", "0"),
            ("RT_CONTAINER_ENV", "A,B"),
            ("RT_CONTAINER_UNSHARE", "net,uts"),
        ] {
            assert_eq!(variable(&all, name), value, "{name}");
        }
    }

    #[test]
    fn wrong_options_are_refused() {
        for (options, text) in [
            (&[("container-image", "")][..], "--container-image: its argument is missing"),
            (&[("container-image", "a"), ("container-image", "b")], "given twice"),
            (&[("container-mounts", ":")], "SRC:DST"),
            (&[("container-mounts", "/tmp:")], "SRC:DST"),
            (&[("container-mounts", "/tmp:/a,")], "SRC:DST"),
            (&[("container-mounts", "devpts:/pts")], "source"),
            (&[("container-mounts", "/tmp:mnt:ro")], "target"),
            (&[("container-env", "A,")], "empty name"),
            (&[("container-unshare", "net,pid")], "unknown namespace \"pid\""),
            (&[("container-save", "./")], "directory"),
            (&[("container-name", ":exec")], "empty"),
            (&[("container-name", "x:attach")], "none of auto"),
            (&[("container-name", "x:exec+site")], "none of auto"),
            (&[("container-writable", ""), ("container-readonly", "")], "--container-writable exclude"),
            (&[("no-container-entrypoint", ""), ("container-entrypoint", "")], "exclude each other"),
        ] {
            let error = given(options).unwrap_err();
            assert!(error.contains(text), "{options:?}: {error}");
        }
        // Slurm gives each option twice where a variable of its own has it, too.
        given(&[("container-image", "a"), ("container-image", "a")]).unwrap();
        given(&[("container-name", "x:create+global")]).unwrap();
        given(&[("container-name", "x:no_exec"), ("container-writable", ""), ("container-writable", "")])
            .unwrap();
    }

    #[test]
    fn variables_come_after_the_command_line() {
        let env = |list: &[&str], options: &[(&str, &str)]| {
            let mut all = given(options).unwrap();
            all.complete(list.iter().map(|e| e.as_bytes()), &PREFIXES).map(|()| all)
        };
        let all = env(
            &[
                "PYXIS_CONTAINER_IMAGE=env",
                "PYXIS_CONTAINER_MOUNTS=/env",
                "RT_CONTAINER_IMAGE=own",
                "RT_CONTAINER_WORKDIR=/own",
                "PYXIS_CONTAINER_READONLY=1",
                "PYXIS_CONTAINER_ENTRYPOINT=perhaps",
                "PYXIS_CONTAINER_IMAGE_OF_ANOTHER=x",
            ],
            &[("container-image", "line"), ("container-mounts", "/line")],
        )
        .unwrap();
        assert_eq!(variable(&all, "RT_CONTAINER_IMAGE"), "line");
        assert_eq!(variable(&all, "RT_CONTAINER_MOUNTS"), "/line");
        assert_eq!(variable(&all, "RT_CONTAINER_WORKDIR"), "/own");
        assert_eq!(all.writable, Some(false));
        assert_eq!(all.entrypoint, None);
        let all = env(&["RT_CONTAINER_IMAGE=own", "PYXIS_CONTAINER_IMAGE=env"], &[]).unwrap();
        assert_eq!(variable(&all, "RT_CONTAINER_IMAGE"), "env");
        let all = env(&["PYXIS_CONTAINER_READONLY=0"], &[]).unwrap();
        assert_eq!((all.writable, all.enabled()), (Some(true), false));
        assert_eq!(
            env(&["PYXIS_CONTAINER_WRITABLE=1", "PYXIS_CONTAINER_READONLY=1"], &[]).unwrap().writable,
            Some(true)
        );
        let error = env(&["PYXIS_CONTAINER_UNSHARE=all"], &[]).unwrap_err();
        assert!(error.starts_with("PYXIS_CONTAINER_UNSHARE: --container-unshare"), "{error}");
    }

    #[test]
    fn options_without_a_container_are_named_once() {
        let all = given(&[("no-container-mount-home", ""), ("container-workdir", "/x")]).unwrap();
        assert_eq!(all.idle().collect::<Vec<_>>(), ["container-workdir", "container-mount-home"]);
        assert_eq!(Options::default().idle().count(), 0);
    }
}
