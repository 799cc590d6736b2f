//! Root of one id: what only a root with all ids can do is answered with success, by a seccomp filter.

use super::config::Seccomp;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall, LinuxSyscallBuilder,
};
use rt_sys::bail;
use rt_sys::error::{Error, Result};

/// The types of mknod(2) that are not devices, for which it does what it is asked: none, S_IFREG, S_IFIFO, S_IFSOCK.
const NO_DEVICES: [u64; 4] = [0, 0o100_000, 0o010_000, 0o140_000];

/// How root of one id is emulated (annotation `rt.root-emulation`, `--root-emulation`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RootEmulation {
    /// Success is answered, and nothing is kept.
    #[default]
    Off,
    /// Owners and devices are recorded.
    Fast,
    /// They are, and whoever asks for them is told what is recorded.
    Full,
}

impl RootEmulation {
    /// The word that [`parse_root_emulation`] takes.
    pub fn as_str(self) -> &'static str {
        match self {
            RootEmulation::Off => "off",
            RootEmulation::Fast => "fast",
            RootEmulation::Full => "full",
        }
    }
}

/// The word of `--root-emulation` and of the annotation `rt.root-emulation`.
pub fn parse_root_emulation(word: &str) -> Result<RootEmulation> {
    Ok(match word {
        "off" => RootEmulation::Off,
        "fast" => RootEmulation::Fast,
        "full" => RootEmulation::Full,
        _ => bail!("root emulation {word:?} is none of full, fast and off"),
    })
}

/// What asks for owners. Of statx(2) only what asks for them by its mask, the fourth argument.
const ASKING: [&str; 4] = ["stat", "lstat", "fstat", "newfstatat"];
const STATX_UID: u64 = 0x8;
const STATX_GID: u64 = 0x10;

/// The seccomp section that answers with success what only root with all ids can do (owners, ids, capabilities,
/// device nodes), so that package managers run where one id is mapped. What `emulation` records is asked of a listener.
pub fn root_emulation(emulation: RootEmulation) -> Result<LinuxSeccomp> {
    let read: Seccomp =
        serde_json::from_str(include_str!("root_emulation.json")).map_err(super::json_error)?;
    let mut section = read.section;
    let mut rules = section.syscalls().clone().unwrap_or_default();
    if emulation != RootEmulation::Off {
        for rule in &mut rules {
            if rule.names().iter().any(|name| name.contains("chown") || name.contains("mknod")) {
                rule.set_action(LinuxSeccompAction::ScmpActNotify).set_errno_ret(None);
            }
        }
    }
    if emulation == RootEmulation::Full {
        rules.push(rule(&ASKING, LinuxSeccompAction::ScmpActNotify, None)?);
        for bit in [STATX_UID, STATX_GID] {
            rules.push(rule(&["statx"], LinuxSeccompAction::ScmpActNotify, Some((bit, bit)))?);
        }
    }
    section.set_syscalls(Some(rules));
    Ok(section)
}

