//! Black-box tests of the `rt` binary.
//!
//! One binary is the runner, each test's own process, and the program inside the containers (`probe`), so
//! that the tests need nothing but Rust and a kernel with user namespaces. `RT_BIN` names another runtime
//! to hold against the same contract. Every test runs as several callers (`Caller`) and ends with a
//! check that it left no process, no mount and no state.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

mod build;
mod build_cache;
mod build_contexts;
mod build_copies;
mod build_errors;
mod build_flags;
mod build_outputs;
mod build_stages;
mod build_streams;
mod build_times;
mod caller;
mod cgroup;
mod checkpoint;
mod chosen;
mod cleanup;
mod cli;
mod client;
mod config;
mod configured;
mod criu;
mod cuda;
mod devices;
mod doctor;
mod env;
mod exec;
mod failing;
#[path = "../../pull/tests/filter.rs"]
mod filter;
mod fixture;
mod hooks;
mod host_files;
mod images;
mod init;
mod lifecycle;
mod messages;
mod mounts;
mod mpi;
mod namespaces;
mod overlay;
mod owners;
mod probe;
mod process;
mod ranks;
mod rootless;
mod run;
mod runner;
mod seccomp;
mod security;
mod slurm;
mod step_container;
mod sys;
mod terminal;
mod trust;

fn main() {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    let program = name.rsplit('/').next();
    let is_probe = program == Some("probe");
    let args: Vec<String> = args.collect();
    // rt executes it by a descriptor, by the loader.
    let is_criu = program == Some("criu") || args.get(1).is_some_and(|arg| arg == "--no-default-config");
    let code = match args.first().map(String::as_str) {
        Some("--hold") => client::hold(),
        Some("--exchange") => client::exchange(&args[1..]),
        Some("--one") => runner::one(&args[1], tests()),
        Some("--version") => checkpoint::say_version(),
        _ if program == Some("cuda-checkpoint") => cuda::main(&name, &args),
        _ if is_criu => criu::main(&args),
        _ if is_probe => probe::main(args.into_iter()),
        _ => runner::all(&args, tests()),
    };
    std::process::exit(code);
}

fn tests() -> Vec<runner::Test> {
    [
        cli::tests(),
        lifecycle::tests(),
        run::tests(),
        images::tests(),
        env::tests(),
        doctor::tests(),
        exec::tests(),
        terminal::tests(),
        config::tests(),
        configured::tests(),
        messages::tests(),
        mounts::tests(),
        mpi::tests(),
        overlay::tests(),
        owners::tests(),
        chosen::tests(),
        namespaces::tests(),
        hooks::tests(),
        devices::tests(),
        process::tests(),
        ranks::tests(),
        seccomp::tests(),
        rootless::tests(),
        build::tests(),
        build_cache::tests(),
        build_contexts::tests(),
        build_copies::tests(),
        build_errors::tests(),
        build_flags::tests(),
        build_outputs::tests(),
        build_stages::tests(),
        build_streams::tests(),
        build_times::tests(),
        caller::tests(),
        host_files::tests(),
        init::tests(),
        slurm::tests(),
        step_container::tests(),
        security::tests(),
        cgroup::tests(),
        checkpoint::tests(),
        trust::tests(),
        failing::tests(),
        cleanup::tests(),
    ]
    .concat()
}
