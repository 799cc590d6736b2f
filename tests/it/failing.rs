//! A call of the kernel that fails is no answer: nothing is taken for dead, removed or stopped because of it.

use crate::filter;
use crate::fixture::{Cmd, Ctx, Out};
use crate::runner::tests;
use crate::sys::Step;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

tests! {
    BOTH {
        a_look_that_fails_is_not_death, a_damaged_state_is_said, a_state_that_cannot_be_read_stays,
        a_damaged_state_names_its_process, what_nobody_makes_is_not_being_created,
        a_list_of_ps_that_cannot_be_read_is_no_panic, a_layer_that_cannot_be_locked_is_named,
        a_search_ends_at_what_cannot_be_looked_at,
    }
    USER { a_record_that_cannot_be_written_pauses_nothing, a_place_that_cannot_be_looked_at_is_not_empty }
}

/// A container is not gone, and no other one is made elsewhere, because the place of the state cannot be looked at.
fn a_place_that_cannot_be_looked_at_is_not_empty(ctx: &Ctx) {
    let runtime_dir = ctx.mkdir("xdg");
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    let rt = |args: &[&str]| ctx.command(ctx.rt_path()).args(args).env("XDG_RUNTIME_DIR", &runtime_dir);
    let id = ctx.id();
    rt(&["create", "--bundle", bundle.dir.to_str().unwrap(), &id]).silent();
    for most in 3..16 {
        let before = || [Step::FileLimit(most, most)];
        let out = rt(&["list", "-q"]).before(before()).run();
        assert!(out.code != 0 || out.stdout.trim() == id, "{most}: {out:?}");
        for words in [&["state", &id][..], &["delete", &id]] {
            let out = rt(words).before(before()).run();
            assert!(!out.stderr.contains("does not exist"), "{most}: {out:?}");
            if out.code == 0 {
                break;
            }
        }
        let other = ctx.id();
        let out = rt(&["create", "--bundle", bundle.dir.to_str().unwrap(), &other]).before(before()).run();
        assert!(out.code == 0 || !out.stderr.contains("somebody else"), "{most}: {out:?}");
        assert!(out.code != 0 || runtime_dir.join("rt").join(&other).exists(), "{most}");
        // With so few descriptors, not even what was begun can be removed.
        rt(&["delete", "--force", &other]).silent();
    }
    rt(&["delete", "--force", &id]).run();
}

/// Runs `command` where these system calls fail so.
fn where_calls_fail(command: Cmd, calls: &[&str], errno: i32) -> Out {
    let rules = filter::fails(calls, errno);
    // A filter is that of a thread.
    let thread = std::thread::spawn(move || {
        filter::load(rules);
        command.run()
    });
    thread.join().unwrap()
}

fn a_list_of_ps_that_cannot_be_read_is_no_panic(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["ready", "pause"]));
    // Whatever waits for two pipes.
    let out = where_calls_fail(ctx.rt(["ps", &container.id]), &["poll", "ppoll"], libc::ENOMEM);
    assert!(out.code == 0 || out.stderr.starts_with("rt: ps: "), "{out:?}");
    ctx.rt(["delete", "--force", &container.id]).ok();
}

fn a_layer_that_cannot_be_locked_is_named(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    let layer = ctx.path("layer");
    for most in 3..40 {
        let run = ctx.rt(["run", "--overlay"]).arg(&layer).arg(&bundle.dir);
        let out = run.before([Step::FileLimit(most, most)]).run();
        assert!(!out.stderr.starts_with("rt: readers"), "{most}: {out:?}");
        if out.code == 0 {
            return;
        }
    }
    panic!("it needs more than 40 descriptors");
}

/// A program of the name in a later directory of PATH is not the one that is meant.
fn a_search_ends_at_what_cannot_be_looked_at(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/args", json!(["probe", "ready"]));
    let bundle = bundle.with("/process/env", json!(["PATH=/none:/bin"]));
    let run = || ctx.rt(["run"]).arg(&bundle.dir);
    let out = where_calls_fail(run(), &["faccessat", "faccessat2", "access"], libc::EIO);
    assert!(out.code != 0 && !out.stderr.contains("not found in $PATH"), "{out:?}");
    run().ok();
}

