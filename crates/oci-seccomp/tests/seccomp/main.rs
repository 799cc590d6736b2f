//! The seccomp compiler against libseccomp and against the kernel.
//!
//! libseccomp is asked through its library if the machine has one (`RT_LIBSECCOMP` names
//! another), and container engines' own profiles are taken from where Debian puts them (or from
//! `RT_PODMAN_SECCOMP` and `RT_DOCKER_SECCOMP`). `RT_SECCOMP_SEED` makes other random cases.
#![allow(unsafe_code, reason = "loads filters, in children of its own")]
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

mod bpf;
mod libseccomp;
mod meaning;
mod pfc;

use bpf::Call;
use libseccomp::Library;
use meaning::Meaning;
use oci_seccomp::{Instruction, Program, compile, compile_for};
use oci_spec::runtime::{Arch, LinuxSeccomp};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What podman and Docker give root in a container.
const DEFAULT_CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

const X86: &[Arch] = &[Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32];
const ARM: &[Arch] = &[Arch::ScmpArchAarch64, Arch::ScmpArchArm];
/// What the kernel of this machine runs, the native one first, since libseccomp always filters the machine that it runs on;
/// the same as sections name them, the last of which no such kernel runs; and the machine's name in engines' profiles.
const HERE: (&[Arch], &[&str], &str) = if cfg!(target_arch = "aarch64") {
    (ARM, &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM", "SCMP_ARCH_X86_64"], "arm64")
} else {
    (X86, &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64"], "amd64")
};

/// The rules that a random section may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One for each call, with any conditions.
    Alone,
    /// Several for a call, all with one action.
    OneAction,
    /// Several for a call, with different actions.
    Conflicting,
    /// Any. libseccomp 2.5 and 2.6 get some wrong: where several rules for one call share the first
    /// of several conditions, and that is no equality, the further conditions of one are linked
    /// into the other's, at times into a ring in which libseccomp hangs.
    Any,
}

#[test]
fn random_sections_mean_what_libseccomp_makes_of_them() {
    let Some(library) = library() else { return };
    let mut random = Random::new();
    let mut tally = Tally::default();
    let (here, archs, _) = HERE;
    let names = names(&library, here);
    for round in 0..3000 {
        let shape = [Shape::Alone, Shape::OneAction, Shape::Conflicting][round % 3];
        // No kernel runs the last beside the others, so that one's code is left out.
        let section = random_section(&mut random, &names, archs, shape);
        tally.compare(&library, here, &section, &mut random, 40);
    }
    tally.finish(110_000);
}

#[test]
fn other_machines_get_what_libseccomp_makes_for_them() {
    use Arch::*;
    let Some(library) = library() else { return };
    let mut random = Random::new();
    let mut tally = Tally::default();
    for machines in [
        &[ScmpArchAarch64, ScmpArchArm][..],
        &[ScmpArchRiscv64],
        &[ScmpArchPpc64le],
        &[ScmpArchMipsel64, ScmpArchMipsel, ScmpArchMipsel64n32],
    ] {
        let names = names(&library, machines);
        for round in 0..150 {
            let shape = [Shape::Alone, Shape::OneAction, Shape::Conflicting][round % 3];
            let mut section = random_section(&mut random, &names, &[], shape);
            section.set_architectures(Some(machines.to_vec()));
            tally.compare(&library, machines, &section, &mut random, 40);
        }
    }
    tally.finish(20_000);
}

#[test]
fn random_sections_mean_what_their_rules_say() {
    use Arch::*;
    let Some(library) = library() else { return };
    let mut random = Random::new();
    let mut tally = Tally::default();
    for machines in [X86, &[ScmpArchS390x, ScmpArchS390], &[ScmpArchPpc64, ScmpArchPpc], &[ScmpArchMips]] {
        let names = names(&library, machines);
        for _ in 0..300 {
            let mut section = random_section(&mut random, &names, &[], Shape::Any);
            section.set_architectures(Some(machines.to_vec()));
            let Ok(program) = compile_for(machines[0], &section) else {
                tally.refused += 1;
                continue;
            };
            bpf::check(&program.instructions).unwrap();
            let meaning = Meaning::of(&library, machines, &section);
            for _ in 0..40 {
                let call = random_call(&mut random, &library, machines, &section);
                check(&meaning, machines[0], &section, &program, &call);
                tally.same += 1;
            }
        }
    }
    tally.finish(30_000);
}

/// podman's and Docker's own profiles, as both engines hand them to a runtime.
#[test]
fn engines_profiles_mean_what_libseccomp_makes_of_them() {
    let Some(library) = library() else { return };
    let mut random = Random::new();
    for (engine, profile) in profiles() {
        let mut tally = Tally::default();
        for capabilities in
            [&DEFAULT_CAPABILITIES[..], &["CAP_SYS_ADMIN", "CAP_AUDIT_WRITE", "CAP_NET_ADMIN"]]
        {
            let mut section = engine_section(&profile, capabilities);
            // Numbers that the two know alike decide which calls are newer than the profile.
            let known: BTreeSet<String> = names(&library, HERE.0).into_iter().collect();
            let mut entries = section.syscalls().clone().unwrap();
            for entry in &mut entries {
                entry.set_names(entry.names().iter().filter(|name| known.contains(*name)).cloned().collect());
            }
            section.set_syscalls(Some(entries));
            let program = compile(&section).unwrap();
            let theirs = library.compile(&section).unwrap();
            println!("{engine}: {} instructions, libseccomp {}", program.instructions.len(), theirs.len());
            assert!(program.instructions.len() < theirs.len() / 2);
            tally.compare(&library, HERE.0, &section, &mut random, 5000);
            let meaning = Meaning::of(&library, HERE.0, &section);
            for arch in HERE.0.iter().copied() {
                for number in (0..600).map(|number| (meaning::base(arch) + number) as u32) {
                    let call = Call { number, arch: audit(arch), ..Call::default() };
                    tally.compare_call(&library, HERE.0, &section, &meaning, (&theirs, &program), &call);
                }
            }
        }
        println!("{engine}: {tally:?}");
        tally.finish(10_000);
    }
}

/// Programs far longer than the 255 instructions that a test can jump over.
#[test]
fn long_programs_reach_their_leaves() {
    let Some(library) = library() else { return };
    let mut random = Random::new();
    let names = names(&library, HERE.0);
    for count in [20, 60, 100, 140] {
        let entry = |at: usize| {
            json!({
                "names": [names[at * 2], names[at * 3]],
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": 1 + at % 90,
                "args": [{"index": 1 + at % 5, "value": at << 32 | at, "op": "SCMP_CMP_EQ"}],
            })
        };
        let many = |at| {
            json!({"names": ["ioctl"], "action": "SCMP_ACT_LOG", "args": [
                {"index": 1, "value": at * 7, "op": "SCMP_CMP_EQ"},
            ]})
        };
        let entries: Vec<_> = (0..count).map(entry).chain((0..count * 4).map(many)).collect();
        let (_, [_, archs @ .., _], _) = HERE else { unreachable!("a machine and a stranger") };
        let section =
            section(json!({"defaultAction": "SCMP_ACT_TRAP", "architectures": archs, "syscalls": entries}));
        let program = compile(&section).unwrap();
        println!("{} rules: {} instructions", entries.len(), program.instructions.len());
        bpf::check(&program.instructions).unwrap();
        let meaning = Meaning::of(&library, HERE.0, &section);
        for _ in 0..400 {
            let call = random_call(&mut random, &library, HERE.0, &section);
            check(&meaning, HERE.0[0], &section, &program, &call);
        }
    }
}

#[test]
fn every_call_has_the_number_that_libseccomp_knows() {
    use Arch::*;
    let Some(library) = library() else { return };
    let mut count = 0;
    let mut wrong = Vec::new();
    for arch in [
        ScmpArchX86_64,
        ScmpArchX86,
        ScmpArchX32,
        ScmpArchAarch64,
        ScmpArchArm,
        ScmpArchRiscv64,
        ScmpArchLoongarch64,
        ScmpArchPpc64le,
        ScmpArchPpc64,
        ScmpArchPpc,
        ScmpArchS390x,
        ScmpArchS390,
        ScmpArchMips,
        ScmpArchMips64,
        ScmpArchMips64n32,
        ScmpArchMipsel,
        ScmpArchMipsel64,
        ScmpArchMipsel64n32,
        ScmpArchParisc,
        ScmpArchParisc64,
        ScmpArchM68k,
        ScmpArchSh,
        ScmpArchSheb,
    ] {
        let base = meaning::base(arch);
        for number in (base..base + 600).chain(0xf0000..0xf0010) {
            let Some(name) = library.name(arch, number) else { continue };
            let section = section(json!({
                "defaultAction": "SCMP_ACT_KILL_PROCESS",
                "architectures": [format!("{arch}")],
                "syscalls": [{"names": [name], "action": "SCMP_ACT_ALLOW"}],
            }));
            let program = compile_for(arch, &section).unwrap();
            let call = Call { number: number as u32, arch: audit(arch), ..Call::default() };
            let answer = bpf::run(&program.instructions, &call, arch as u32 & 0x4000_0000 != 0);
            // The kernel has it on parisc with 32 bits only.
            if answer != libc::SECCOMP_RET_ALLOW && (&*name, arch) != ("_llseek", ScmpArchParisc64) {
                wrong.push(format!("{name} {number} {arch}"));
            }
            count += 1;
        }
    }
    println!("{count} numbers");
    assert_eq!(wrong, [""; 0]);
    assert!(count > 6000);
}

#[test]
fn the_kernel_does_what_a_filter_says() {
    let program = compile(&section(json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77},
            {"names": ["getpid"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["uname"], "action": "SCMP_ACT_KILL_PROCESS"},
            {"names": ["sysinfo"], "action": "SCMP_ACT_TRAP"},
            {"names": ["kill"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [
                {"index": 0, "value": 0xffff_ffff_u32, "op": "SCMP_CMP_GT"},
                {"index": 1, "value": 0xf0, "valueTwo": 0x10, "op": "SCMP_CMP_MASKED_EQ"},
            ]},
        ],
    })))
    .unwrap();
    let number = |number: i64, arguments: [u64; 2]| in_child(&program, || system_call(number, arguments));
    assert_eq!(number(libc::SYS_getppid, [0; 2]), Outcome::Exit(77));
    assert_eq!(number(libc::SYS_getpid, [0; 2]), Outcome::Exit(libc::EPERM));
    assert_eq!(number(libc::SYS_getuid, [0; 2]), Outcome::Exit(0));
    assert_eq!(number(libc::SYS_uname, [0; 2]), Outcome::Signal(libc::SIGSYS));
    assert_eq!(number(libc::SYS_sysinfo, [0; 2]), Outcome::Signal(libc::SIGSYS));
    // The first argument counts with all its 64 bits, though kill(2) itself takes 32 of them.
    assert_eq!(number(libc::SYS_kill, [0x1_7fff_fffe, 0x11]), Outcome::Exit(5));
    assert_eq!(number(libc::SYS_kill, [0x1_7fff_fffe, 0x21]), Outcome::Exit(libc::ESRCH));
    assert_eq!(number(libc::SYS_kill, [0x7fff_fffe, 0x11]), Outcome::Exit(libc::ESRCH));
}

