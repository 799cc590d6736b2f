//! `rt build`: stages that do not need each other, side by side.

use crate::build::{BASE, build, built, bundle, context, is_clean, put, refused, rt};
use crate::fixture::{Ctx, Out, eventually};
use crate::runner::{skip, tests};
use crate::sys;
use std::fs;
use std::time::{Duration, Instant};

tests! {
    ALL { stages_run_side_by_side }
    BOTH { one_processor_builds_one_stage, one_failure_ends_all, ctrl_c_ends_all_stages, no_stage_repeats_another, stages_wait_for_what_they_need }
}

/// Two stages, each of which ends only after the other has begun, and one that has files of both.
fn that_wait_for_each_other() -> String {
    let run = |mine: &str, other: &str| {
        format!(
            "RUN --mount=type=cache,target=/c [\"/probe\",\"say begin\",\"write /c/{mine} x\",\"until /c/{other}\",\"write /made-{mine} {mine}\"]\n"
        )
    };
    format!(
        "FROM scratch AS base\nCOPY base /\nFROM base AS a\n{}FROM base AS b\n{}FROM scratch\nCOPY --from=a /made-a /\nCOPY --from=b /made-b /\n",
        run("a", "b"),
        run("b", "a")
    )
}

fn needs_two_processors() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip!("one processor");
    }
}

fn has_line(out: &Out, line: &str) -> bool {
    out.stderr.lines().any(|other| other == line)
}

fn stages_run_side_by_side(ctx: &Ctx) {
    needs_two_processors();
    context(ctx);
    let out = built(ctx, &that_wait_for_each_other(), &["-t", "x"]);
    for name in ["a", "b"] {
        let made = fs::read_to_string(bundle(ctx, &out).join("rootfs").join(format!("made-{name}")));
        assert_eq!(made.unwrap(), name);
        // Each line says whose it is.
        assert!(has_line(&out, &format!("[{name} 1/1] \"begin\"")), "{out:?}");
    }
    let again = built(ctx, &that_wait_for_each_other(), &["-t", "x"]);
    assert_eq!(again.stdout, out.stdout);
    assert!(!again.stderr.contains("\"begin\"\n"), "{again:?}");
    is_clean(ctx);
}

/// Two stages that do not depend on each other, and say `in-a` and `in-b`.
pub fn two_stages() -> String {
    let stage = |name: &str| format!("FROM base AS {name}\nRUN [\"/probe\",\"say in-{name}\"]\n");
    format!(
        "FROM scratch AS base\nCOPY base /\n{}{}FROM scratch\nCOPY --from=b /probe /b\nCOPY --from=a /probe /a\n",
        stage("a"),
        stage("b")
    )
}

/// A job of one processor builds them in their order, and lines are as the command writes them.
fn one_processor_builds_one_stage(ctx: &Ctx) {
    context(ctx);
    put(ctx, "Containerfile", &two_stages());
    let rt = rt(ctx, &["build", "context"]);
    let out = rt.before([sys::Step::Cpu(0)]).ok();
    assert!(has_line(&out, "\"in-a\"") && has_line(&out, "\"in-b\""), "{out:?}");
}

fn one_failure_ends_all(ctx: &Ctx) {
    needs_two_processors();
    context(ctx);
    let file = "FROM scratch AS base\nCOPY base /\n\
        FROM base AS slow\nRUN --mount=type=cache,target=/c [\"/probe\",\"write /c/begun x\",\"deaf\"]\n\
        FROM base AS wrong\nRUN --mount=type=cache,target=/c [\"/probe\",\"until /c/begun\",\"exit 3\"]\n\
        FROM base\nCOPY --from=slow /probe /a\nCOPY --from=wrong /probe /b\n";
    let begin = Instant::now();
    refused(build(ctx, file, &[]), &["Containerfile: line 6: RUN", "exit code 3"]);
    assert!(begin.elapsed() < Duration::from_secs(60));
    is_clean(ctx);
}

fn ctrl_c_ends_all_stages(ctx: &Ctx) {
    needs_two_processors();
    context(ctx);
    let stage = |name: &str| format!("FROM base AS {name}\nRUN [\"/probe\",\"say {name}\",\"deaf\"]\n");
    let file = format!(
        "FROM scratch AS base\nCOPY base /\n{}{}FROM base\nCOPY --from=a /probe /a\nCOPY --from=b /probe /b\n",
        stage("a"),
        stage("b")
    );
    put(ctx, "Containerfile", &file);
    let job = rt(ctx, &["build", "-t", "x", "context"]).spawn();
    for name in ["a", "b"] {
        let ready = format!("[{name} 1/1] \"ready\"");
        eventually("the program in RUN", || job.errors().lines().any(|line| line == ready).then_some(()));
    }
    sys::kill(job.pid(), libc::SIGINT).unwrap();
    let out = job.wait();
    assert_eq!(out.code, 1, "{out:?}");
    let errors: Vec<&str> = out.stderr.lines().filter(|line| line.starts_with("rt: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("interrupted; the layers"), "{out:?}");
    is_clean(ctx);
}

/// What two stages have in common is made once, though they begin at the same time.
fn no_stage_repeats_another(ctx: &Ctx) {
    context(ctx);
    let stage = |name: &str| {
        format!(
            "{}RUN [\"/probe\",\"say once\",\"write /x y\"]\n",
            BASE.replacen("scratch", &format!("scratch AS {name}"), 1)
        )
    };
    let file =
        format!("{}{}FROM scratch\nCOPY --from=a /x /a\nCOPY --from=b /x /b\n", stage("a"), stage("b"));
    let out = built(ctx, &file, &[]);
    assert_eq!(out.stderr.matches("\"once\"").count(), 1, "{out:?}");
    assert_eq!(fs::read_dir(ctx.path("build/layers")).unwrap().count(), 4);
}

fn stages_wait_for_what_they_need(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{}RUN write /one 1\n{}RUN --mount=type=bind,from=a,target=/m [\"/probe\",\"cat /m/one\",\"write /two 2\"]\n\
         {}RUN write /three 3\nFROM scratch\nCOPY --from=1 /two /\nCOPY --from=c /three /\nCOPY --from=a /one /\n",
        BASE.replacen("scratch", "scratch AS a", 1),
        BASE.replacen("scratch", "scratch AS b", 1),
        BASE.replacen("scratch", "scratch AS c", 1),
    );
    let out = built(ctx, &file, &["-t", "x"]);
    for (name, text) in [("one", "1"), ("two", "2"), ("three", "3")] {
        assert_eq!(fs::read_to_string(bundle(ctx, &out).join("rootfs").join(name)).unwrap(), text);
    }
    // An image that is not there is named with the line that names it.
    let file = format!("{file}COPY --from=oci:none /x /\n");
    refused(build(ctx, &file, &[]), &["line 17: COPY --from=oci:none", "not the name of an image"]);
}
