//! A command under a seccomp filter, by which system calls of its fail. The tests of rt-image and of rt take this file, too.
#![allow(dead_code, reason = "not all of them take all of it")]

use std::process::Command;

/// What `start` gives for `command`, which it starts under a filter with these rules of a config's `syscalls`.
pub fn under_filter<T: Send + 'static>(
    mut command: Command,
    rules: serde_json::Value,
    start: fn(&mut Command) -> T,
) -> T {
    // A filter is that of a thread, and its child has it, too.
    let thread = std::thread::spawn(move || {
        load(rules);
        start(&mut command)
    });
    thread.join().unwrap()
}

/// Loads a filter with these rules of a config's `syscalls` for this thread and its children.
pub fn load(rules: serde_json::Value) {
    let section = serde_json::json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules });
    let program = oci_seccomp::compile(&serde_json::from_value(section).unwrap()).unwrap();
    let instruction =
        |i: &oci_seccomp::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    let filter = rt_sys::seccomp::Filter {
        instructions: program.instructions.iter().map(instruction).collect(),
        flags: program.flags,
        notifies: false,
    };
    rustix::thread::set_no_new_privs(true).unwrap();
    rt_sys::seccomp::load(&filter).unwrap();
}

/// The rules by which these system calls fail so.
pub fn fails(calls: &[&str], errno: i32) -> serde_json::Value {
    serde_json::json!([{ "names": calls, "action": "SCMP_ACT_ERRNO", "errnoRet": errno }])
}