#[test]
fn the_kernel_gets_enosys_for_what_is_newer() {
    let allowed = ["exit_group", "getppid", "clone3"];
    let program = compile(&section(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{"names": allowed, "action": "SCMP_ACT_ALLOW"}],
    })))
    .unwrap();
    let number = |number| in_child(&program, || system_call(number, [0; 2]));
    assert_eq!(number(libc::SYS_getpid), Outcome::Exit(libc::EPERM));
    assert_eq!(number(libc::SYS_clone3 - 1), Outcome::Exit(libc::EPERM));
    assert_eq!(number(libc::SYS_clone3 + 1), Outcome::Exit(libc::ENOSYS));
    assert_eq!(number(libc::SYS_clone3 + 5000), Outcome::Exit(libc::ENOSYS));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_kernel_stops_calls_of_architectures_not_named() {
    let filter = |archs: &[&str]| {
        compile(&section(json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": archs,
            "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77}],
        })))
        .unwrap()
    };
    let native = filter(&["SCMP_ARCH_AARCH64"]);
    let all = filter(&["SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
    let x32 = || system_call(libc::SYS_getppid | 0x4000_0000, [0; 2]);
    assert_eq!(in_child(&native, x32), Outcome::Signal(libc::SIGSYS));
    assert_eq!(in_child(&all, x32), Outcome::Exit(77));
    let x86 = || {
        let mut result: i64 = 64; // getppid(2)
        // SAFETY: the call takes no arguments; the kernel keeps all other registers but the ones
        // named, which it may clear.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        if (-4095..0).contains(&(result as i32)) { -(result as i32) } else { 0 }
    };
    if in_child(&Program::default(), x86) != Outcome::Exit(0) {
        println!("skipped (1): this kernel runs no 32-bit calls");
        return;
    }
    assert_eq!(in_child(&native, x86), Outcome::Signal(libc::SIGSYS));
    assert_eq!(in_child(&all, x86), Outcome::Exit(77));
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Exit(i32),
    Signal(i32),
}

/// Runs `body` in a child under a filter (none if the program is empty), and returns its result.
fn in_child(program: &Program, body: impl FnOnce() -> i32) -> Outcome {
    // SAFETY: the child of this process with several threads makes system calls only, until it
    // ends; the filter's pointer and length are those of a live slice.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            let loaded = program.instructions.is_empty() || load(program) == 0;
            libc::_exit(if loaded { body() } else { 255 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        if libc::WIFSIGNALED(status) {
            Outcome::Signal(libc::WTERMSIG(status))
        } else {
            Outcome::Exit(libc::WEXITSTATUS(status))
        }
    }
}

/// Puts this process under a filter.
fn load(program: &Program) -> i64 {
    let instructions = &program.instructions;
    let filter = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_ptr().cast_mut().cast::<libc::sock_filter>(),
    };
    // SAFETY: `filter` points to instructions laid out as sock_filter; the kernel copies them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, program.flags, &raw const filter)
    }
}