fn a_look_that_fails_is_not_death(ctx: &Ctx) {
    // In place as without an init of its own: a dead container of that kind is removed by whoever meets it.
    for bundle in [ctx.bundle().without_namespace("pid"), ctx.bundle()] {
        let bundle = bundle.ops(&["ready", "pause"]);
        let id = ctx.id();
        let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
        job.line(0);
        // From the fewest descriptors with which the program starts, to those with which it succeeds.
        for most in 3..16 {
            for words in [&["list"][..], &["state", &id], &["delete", &id], &["list", "-q"]] {
                let out = ctx.rt(words).before([Step::FileLimit(most, most)]).run();
                assert!(out.code != 101 && out.code != 134, "{most}: {out:?}");
                assert!(!out.stdout.contains("stopped"), "{most}: {out:?}");
                assert!(words[0] != "delete" || out.code != 0, "{most}: {out:?}");
            }
            let state = ctx.rt(["state", &id]).ok().json();
            assert_eq!(state["status"], "running", "{most}");
        }
        ctx.rt(["kill", &id, "KILL"]).ok();
        job.wait();
        ctx.rt(["delete", "--force", &id]).ok();
    }
}

fn a_damaged_state_is_said(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    let container = ctx.started(&bundle);
    let file = ctx.state.join(&container.id).join("state.json");
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..20]).unwrap();
    let listed = ctx.rt(["list", "-q"]).run();
    assert!(listed.stderr.contains(&format!("the state of {} is damaged", container.id)), "{listed:?}");
    // The state is needed below: a copy of it comes back under the same name.
    let out = ctx.rt(["delete", "--force", &container.id]).run();
    out.failed(&["is damaged", "its processes are not known, and were not ended"]);
    assert!(!file.exists());
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&file, good).unwrap();
    ctx.give(file.parent().unwrap());
    ctx.rt(["delete", "--force", &container.id]).ok();
}

fn a_damaged_state_names_its_process(ctx: &Ctx) {
    for (bundle, said) in [
        (ctx.bundle(), "it is removed, and its processes were ended"),
        (ctx.bundle().without_namespace("pid"), "its first process was ended; others of it are not known"),
    ] {
        let container = ctx.started(&bundle.ops(&["ready", "pause"]));
        let pid = container.state()["pid"].as_i64().unwrap();
        let file = ctx.state.join(&container.id).join("state.json");
        let good = fs::read_to_string(&file).unwrap();
        // As a file server or a full disk leaves it.
        let cut = good.find("\"mountNs\"").unwrap();
        fs::write(&file, &good[..cut]).unwrap();
        ctx.rt(["delete", "--force", &container.id]).run().failed(&["is damaged", said]);
        assert!(!file.exists());
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}

/// A directory without a state, whose lock nobody holds, is what a runtime has left that could not remove it.
fn what_nobody_makes_is_not_being_created(ctx: &Ctx) {
    let id = ctx.id();
    let dir = ctx.state.join(&id);
    fs::create_dir_all(&dir).unwrap();
    for dir in [&ctx.state, &dir] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        ctx.give(dir);
    }
    let status = || ctx.rt(["state", &id]).ok().json()["status"].as_str().unwrap().to_owned();
    assert_eq!(status(), "creating");
    ctx.rt(["delete", &id]).fails(&["is being created"]);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    fs::File::open(&dir).unwrap().set_modified(old).unwrap();
    assert_eq!(status(), "stopped");
    ctx.rt(["delete", &id]).ok();
    assert!(!dir.exists());
}

fn a_state_that_cannot_be_read_stays(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    let container = ctx.started(&bundle);
    for most in 3..16 {
        let out = ctx.rt(["delete", "--force", &container.id]).before([Step::FileLimit(most, most)]).run();
        let stopped = out.code == 0;
        assert_eq!(ctx.state.join(&container.id).exists(), !stopped, "{most}: {out:?}");
        if stopped {
            return;
        }
        assert_eq!(container.status(), "running", "{most}: {out:?}");
    }
    container.delete();
}

fn a_record_that_cannot_be_written_pauses_nothing(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    let container = ctx.started(&bundle);
    let dir = ctx.state.join(&container.id);
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    ctx.rt(["pause", &container.id]).fails(&["state of"]);
    mode(0o700);
    assert_eq!(container.status(), "running");
    let pid = container.state()["pid"].as_i64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!status.contains("State:\tT"), "{status}");
    // And what is paused goes on, whether that can be written or not.
    ctx.rt(["pause", &container.id]).ok();
    mode(0o500);
    ctx.rt(["resume", &container.id])
        .fails(&["go on, but its state still says that it is paused", "state of"]);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!status.contains("State:\tT"), "{status}");
    mode(0o700);
    ctx.rt(["resume", &container.id]).ok();
    assert_eq!(json!(container.status()), "running");
    ctx.rt(["delete", "--force", &container.id]).ok();
}
