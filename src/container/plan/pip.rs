//! What is said to who installs with pip where nothing keeps it: pip takes the user's own directory where the image is read-only, and
//! without the caller's home that is in /tmp of the container. pip calls it a success.

use crate::container::RootAccess;
use rt_spec::{Spec, annotations};
use rt_sys::error::Result;
use rt_sys::log;

/// The home inside of a caller whose own is not mounted.
const PRIVATE_HOME: &str = "/tmp";
/// Flags by which pip writes elsewhere, or nothing.
const ELSEWHERE: [&str; 6] = ["-t", "--target", "--prefix", "--root", "--dry-run", "--help"];

/// Says that what pip is about to install is gone with the container, where that is so.
pub(super) fn tell(spec: &Spec, access: &RootAccess) -> Result<()> {
    let Some(process) = spec.process().as_ref() else { return Ok(()) };
    let is_read_only = spec.root().as_ref().is_some_and(|root| root.readonly() == Some(true))
        && matches!(access, RootAccess::AsConfigured | RootAccess::ReadOnly);
    let goes_elsewhere = |variable: &String| match variable.split_once('=') {
        Some(("HOME", home)) => home != PRIVATE_HOME,
        Some((name, _)) => name == "PYTHONUSERBASE",
        None => false,
    };
    if installs(process.args().as_deref().unwrap_or_default())
        && is_read_only
        && !annotations::asks_for_home(spec)?
        && !process.env().iter().flatten().any(goes_elsewhere)
    {
        log::tell(format_args!(
            "what pip installs here is gone with the container (--home keeps it, in the home directory)"
        ));
    }
    Ok(())
}

/// True for `pip install` and `python -m pip install` of the image's own Python, whatever their versions.
fn installs(args: &[String]) -> bool {
    let Some((program, words)) = args.split_first() else { return false };
    let is = |name: &str| {
        program
            .strip_prefix(name)
            .is_some_and(|version| version.bytes().all(|c| c.is_ascii_digit() || c == b'.'))
    };
    let words = match words {
        [module, pip, words @ ..] if is("python") && module == "-m" && pip == "pip" => words,
        words if is("pip") => words,
        _ => return false,
    };
    let is_elsewhere = |word: &String| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        ELSEWHERE.contains(&name)
    };
    words.first().is_some_and(|word| word == "install") && !words.iter().any(is_elsewhere)
}

#[cfg(test)]
mod tests {
    use super::installs;

    #[test]
    fn pip_is_known_by_its_names() {
        let said = |line: &str| installs(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["pip install x", "pip3.11 install -U x", "python3 -m pip install x"] {
            assert!(said(line), "{line}");
        }
        for line in [
            "pip list",
            "pipx install x",
            "venv/bin/pip install x",
            "python3 -m venv install",
            "pip install --target=d x",
            "",
        ] {
            assert!(!said(line), "{line}");
        }
    }
}