/// Makes a call whose arguments do no harm, and returns its errno or 0.
fn system_call(number: i64, [first, second]: [u64; 2]) -> i32 {
    // SAFETY: the calls of these tests take integers, or pointers that the kernel checks.
    unsafe {
        let result = libc::syscall(number, first, second, 0, 0, 0, 0);
        if result < 0 { *libc::__errno_location() } else { 0 }
    }
}

/// How many calls were tried, and how they came out.
#[derive(Debug, Default)]
struct Tally {
    same: usize,
    /// libseccomp's program contradicts its own account of the rules.
    miswritten: usize,
    /// libseccomp dropped a rule that it took for redundant.
    dropped: usize,
    /// Each took another rule than the other of several that match.
    ambiguous: usize,
    /// Sections that both refuse.
    refused: usize,
    /// Sections that libseccomp refuses for rules on calls that none of the architectures has.
    strangers: usize,
}

impl Tally {
    /// Compiles a section with both, and tries random calls.
    fn compare(
        &mut self,
        library: &Library,
        machines: &[Arch],
        section: &LinuxSeccomp,
        random: &mut Random,
        calls: usize,
    ) {
        let theirs = library.compile(section);
        let ours = compile_for(machines[0], section);
        let (theirs, ours) = match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => (theirs, ours),
            (Err(libc::EEXIST), Err(error)) if error.to_string().contains("two actions") => {
                self.refused += 1;
                return;
            }
            (Err(libc::EEXIST), Ok(_)) if library.compile(&without_strangers(library, section)).is_ok() => {
                self.strangers += 1;
                return;
            }
            (theirs, ours) => panic!("{}", show(section, &format!("{:?}, {:?}", theirs.err(), ours.err()))),
        };
        bpf::check(&ours.instructions).unwrap_or_else(|error| panic!("{}", show(section, &error)));
        let meaning = Meaning::of(library, machines, section);
        for _ in 0..calls {
            let call = random_call(random, library, machines, section);
            self.compare_call(library, machines, section, &meaning, (&theirs, &ours), &call);
        }
    }

    fn compare_call(
        &mut self,
        library: &Library,
        machines: &[Arch],
        section: &LinuxSeccomp,
        meaning: &Meaning,
        (theirs, ours): (&[Instruction], &Program),
        call: &Call,
    ) {
        let stranger = !machines.iter().any(|arch| audit(*arch) == call.arch);
        let expected = match meaning.newer(call) {
            Some(answer) => answer,
            None if stranger => libc::SECCOMP_RET_KILL_THREAD,
            None => bpf::run(theirs, call, true),
        };
        let answer = bpf::run(&ours.instructions, call, true);
        if answer == expected {
            self.same += 1;
        } else if pfc::run(&library.describe(section).unwrap(), call) == answer {
            self.miswritten += 1;
        } else if !meaning.answers(call).contains(&expected) {
            self.dropped += 1;
        } else {
            self.ambiguous += 1;
        }
        check(meaning, machines[0], section, ours, call);
    }

    fn finish(&self, calls: usize) {
        println!("{self:?}");
        assert!(self.same >= calls, "{self:?}");
        assert!((self.miswritten + self.dropped + self.ambiguous) * 200 < self.same, "{self:?}");
    }
}

