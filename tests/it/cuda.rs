//! What stands for NVIDIA's cuda-checkpoint: it keeps the state of each process in a directory beside itself, and says what it
//! was asked for. Files `fails` and `hangs` there name an action that does so.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Runs `PROGRAM ARGS...` and returns its exit code.
pub fn main(program: &str, args: &[String]) -> i32 {
    let dir = Path::new(program).parent().unwrap_or(Path::new("."));
    let value = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1).map(String::as_str);
    let Some(pid) = value("--pid") else { return 2 };
    let action = value("--action").unwrap_or("get-state");
    let file = dir.join(format!("state-{pid}"));
    let state = fs::read_to_string(&file).unwrap_or_else(|_| "running".to_owned());
    let asked = |name: &str| fs::read_to_string(dir.join(name)).is_ok_and(|text| text == action);
    let next = match (action, state.as_str()) {
        ("get-state", _) => {
            println!("{state}");
            return 0;
        }
        _ if asked("fails") => return refuse(action, pid),
        ("lock", "running") => "locked",
        ("checkpoint", "locked") => "checkpointed",
        ("restore", "checkpointed") => "locked",
        ("unlock", "locked") => "running",
        _ => return refuse(action, pid),
    };
    let mut log = match OpenOptions::new().create(true).append(true).open(dir.join("log")) {
        Ok(log) => log,
        Err(_) => return 3,
    };
    let written = fs::write(&file, next).and_then(|()| writeln!(log, "{action}"));
    while asked("hangs") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    i32::from(written.is_err())
}

fn refuse(action: &str, pid: &str) -> i32 {
    eprintln!(
        "Could not {action} on process ID {pid}: \"the operation cannot be performed in the present state\""
    );
    1
}
