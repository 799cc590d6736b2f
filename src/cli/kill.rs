//! `rt kill`

use super::Call;
use super::Named;
use super::table::*;
use crate::container::{self, Receiver};
use crate::pattern;
use crate::store::Store;
use rt_cli::signals::NAMES;
use rt_sys::bail;
use rt_sys::error::Result;

/// Sends a signal to a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let signal = match call.operands.get(1) {
        Some(name) => signal(&name.to_string_lossy())?,
        None => 15,
    };
    let receiver = match call.flags.has(&ALL) {
        true => Receiver::AllProcesses,
        false => Receiver::FirstProcess,
    };
    if !call.flags.has(&REGEX) {
        let Named { store, id, task } = super::find(call)?;
        match task.filter(|_| receiver == Receiver::FirstProcess) {
            Some(task) => container::tasks_kill(&store, &task.id, signal)?,
            None => container::kill(&store, &id, signal, receiver)?,
        }
        return Ok(0);
    }
    let store = super::store(call)?;
    for id in matching(&store, call.id()?)? {
        container::kill(&store, &id, signal, receiver)?;
    }
    Ok(0)
}

/// The ids that `pattern` matches.
pub(super) fn matching(store: &Store, pattern: &str) -> Result<Vec<String>> {
    let regex = pattern::compile(pattern)?;
    let ids = store.list()?.into_iter().map(|record| record.id);
    Ok(ids.filter(|id| regex.is_match(id)).collect())
}

const ALIASES: [(&str, i32); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];
/// The first and the last real-time signal that a program may use.
const RT: (i32, i32) = (34, 64);

/// The number that `text` means: a number, or a name with or without SIG, in either case.
pub(super) fn signal(text: &str) -> Result<i32> {
    if let Ok(number @ 0..=64) = text.parse() {
        return Ok(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let standard = NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number);
    let alias = || ALIASES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    match standard.or_else(alias).or_else(|| real_time(name)) {
        Some(number) => Ok(number),
        None => bail!("unknown signal {text:?}"),
    }
}

/// `RTMIN`, `RTMIN+n`, `RTMAX-n`, `RTMAX`.
fn real_time(name: &str) -> Option<i32> {
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(""), _) => RT.0,
        (_, Some("")) => RT.1,
        (Some(more), _) => RT.0 + i32::from(more.strip_prefix('+')?.parse::<u8>().ok()?),
        (_, Some(less)) => RT.1 - i32::from(less.strip_prefix('-')?.parse::<u8>().ok()?),
        _ => return None,
    };
    (RT.0..=RT.1).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_number_and_by_name() {
        for (text, number) in [
            ("9", 9),
            ("0", 0),
            ("64", 64),
            ("KILL", 9),
            ("SIGKILL", 9),
            ("sigterm", 15),
            ("Usr1", 10),
            ("CHLD", 17),
            ("SIGCLD", 17),
            ("IOT", 6),
            ("POLL", 29),
            ("SIGSYS", 31),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("rtmax-1", 63),
            ("SIGRTMAX", 64),
        ] {
            assert_eq!(signal(text).unwrap(), number, "{text}");
        }
        for text in
            ["FOO", "", "SIG", "-9", "65", "99", "RTMIN+31", "RTMIN-1", "RTMAX-31", "RTMIN+", "KILLER"]
        {
            assert_eq!(signal(text).unwrap_err().to_string(), format!("unknown signal {text:?}"));
        }
    }

    #[test]
    fn numbers_are_this_machines() {
        for (number, name) in [
            (libc::SIGHUP, "HUP"),
            (libc::SIGBUS, "BUS"),
            (libc::SIGUSR1, "USR1"),
            (libc::SIGCHLD, "CHLD"),
            (libc::SIGSTKFLT, "STKFLT"),
            (libc::SIGSYS, "SYS"),
            (libc::SIGPWR, "PWR"),
            (libc::SIGURG, "URG"),
            (libc::SIGWINCH, "WINCH"),
        ] {
            assert_eq!(signal(name).unwrap(), number);
        }
    }
}