/// Tries one call against the rules themselves.
fn check(meaning: &Meaning, native: Arch, section: &LinuxSeccomp, program: &Program, call: &Call) {
    let answer = bpf::run(&program.instructions, call, native as u32 & 0x4000_0000 != 0);
    let meant = meaning.answers(call);
    if !meant.contains(&answer) {
        panic!("{}", show(section, &format!("{call:x?}: {answer:#x}, and {meant:x?} by the rules")));
    }
}

/// A section without the calls that none of its architectures has.
fn without_strangers(library: &Library, section: &LinuxSeccomp) -> LinuxSeccomp {
    let named = section.architectures().iter().flatten().copied();
    let archs: Vec<_> = named.chain([Arch::ScmpArchNative]).collect();
    let has = |name: &&String| archs.iter().any(|arch| library.number(*arch, name).is_some_and(|n| n >= 0));
    let mut section = section.clone();
    let mut entries = section.syscalls().clone().unwrap_or_default();
    for entry in &mut entries {
        entry.set_names(entry.names().iter().filter(has).cloned().collect());
    }
    section.set_syscalls(Some(entries));
    section
}

/// The section that a failure is about, and how to get it again.
fn show(section: &LinuxSeccomp, what: &str) -> String {
    let section = serde_json::to_string(section).unwrap();
    format!("{what}\nRT_SECCOMP_SEED={}\n{section}", Random::seed())
}