/// A rule for the calls `names`; those whose fourth argument has a value in the bits of a mask, where it is given.
fn rule(names: &[&str], action: LinuxSeccompAction, masked: Option<(u64, u64)>) -> Result<LinuxSyscall> {
    let failed = |e: OciSpecError| Error::new(e.to_string());
    let arg = |(mask, value): (u64, u64)| {
        let op = LinuxSeccompOperator::ScmpCmpMaskedEq;
        LinuxSeccompArgBuilder::default().index(3usize).value(mask).value_two(value).op(op).build()
    };
    let args = masked.map(arg).transpose().map_err(failed)?;
    let builder = LinuxSyscallBuilder::default()
        .names(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .action(action);
    match args {
        Some(arg) => builder.args(vec![arg]).build().map_err(failed),
        None => builder.build().map_err(failed),
    }
}

/// `section` with these answers in the place of what it allows. What it refuses stays refused, and what it allows only with
/// certain arguments stays as it is.
pub fn with_root_emulation(section: &LinuxSeccomp, emulation: RootEmulation) -> Result<LinuxSeccomp> {
    let rules = section.syscalls().clone().unwrap_or_default();
    let by_default = section.default_action() == LinuxSeccompAction::ScmpActAllow;
    let is_allowed = |name: &String| {
        let mut named = rules.iter().filter(|rule| rule.names().contains(name)).peekable();
        if named.peek().is_none() { by_default } else { named.all(allows) }
    };
    let mut answers: Vec<LinuxSyscall> = root_emulation(emulation)?.syscalls().clone().unwrap_or_default();
    for answer in &mut answers {
        retain_names(answer, is_allowed);
    }
    let answered = |name: &String| answers.iter().any(|answer| answer.names().contains(name));
    let mut merged = rules.clone();
    for rule in &mut merged {
        retain_names(rule, |name| !answered(name));
    }
    let mut exceptions: Vec<LinuxSyscall> = Vec::new();
    for answer in answers.iter().filter(|answer| !by_default && answer.args().is_some()) {
        if exceptions.iter().any(|exception| exception.names() == answer.names()) {
            continue;
        }
        if answer.names().iter().any(|name| name == "statx") {
            let unasked = Some((STATX_UID | STATX_GID, 0));
            exceptions.push(rule(&["statx"], LinuxSeccompAction::ScmpActAllow, unasked)?);
            continue;
        }
        for kind in NO_DEVICES {
            let other = |arg: &LinuxSeccompArg| {
                let (index, value, op) = (arg.index(), arg.value(), arg.op());
                LinuxSeccompArgBuilder::default().index(index).value(value).value_two(kind).op(op).build()
            };
            let args: std::result::Result<Vec<_>, _> = answer.args().iter().flatten().map(other).collect();
            let args = args.map_err(|e| Error::new(e.to_string()))?;
            let mut exception = answer.clone();
            exception.set_action(LinuxSeccompAction::ScmpActAllow).set_errno_ret(None).set_args(Some(args));
            exceptions.push(exception);
        }
    }
    merged.extend(answers);
    merged.extend(exceptions);
    merged.retain(|rule| !rule.names().is_empty());
    let mut section = section.clone();
    section.set_syscalls(Some(merged));
    Ok(section)
}

/// True for a rule that allows its calls, whatever their arguments.
fn allows(rule: &LinuxSyscall) -> bool {
    rule.action() == LinuxSeccompAction::ScmpActAllow && rule.args().as_ref().is_none_or(Vec::is_empty)
}

fn retain_names(rule: &mut LinuxSyscall, keep: impl Fn(&String) -> bool) {
    let names = rule.names().iter().filter(|name| keep(name)).cloned().collect();
    rule.set_names(names);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The rules that a section has with the emulation, by the names that they are about.
    fn merged(section: Value) -> Vec<(Vec<String>, Value)> {
        let section: Seccomp = serde_json::from_value(section).unwrap();
        let merged = with_root_emulation(&section.section, RootEmulation::Off).unwrap();
        let rules = merged.syscalls().clone().unwrap();
        rules.into_iter().map(|rule| (rule.names().clone(), serde_json::to_value(&rule).unwrap())).collect()
    }

    fn about<'a>(rules: &'a [(Vec<String>, Value)], name: &str) -> Vec<&'a Value> {
        rules.iter().filter(|(names, _)| names.iter().any(|n| n == name)).map(|(_, rule)| rule).collect()
    }

    #[test]
    fn what_is_allowed_is_answered() {
        let rules = merged(json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            { "names": ["read", "chown", "mknod", "setuid"], "action": "SCMP_ACT_ALLOW" },
            { "names": ["fchown"], "action": "SCMP_ACT_ERRNO", "errnoRet": 33 },
            { "names": ["setgid"], "action": "SCMP_ACT_ALLOW", "args": [{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }] },
        ] }));
        for name in ["chown", "setuid"] {
            let rules = about(&rules, name);
            assert_eq!(rules.len(), 1, "{name}");
            assert_eq!((&rules[0]["action"], &rules[0]["errnoRet"]), (&json!("SCMP_ACT_ERRNO"), &json!(0)));
        }
        assert_eq!(about(&rules, "read")[0]["action"], "SCMP_ACT_ALLOW");
        assert_eq!(about(&rules, "fchown")[0]["errnoRet"], 33, "what is refused stays refused");
        assert_eq!(about(&rules, "setgid").len(), 1, "what is allowed with some arguments stays as it is");
        assert!(about(&rules, "lchown").is_empty(), "what is refused by default stays refused");
        let mknod: Vec<&Value> = about(&rules, "mknod");
        let allowed = mknod.iter().filter(|rule| rule["action"] == "SCMP_ACT_ALLOW").count();
        assert_eq!((mknod.len(), allowed), (6, 4), "devices are answered, and all else is made");
        is_unambiguous(&rules);
    }

    #[test]
    fn what_is_allowed_by_default_is_answered() {
        let rules = merged(json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            { "names": ["chown"], "action": "SCMP_ACT_ERRNO", "errnoRet": 33 } ] }));
        assert_eq!(about(&rules, "chown").len(), 1);
        assert_eq!(about(&rules, "chown")[0]["errnoRet"], 33);
        assert_eq!(about(&rules, "lchown")[0]["errnoRet"], 0);
        assert_eq!(about(&rules, "mknod").len(), 2);
    }

    /// No name is in two rules without arguments.
    fn is_unambiguous(rules: &[(Vec<String>, Value)]) {
        let mut seen = std::collections::HashSet::new();
        for (names, _) in rules.iter().filter(|(_, rule)| rule.get("args").is_none_or(Value::is_null)) {
            assert!(names.iter().all(|name| seen.insert(name.clone())), "{names:?}");
        }
    }
}
