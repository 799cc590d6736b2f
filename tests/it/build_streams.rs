//! `rt build`: what a RUN has as its standard streams, and what it says through them.

use crate::build::{BASE, build, built, bundle, context, is_clean, put, said};
use crate::fixture::Ctx;
use crate::runner::tests;
use crate::sys::{self, Step};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

tests! {
    ALL { a_log_of_the_caller_stays_his }
    BOTH { a_terminal_of_the_caller_stays_his, a_pipe_of_somebody_else, all_that_is_said_comes_in_order, who_keeps_the_pipe_holds_up_nothing }
}

/// What a RUN finds out about its streams, and writes to them by their names.
const STREAMS: &str = r#"RUN ["/probe","links /proc/self/fd","tty 0","tty 1","tty 2","write /proc/self/fd/2 named","writefd 1 too","write /made x"]"#;

/// Standard output and error are one pipe, and standard input is nothing.
fn are_of_the_build(lines: &[Value]) {
    let links = &lines[0];
    assert_eq!(links["0"], "/dev/null", "{lines:?}");
    assert!(links["1"].as_str().unwrap().starts_with("pipe:["), "{lines:?}");
    assert_eq!(links["1"], links["2"], "{lines:?}");
    assert!(lines[1..4].iter().all(|stream| stream["tty"] == json!(false)), "{lines:?}");
}

/// A file of the caller that standard error goes to is neither read nor emptied by way of /proc/self/fd.
fn a_log_of_the_caller_stays_his(ctx: &Ctx) {
    context(ctx);
    let log = ctx.file("job.log", "TOPSECRET\n");
    let open = fs::OpenOptions::new().read(true).append(true).open(&log).unwrap();
    let fd = open.as_raw_fd();
    let out = build(ctx, &format!("{BASE}{STREAMS}\n"), &[]).before([Step::Dup(fd, 2)]).ok();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("TOPSECRET\n[") && text.contains("namednull\ntoonull\n"), "{text}");
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>();
    are_of_the_build(&lines);
    assert_eq!(fs::read(bundle(ctx, &out).join("rootfs/made")).unwrap(), b"x");
    is_clean(ctx);
}

fn a_terminal_of_the_caller_stays_his(ctx: &Ctx) {
    context(ctx);
    let (mut master, slave) = sys::openpty().map(|(m, s)| (fs::File::from(m), s)).unwrap();
    let fd = slave.as_raw_fd();
    let steps = [Step::Dup(fd, 0), Step::Dup(fd, 2), Step::Terminal(0)];
    // A controlling terminal has a name of its own, which no RUN may open either.
    let file = format!("{BASE}{STREAMS}\nRUN head /dev/tty 1\n");
    let mut job = build(ctx, &file, &[]).before(steps).spawn();
    drop(slave);
    let reader = std::thread::spawn(move || {
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        // Once nobody else has it, reading a terminal is an error.
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8(text).unwrap()
    });
    let code = job.child.wait().unwrap().code();
    let text = reader.join().unwrap();
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    are_of_the_build(&lines);
    assert!(lines.last().unwrap()["errno"].is_number(), "/dev/tty: {text}");
}

/// The streams can be opened by their names whoever has made the pipe that the caller has.
fn a_pipe_of_somebody_else(ctx: &Ctx) {
    context(ctx);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let fd = writer.as_raw_fd();
    let job = build(ctx, &format!("{BASE}{STREAMS}\n"), &[]).before([Step::Dup(fd, 2)]).spawn();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(job.wait().code, 0, "{text}");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    are_of_the_build(&lines);
    assert!(!text.contains("errno") && text.contains("namednull\ntoonull\n"), "{text}");
}

fn all_that_is_said_comes_in_order(ctx: &Ctx) {
    context(ctx);
    put(ctx, "big", &"x".repeat(300_000));
    let run = r#"RUN ["/probe","say 1","stderr 2","say 3","cat /big","say last"]"#;
    let out = built(ctx, &format!("{BASE}COPY big /\n{run}\n"), &[]);
    let said = said(&out);
    assert_eq!((&said[0], &said[1], &said[2]), (&json!("1"), &json!(2), &json!(null)), "{:?}", &said[..3]);
    assert_eq!(said.iter().position(|line| line.as_str().is_some_and(|text| text.len() == 300_000)), Some(4));
    assert_eq!(said.last().unwrap(), "last");
}

/// What a RUN has left behind in its container ends with it, though it has the pipe still open.
fn who_keeps_the_pipe_holds_up_nothing(ctx: &Ctx) {
    context(ctx);
    let begin = Instant::now();
    let out = built(ctx, &format!("{BASE}RUN [\"/probe\",\"orphan sleep 60000\",\"say done\"]\n"), &[]);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_eq!(said(&out).last().unwrap(), "done");
    is_clean(ctx);
}