fn library() -> Option<Library> {
    let library = Library::load();
    match &library {
        Some(library) => println!("libseccomp {:?}, RT_SECCOMP_SEED={}", library.version, Random::seed()),
        None => println!("skipped (1): no libseccomp to compare with"),
    }
    library
}

/// Calls of these architectures that both libraries know by the same numbers on each: libseccomp
/// before 2.6 lacks new ones, and some that x32 got late.
fn names(library: &Library, machines: &[Arch]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for arch in machines {
        let base = meaning::base(*arch);
        names.extend((base..base + 440).filter_map(|number| library.name(*arch, number)));
    }
    names.into_iter().filter(|name| library.number(Arch::ScmpArchNative, name).is_some()).collect()
}

const VALUES: [u64; 14] = [
    0,
    1,
    2,
    5,
    7,
    16,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0005,
    0x5_0000_0001,
    1 << 63,
    u64::MAX,
];

fn random_section(random: &mut Random, names: &[String], archs: &[&str], shape: Shape) -> LinuxSeccomp {
    const ACTIONS: [&str; 8] = [
        "SCMP_ACT_ALLOW",
        "SCMP_ACT_ERRNO",
        "SCMP_ACT_LOG",
        "SCMP_ACT_KILL_PROCESS",
        "SCMP_ACT_TRAP",
        "SCMP_ACT_TRACE",
        "SCMP_ACT_KILL",
        "SCMP_ACT_KILL_THREAD",
    ];
    const EXACT: [&str; 2] = ["SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"];
    const OPERATORS: [&str; 7] = [
        "SCMP_CMP_NE",
        "SCMP_CMP_LT",
        "SCMP_CMP_LE",
        "SCMP_CMP_EQ",
        "SCMP_CMP_GE",
        "SCMP_CMP_GT",
        "SCMP_CMP_MASKED_EQ",
    ];
    let one_action = *random.of(&ACTIONS);
    let mut pool: Vec<&String> = (0..1 + random.below(8)).map(|_| random.of(names)).collect();
    let mut entries = Vec::new();
    for _ in 0..random.below(12) {
        let mut names: Vec<_> = (0..1 + random.below(4)).map(|_| random.of(&pool).to_string()).collect();
        if shape == Shape::Alone {
            names.sort();
            names.dedup();
            pool.retain(|name| !names.contains(name));
        }
        let mut indexes: Vec<usize> = (0..6).collect();
        let count = random.below(4);
        while indexes.len() > count {
            indexes.remove(random.below(indexes.len()));
        }
        // An argument that is named twice makes rules of its own of the conditions.
        let twice = shape != Shape::Alone && random.below(10) == 0;
        if twice {
            indexes = vec![random.below(6); 1 + random.below(3)];
        }
        let any = twice || matches!(shape, Shape::Alone | Shape::Any);
        let argument = |(at, index): (usize, &usize)| {
            json!({
                "index": index,
                "value": random.of(&VALUES),
                "valueTwo": random.of(&VALUES),
                "op": if any || at + 1 == indexes.len() { random.of(&OPERATORS) } else { random.of(&EXACT) },
            })
        };
        let arguments: Vec<Value> = indexes.iter().enumerate().map(argument).collect();
        let mixed = !matches!(shape, Shape::OneAction);
        let action = if mixed { *random.of(&ACTIONS) } else { one_action };
        let mut entry = json!({"names": names, "action": action, "args": arguments});
        if mixed && matches!(action, "SCMP_ACT_ERRNO" | "SCMP_ACT_TRACE") && random.below(2) == 0 {
            entry["errnoRet"] = (1 + random.below(3)).into();
        }
        entries.push(entry);
        if pool.is_empty() {
            break;
        }
    }
    let archs: Vec<_> = archs.iter().filter(|_| random.below(2) == 0).collect();
    section(json!({"defaultAction": random.of(&ACTIONS), "architectures": archs, "syscalls": entries}))
}

