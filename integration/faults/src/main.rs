//! Makes one system call of a program, or of a process below it, fail: `faults record -- COMMAND` lists the calls of a run,
//! `faults inject N KIND -- COMMAND` runs it again and lets the N-th of the list fail.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod battery;
mod calls;
mod operations;
mod registry;
mod sys;
mod trace;
mod tree;

use std::io;
use std::time::Duration;

use calls::Kind;
use trace::{Mode, Tracer};

const USAGE: &str = "usage: faults record -- COMMAND... | faults inject N KIND -- COMMAND...";

fn main() {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(status) => std::process::exit(status),
        Err(e) => {
            eprintln!("faults: {e}");
            std::process::exit(2);
        }
    }
}

fn run(arguments: &[String]) -> io::Result<i32> {
    let usage = || io::Error::other(USAGE);
    if arguments.first().is_some_and(|a| a == "battery") {
        let asked = asked(&arguments[1..])?;
        let Some(part) = asked.part else {
            return Ok(i32::from(battery::run(&asked, &arguments[1..])? != 0));
        };
        sys::prepare()?;
        battery::run_part(&asked, part)?;
        return Ok(0);
    }
    let end = arguments.iter().position(|a| a == "--").ok_or_else(usage)?;
    let (words, command) = (&arguments[..end], &arguments[end + 1..]);
    if command.is_empty() {
        return Err(usage());
    }
    sys::prepare()?;
    let dir = std::env::current_dir()?;
    let mut tracer = Tracer::new(&dir, &["rt", "rt-pull", "rt-image"], None, Duration::from_secs(20));
    tracer.environment(&std::env::vars().collect::<Vec<_>>());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let list = tracer.run(command, Mode::Record, 0)?;
    tracer.kill_all();
    let outcome = match words[..] {
        ["record"] => {
            for (n, (process, point)) in list.points.iter().enumerate() {
                let faults = calls::faults(&point.call, &point.path).join(",");
                println!("{} process {process}: {} ({faults})", n + 1, point.text());
            }
            list
        }
        ["inject", n, kind] => {
            let kind = Kind::parse(kind).ok_or_else(|| io::Error::other(format!("{kind}: no such fault")))?;
            let n = n.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let point = n.and_then(|n| list.points.get(n)).ok_or_else(|| io::Error::other("no such call"))?;
            println!("at {}", point.1.text());
            tracer.run(command, Mode::Inject(point.1.clone(), kind), 0)?
        }
        _ => return Err(usage()),
    };
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    println!(
        "status {:#x}, reached {}, hung {}, left {} ({} stopped), good {}",
        outcome.status,
        outcome.reached,
        outcome.hung,
        outcome.left,
        outcome.stopped,
        outcome.good()
    );
    Ok(i32::from(!outcome.good()))
}

/// `RT [--all] [--faults N] [--seed N] [--only OPERATION] [--repeat OPERATION:CALL:KIND] [--jobs N]`
fn asked(arguments: &[String]) -> io::Result<battery::Asked> {
    let bad = |what: &str| io::Error::other(format!("{what}: what is this?"));
    let mut all = arguments.iter();
    let rt = std::fs::canonicalize(all.next().ok_or_else(|| bad("no rt"))?)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut asked =
        battery::Asked { rt, faults: Some(2000), seed: 20261124, only: None, repeat: None, jobs, part: None };
    while let Some(flag) = all.next() {
        let mut value = || all.next().ok_or_else(|| bad(flag));
        match flag.as_str() {
            "--all" => asked.faults = None,
            "--faults" => asked.faults = Some(value()?.parse().map_err(|_| bad(flag))?),
            "--seed" => asked.seed = value()?.parse().map_err(|_| bad(flag))?,
            "--jobs" => asked.jobs = value()?.parse().map_err(|_| bad(flag))?,
            "--part" => asked.part = Some(value()?.parse().map_err(|_| bad(flag))?),
            "--only" => asked.only = Some(value()?.clone()),
            "--repeat" => {
                let (operation, fault) = value()?.split_once(':').ok_or_else(|| bad(flag))?;
                // The path of a call may have colons.
                let (call, kind) = fault.rsplit_once(':').ok_or_else(|| bad(flag))?;
                asked.only = Some(operation.to_owned());
                asked.repeat = Some((call.to_owned(), kind.to_owned()));
            }
            _ => return Err(bad(flag)),
        }
    }
    if asked.only.as_ref().is_some_and(|only| !operations::OPERATIONS.iter().any(|o| o.name == *only)) {
        return Err(bad(asked.only.as_deref().unwrap_or_default()));
    }
    // One fault is one process's.
    asked.jobs = if asked.repeat.is_some() { 1 } else { asked.jobs.max(1) };
    Ok(asked)
}
