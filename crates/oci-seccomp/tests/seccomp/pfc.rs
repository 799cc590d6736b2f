//! Runs libseccomp's "pseudo filter code" (seccomp_export_pfc(3)).
//!
//! libseccomp's rules and the programs that it makes of them sometimes differ: blocks that two
//! calls share can expect another word to be loaded. Where a program disagrees with ours, this
//! text says what libseccomp itself takes the rules to mean.

use super::bpf::Call;

/// What the described filter returns for a call.
pub fn run(text: &str, call: &Call) -> u32 {
    let lines = text.lines().map(|line| (line.len() - line.trim_start().len(), line.trim()));
    // The depth of the innermost test that holds, and of the last that failed.
    let mut outer: Vec<(usize, bool)> = Vec::new();
    // x86_64 and x32 are written as two filters for one architecture, each with its default.
    let both = text.contains("# filter for arch x32 ");
    let mut skipping = false;
    for (depth, line) in lines {
        if let Some(arch) = line.strip_prefix("# filter for arch ") {
            let x32 = call.number >= 0x4000_0000;
            skipping = both && (arch.starts_with("x86_64 ") && x32 || arch.starts_with("x32 ") && !x32);
        }
        if line.starts_with("# invalid architecture") {
            skipping = false;
        }
        if line.starts_with('#') || skipping {
            continue;
        }
        while outer.last().is_some_and(|(at, _)| *at > depth || *at == depth && line != "else") {
            outer.pop();
        }
        let live = match outer.split_last() {
            None => true,
            Some(((at, _), rest)) if *at == depth => rest.iter().all(|(_, holds)| *holds),
            Some(_) => outer.iter().all(|(_, holds)| *holds),
        };
        if line == "else" {
            let (_, holds) = outer.last_mut().expect("an else has its if");
            *holds = !*holds;
        } else if let Some(test) = line.strip_prefix("if (") {
            outer.push((depth, live && holds(test.trim_end_matches(')'), call)));
        } else if let Some(action) = line.strip_prefix("action ")
            && live
        {
            return answer(action.trim_end_matches(';'));
        }
    }
    panic!("no action for {call:x?} in\n{text}");
}

fn holds(test: &str, call: &Call) -> bool {
    let words: Vec<_> = test.split(' ').collect();
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let mut value = match words[0] {
        "$arch" => {
            let arch: u32 = number(words[2]);
            // PFC has libseccomp's own value for x32 in some versions.
            return call.arch == if arch == 0x4000_003e { 0xc000_003e } else { arch };
        }
        "$syscall" => call.number,
        argument => {
            let value = call.arguments[argument[2..3].parse::<usize>().unwrap()];
            if argument.ends_with(".hi32") { (value >> 32) as u32 } else { value as u32 }
        }
    };
    let mut rest = &words[1..];
    if rest[0] == "&" {
        value &= number(rest[1]);
        rest = &rest[2..];
    }
    let other = number(rest[1]);
    match rest[0] {
        "==" => value == other,
        ">" => value > other,
        ">=" => value >= other,
        operator => panic!("operator {operator}"),
    }
}

fn answer(action: &str) -> u32 {
    let (name, data) = action.split_once('(').unwrap_or((action, "0)"));
    let data: u32 = data.trim_end_matches(')').parse().unwrap();
    data | match name {
        "KILL" => 0,
        "KILL_PROCESS" => 0x8000_0000,
        "TRAP" => 0x0003_0000,
        "ERRNO" => 0x0005_0000,
        "TRACE" => 0x7ff0_0000,
        "LOG" => 0x7ffc_0000,
        "ALLOW" => 0x7fff_0000,
        "NOTIFY" => 0x7fc0_0000,
        _ => panic!("action {action}"),
    }
}