/// A call that is likely to meet the section's rules, or to miss them by one.
fn random_call(random: &mut Random, library: &Library, machines: &[Arch], section: &LinuxSeccomp) -> Call {
    let stranger = random.below(20) == 0;
    let arch = *random.of(machines);
    let mut call = Call { number: random.next() as u32 % 600, arch: audit(arch), ..Call::default() };
    if stranger {
        call.arch = audit(Arch::ScmpArchSheb);
    }
    let mut values = VALUES.to_vec();
    let entries: Vec<_> = section.syscalls().iter().flatten().collect();
    if !entries.is_empty() && random.below(10) != 0 {
        let entry = *random.of(&entries);
        let name = random.of::<String>(entry.names());
        call.number = library.number(arch, name).filter(|n| *n >= 0).unwrap_or(meaning::base(arch)) as u32;
        let arguments = || entries.iter().flat_map(|entry| entry.args().iter().flatten());
        values.extend(arguments().flat_map(|argument| [argument.value(), argument.value_two().unwrap_or(0)]));
        if random.below(4) == 0 {
            let multiplexer = *random.of(&["socketcall", "ipc"]);
            if let Some(number) = library.number(arch, multiplexer).filter(|n| *n >= 0) {
                call.number = number as u32;
                values.extend(1..25);
            }
        }
    }
    if random.below(10) == 0 {
        call.number = call.number.wrapping_add(*random.of(&[1, u32::MAX, 0x4000_0000, 0x8000_0000]));
    }
    if random.below(40) == 0 {
        let edges = [0, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, 0xc000_0000, u32::MAX];
        call.number = *random.of(&edges);
    }
    for argument in &mut call.arguments {
        let value = *random.of(&values);
        *argument = match random.below(6) {
            0 => value.wrapping_add(1),
            1 => value.wrapping_sub(1),
            2 => value ^ 1 << 32,
            3 => value & 0xffff_ffff,
            _ => value,
        };
    }
    call
}

