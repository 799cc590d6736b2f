//! Makes one system call of a program, or of a process below it, fail: `faults record -- COMMAND` lists the calls of a run,
//! `faults inject N KIND -- COMMAND` runs it again and lets the N-th of the list fail.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod sys;
mod trace;

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