/// `seccomp_data.arch` of an architecture's calls.
fn audit(arch: Arch) -> u32 {
    if arch == Arch::ScmpArchX32 { Arch::ScmpArchX86_64 as u32 } else { arch as u32 }
}

fn section(json: Value) -> LinuxSeccomp {
    serde_json::from_value(json).unwrap()
}

/// The profiles of container engines that this machine has.
fn profiles() -> Vec<(&'static str, Value)> {
    let places = [
        ("podman", "RT_PODMAN_SECCOMP", "/usr/share/containers/seccomp.json"),
        (
            "docker",
            "RT_DOCKER_SECCOMP",
            "/usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json",
        ),
    ];
    let mut profiles = Vec::new();
    for (engine, variable, usual) in places {
        let path = std::env::var(variable).unwrap_or_else(|_| usual.into());
        match std::fs::read(&path) {
            Ok(bytes) => profiles.push((engine, serde_json::from_slice(&bytes).unwrap())),
            Err(error) => println!("skipped (1): {engine}'s profile {path}: {error}"),
        }
    }
    profiles
}

/// What an engine makes of its profile for a container on this machine with these capabilities.
fn engine_section(profile: &Value, capabilities: &[&str]) -> LinuxSeccomp {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().into()).collect()
    };
    let here = |arch: &String| arch == HERE.2;
    let granted = |capability: &String| capabilities.contains(&capability.as_str());
    let applies = |entry: &&Value| {
        let (with, without) = (&entry["includes"], &entry["excludes"]);
        let archs = strings(&with["arches"]);
        strings(&with["caps"]).iter().all(granted)
            && (archs.is_empty() || archs.iter().any(here))
            && !strings(&without["caps"]).iter().any(granted)
            && !strings(&without["arches"]).iter().any(here)
    };
    let plain = |entry: &Value| {
        let mut names = strings(&entry["names"]);
        names.extend(entry["name"].as_str().map(String::from));
        let mut plain = json!({"names": names, "action": entry["action"], "args": entry["args"]});
        if entry["errnoRet"].is_u64() {
            plain["errnoRet"] = entry["errnoRet"].clone();
        }
        plain
    };
    let entries: Vec<_> = profile["syscalls"].as_array().unwrap().iter().filter(applies).map(plain).collect();
    let mut section = json!({
        "defaultAction": profile["defaultAction"],
        "architectures": HERE.1[..HERE.0.len()],
        "syscalls": entries,
    });
    if profile["defaultErrnoRet"].is_u64() {
        section["defaultErrnoRet"] = profile["defaultErrnoRet"].clone();
    }
    self::section(section)
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn new() -> Self {
        Random(Random::seed())
    }

    fn seed() -> u64 {
        std::env::var("RT_SECCOMP_SEED").map_or(1, |seed| seed.parse().expect("RT_SECCOMP_SEED is a number"))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Prints what compiling costs: `cargo test --release --test seccomp speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    for (engine, profile) in profiles() {
        let mut section = engine_section(&profile, &DEFAULT_CAPABILITIES);
        for archs in [HERE.0.to_vec(), vec![HERE.0[0]]] {
            section.set_architectures(Some(archs.clone()));
            let mut times: Vec<_> = (0..2000)
                .map(|_| {
                    let start = std::time::Instant::now();
                    std::hint::black_box(compile(std::hint::black_box(&section)).unwrap());
                    start.elapsed()
                })
                .collect();
            let first = times[0];
            times.sort();
            let program = compile(&section).unwrap();
            println!(
                "{engine}, {} architectures: {} instructions; first {first:?}, least {:?}, median {:?}",
                archs.len(),
                program.instructions.len(),
                times[0],
                times[1000],
            );
            let load_time = |program: &Program| {
                let start = std::time::Instant::now();
                load(program);
                // The exit code is all that a child can say: its microseconds, halved.
                (start.elapsed().as_nanos() / 2000).min(254) as i32
            };
            let loads = (0..40).map(|_| match in_child(&Program::default(), || load_time(&program)) {
                Outcome::Exit(halves) => halves * 2,
                Outcome::Signal(_) => unreachable!("the filter allows exit_group(2)"),
            });
            println!("{engine}: least time to load {} µs", loads.min().unwrap_or_default());
        }
    }
}
