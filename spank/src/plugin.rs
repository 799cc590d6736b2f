//! What the plugin does at each stage of a step (spank(7)). Each function returns what Slurm is told: 0, or -1 for a
//! failure.

use crate::arguments::{self, Arguments};
use crate::ffi::{self, BATCH, Context, Number, Spank, User};
use crate::mounts::Mounts;
use crate::options::{self, FORMS, Form, Options, PREFIXES};
use crate::program::{Call, End};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known in this process. A step has a slurmstepd of its own, and srun, sbatch and salloc are one process each.
#[derive(Default)]
struct State {
    arguments: Arguments,
    options: Options,
    /// Options, by their index, that sbatch or salloc was given, and that srun takes from its environment.
    inherited: Vec<usize>,
    /// Options that contradict another one.
    disputed: BTreeSet<usize>,
    /// Why there can be no container although one was asked for.
    broken: Option<String>,
    /// A container was asked for, and all is well so far.
    enabled: bool,
    prepared: Prepared,
    tasks_ended: u32,
    user: Option<User>,
    /// How the mounts of the job are reached when its tasks have ended.
    mounts: Option<Mounts>,
    /// Until when the user wants a container with a name to stay, where he says so (RT_CONTAINER_SCOPE).
    scope: Option<Vec<u8>>,
    /// The environment of `rt` on this node.
    environment: Vec<CString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Prepared {
    #[default]
    NotYet,
    /// The tasks can be started.
    Yes,
    /// The reason was given; tasks must not run, least of all without a container.
    Failed,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// Tells a node that srun has put `rt-slurm-task` into the programs of `--multi-prog`. With this prefix srun sends a
/// variable in spite of `--export=NONE`.
const MULTI_PROG: &CStr = c"SLURM_RT_MULTI_PROG";

/// The image that was asked for, and its name with a digest, as they were when the job was submitted.
const PIN: &CStr = c"SLURM_RT_IMAGE";

/// Why the image was not copied to the nodes, although that was asked for.
const NOT_BROADCAST: &CStr = c"SLURM_RT_NOT_BROADCAST";

/// Stands before the variables by which srun, sbatch and salloc tell the nodes their options. The nodes get them whatever
/// `--export` says, and no step is started on the host because its `--export` leaves something out.
const CARRIED: &str = "SLURM_RT_";

/// Where a node notes its jobs with containers, as `JOB.NODE`, with the numbers that their tasks know them by: the end of all others
/// costs nothing, and waits for no file system that `rt` may be on. Only root can make something in /run.
const JOBS: &str = "/run/rt-spank";

/// How many numbers a note has at the most. A job has one or two, unless its user names others.
const MOST_NUMBERS: usize = 64;

/// How long the node is kept after a step for `rt` to clean up.
const END_LIMIT: Duration = Duration::from_secs(60);

/// How long a step waits at most for `rt` to save the container of tasks that were killed. `rt` itself gives up before.
const SAVE_LIMIT: Duration = Duration::from_secs(630);

/// How long the epilog looks for copies of images among what everybody can make in TmpFS.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

fn state() -> MutexGuard<'static, State> {
    // A panic has been reported where it was caught.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(text: &str) -> i32 {
    ffi::error(text);
    -1
}

/// slurm_spank_init, everywhere: reads plugstack.conf's arguments, and offers the options.
pub(crate) fn init(spank: &Spank, words: &[&CStr]) -> i32 {
    let arguments = match words_of_site(words) {
        Ok(arguments) => arguments,
        Err(why) => return failed(&why),
    };
    let offers = match ffi::context() {
        Context::Local | Context::Remote => true,
        Context::Allocator => arguments.sbatch_support,
        Context::Other => false,
    };
    state().arguments = arguments;
    if offers && !FORMS.iter().enumerate().all(|(index, form)| spank.register(form, index)) {
        return failed("Slurm does not take the options");
    }
    0
}

fn words_of_site(words: &[&CStr]) -> Result<Arguments, String> {
    let words: Result<Vec<&str>, _> = words.iter().map(|word| word.to_str()).collect();
    let arguments = words.map_err(|e| e.to_string()).and_then(Arguments::parse);
    arguments.map_err(|why| format!("plugstack.conf: {why}"))
}

/// An option was given, by its index.
pub(crate) fn option(index: usize, value: &[u8], remote: bool) -> i32 {
    let Some(form) = FORMS.get(index) else { return -1 };
    let mut state = state();
    if remote && state.broken.is_some() {
        // Nothing can come of it any more, and there may be many.
        return -1;
    }
    let is_of_job = !remote && std::env::var_os(variable_of(form)).is_some();
    if is_of_job && !state.inherited.contains(&index) && !state.options.has(form.topic) {
        state.inherited.push(index);
    } else if !remote && state.inherited.iter().any(|other| FORMS[*other].topic == form.topic) {
        // The environment comes first, then the command line, which counts more.
        state.inherited.retain(|other| FORMS[*other].topic != form.topic);
        state.options.forget(form.topic);
    }
    let mut options = state.options.clone();
    match options.set(form, value) {
        Ok(()) => state.options = options,
        // A node gets both options of a contradiction where one of them was the job's.
        Err(_) if remote && state.options.has(form.topic) => {
            state.disputed.insert(index);
        }
        Err(why) => {
            // Slurm goes on with a step whose options the node does not take.
            state.broken.get_or_insert_with(|| why.clone());
            return failed(&why);
        }
    }
    0
}

/// The variable by which Slurm hands an option of sbatch or salloc to the srun below them.
fn variable_of(form: &Form) -> String {
    format!("SLURM_SPANK__SLURM_SPANK_OPTION_rt_{}", form.name.replace('-', "_"))
}

/// slurm_spank_init_post_opt: all options are there.
pub(crate) fn options_are_read(spank: &Spank, _: &[&CStr]) -> i32 {
    match ffi::context() {
        Context::Local | Context::Allocator => submit(),
        Context::Remote => {
            on_the_node(spank);
            0
        }
        Context::Other => 0,
    }
}

/// In slurmstepd.
fn on_the_node(spank: &Spank) {
    let environment = spank.environment();
    let mut state = state();
    for index in std::mem::take(&mut state.disputed) {
        let form = &FORMS[index];
        if value(&environment, &variable_of(form)).is_none() {
            state.options.forget(form.topic);
            let _ = state.options.set(form, b"");
        }
    }
    // Where the step is one of oci.conf's, RT_CONTAINER_* are for that.
    let is_of_oci_conf = value(&environment, "SLURM_CONTAINER").is_some();
    let prefixes = if is_of_oci_conf { &PREFIXES[..1] } else { &PREFIXES[..] };
    let carried = || environment.iter().filter_map(|entry| entry.to_bytes().strip_prefix(CARRIED.as_bytes()));
    // What the step has itself comes first.
    let all = environment.iter().map(|entry| entry.to_bytes()).chain(carried());
    if let Err(why) = state.options.complete(all, prefixes) {
        state.broken.get_or_insert(why);
    }
    state.scope = carried()
        .chain(environment.iter().map(|entry| entry.to_bytes()))
        .find_map(scope_in)
        .map(<[u8]>::to_owned);
    // Names that are known, and no others that are there: for each of them Slurm goes through the whole environment. It frees what
    // `environment` shows meanwhile.
    let is_carried = |name: &String| carried().filter_map(name_of).any(|other| other == name);
    let scope = "RT_CONTAINER_SCOPE".to_owned();
    let names: Vec<String> = options::variables().chain([scope]).filter(is_carried).collect();
    for name in names {
        set(spank, &format!("{CARRIED}{name}"), b"");
    }
    state.enabled = state.options.enabled() || state.broken.is_some();
    if state.enabled && is_of_oci_conf {
        let why = "--container and --container-image exclude each other";
        state.broken.get_or_insert_with(|| why.to_owned());
    }
    if state.enabled || is_of_oci_conf {
        note_job(spank, value(&environment, "SLURM_JOB_ID"));
    }
}

/// True for a variable that stands for an option.
fn is_of_an_option(entry: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| entry.starts_with(prefix.as_bytes()))
}

/// The name of a variable.
fn name_of(entry: &[u8]) -> Option<&str> {
    std::str::from_utf8(entry.split(|c| *c == b'=').next()?).ok()
}

/// The scope that an entry of the environment names.
fn scope_in(entry: &[u8]) -> Option<&[u8]> {
    entry.strip_prefix(b"RT_CONTAINER_SCOPE=").filter(|scope| !scope.is_empty())
}

/// The note of a job on this node.
fn note_of(job: u32) -> PathBuf {
    let node = std::env::var_os("SLURMD_NODENAME").unwrap_or_default();
    let mut name = OsString::from(format!("{job}."));
    name.push(node);
    Path::new(JOBS).join(name)
}

/// Notes that the job has a container here, and by which number its tasks know it: those of a component of a heterogeneous job have the
/// first component's, while the epilog is called for each component's own.
fn note_job(spank: &Spank, of_tasks: Option<&[u8]>) {
    let Some(job) = spank.number(Number::Job) else { return };
    let of_tasks = of_tasks.and_then(number).filter(|number| *number != job);
    let line = of_tasks.zip(spank.number(Number::Uid)).map(|(number, uid)| line_of(number, uid));
    let made = match std::fs::DirBuilder::new().mode(0o700).create(JOBS) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
        _ => add_to_note(&note_of(job), line.as_deref()),
    };
    if let Err(e) = made {
        ffi::error(&format!("what this job leaves on the node stays there: {JOBS}: {e}"));
    }
}

/// The job and the node of a note.
fn parts_of(note: &Path) -> Option<(Option<u32>, &[u8])> {
    let name = note.file_name()?.as_bytes();
    let point = name.iter().position(|c| *c == b'.')?;
    Some((number(&name[..point]), &name[point + 1..]))
}

fn has_line(noted: &str, line: &str) -> bool {
    noted.split_inclusive('\n').any(|other| other == line)
}

/// The number of a job.
fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// The line of a note for a number that tasks of user `uid` know their job by.
fn line_of(number: u32, uid: u32) -> String {
    format!("{number} {uid}\n")
}

/// Makes the note where it is not there yet, with a line that is not in it yet. Several steps may do so at once.
fn add_to_note(note: &Path, line: Option<&str>) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(note)?;
    let Some(line) = line else { return Ok(()) };
    let noted = std::fs::read_to_string(note)?;
    if has_line(&noted, line) {
        return Ok(());
    }
    if noted.lines().count() >= MOST_NUMBERS {
        return Err(std::io::Error::other("the job has too many numbers"));
    }
    file.write_all(line.as_bytes())
}

/// Removes the note of a job of user `uid` that ends, and returns the numbers in it that are to be ended with it: none that has a note of
/// its own, or is in that of another job of the user's, which may still run on this node. `None` where there was no note.
fn take_note(note: &Path, uid: u32) -> Option<Vec<u32>> {
    let noted = std::fs::read_to_string(note);
    if std::fs::remove_file(note).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return None;
    }
    let mut numbers: Vec<u32> = noted
        .iter()
        .flat_map(|noted| noted.lines())
        .filter_map(|line| line.split(' ').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let node = parts_of(note).map(|(_, node)| node);
    let others = note.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    for other in others.map(|entry| entry.path()) {
        let Some((job, _)) = parts_of(&other).filter(|(_, other)| Some(*other) == node) else { continue };
        let noted = std::fs::read_to_string(&other).unwrap_or_default();
        let is_there = |number: &u32| Some(*number) == job || has_line(&noted, &line_of(*number, uid));
        numbers.retain(|number| !is_there(number));
    }
    Some(numbers)
}

/// Has the nodes get the options by variables of this process, in the place of those that the sbatch or salloc above has set.
/// Slurm hands options on by a variable, too, but sbatch's `--export=NONE` drops that one.
fn carry(options: &Options, own: &[CString]) {
    for name in own.iter().filter_map(|entry| name_of(entry.to_bytes())) {
        if name.strip_prefix(CARRIED).is_some_and(|rest| is_of_an_option(rest.as_bytes()))
            && let Ok(name) = CString::new(name)
        {
            ffi::unset_own_variable(&name);
        }
    }
    if !options.enabled() {
        return;
    }
    let mut variables = options.variables();
    let scope = own.iter().find_map(|entry| scope_in(entry.to_bytes()));
    variables.extend(scope.map(|scope| ("RT_CONTAINER_SCOPE", scope.to_owned())));
    for (name, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
        if let (Ok(name), Ok(value)) = (CString::new(format!("{CARRIED}{name}")), CString::new(value)) {
            ffi::set_own_variable(&name, &value);
        }
    }
}

/// In srun, sbatch and salloc.
fn submit() -> i32 {
    let mut state = state();
    let own: Vec<CString> = own_environment();
    let entries = || own.iter().map(|entry| entry.to_bytes());
    if let Err(why) = state.options.complete(entries(), &PREFIXES[..1]) {
        return failed(&why);
    }
    // RT_CONTAINER_* alone may be for oci.conf.
    let idle: Vec<&str> = state.options.idle().collect();
    if let Err(why) = state.options.complete(entries(), &PREFIXES[1..]) {
        return failed(&why);
    }
    carry(&state.options, &own);
    // salloc has it, and its steps get it.
    let inherited = ["image", "name"].map(|option| format!("_SLURM_SPANK_OPTION_rt_container_{option}"));
    if !state.options.enabled() {
        if !inherited.iter().any(|name| std::env::var_os(name).is_some()) {
            for name in idle {
                ffi::error(&format!(
                    "ignoring --{name}, because neither --container-image nor --container-name is set"
                ));
            }
        }
        return 0;
    }
    let Some(image) = state.options.image.clone().filter(|_| state.arguments.pin) else { return 0 };
    let Ok(operand) = CString::new(image.clone()) else { return 0 };
    let call = Call {
        program: &state.arguments.rt,
        arguments: &[c"rt", c"slurm", c"digest", &operand],
        environment: &own,
        user: None,
        mounts: None,
        limit: Some(Duration::from_secs(60)),
        says_end: false,
    };
    let mut said = Vec::new();
    match call.run(|line| said.push(line.to_owned())) {
        Ok(End::Status(0, name)) => {
            let pinned = [&image, &b" "[..], name.trim_ascii()].concat();
            if let Ok(pinned) = CString::new(pinned) {
                ffi::set_own_variable(PIN, &pinned);
            }
            0
        }
        end => failed(&format!("--container-image: {}", reason(&end, &said))),
    }
}

/// slurm_spank_local_user_init: in srun, when the step is known and has no task yet.
pub(crate) fn before_launch(spank: &Spank, _: &[&CStr]) -> i32 {
    let state = state();
    if !state.options.enabled() {
        return 0;
    }
    if state.options.broadcast == Some(true)
        && let Err(why) = broadcast(&state, spank)
        && let Ok(why) = CString::new(why)
    {
        // The nodes say so where they have no copy. With this prefix srun sends a variable in spite of --export=NONE.
        ffi::set_own_variable(NOT_BROADCAST, &why);
    }
    prepend_to_programs(&state, spank)
}

/// Has the image copied to the nodes of the job. It may be there already, from an earlier step.
fn broadcast(state: &State, spank: &Spank) -> Result<(), String> {
    let job = spank.number(Number::Job).ok_or("Slurm does not tell the job")?;
    let job = CString::new(job.to_string()).map_err(|e| e.to_string())?;
    let own = own_environment();
    let own: Vec<&CStr> = own.iter().map(CString::as_c_str).collect();
    let mut variables = state.options.variables();
    variables.push(("RT_CONTAINER_TMPFS", tmpfs(&state.arguments).unwrap_or_default().into()));
    let call = Call {
        program: &state.arguments.rt,
        arguments: &[c"rt", c"slurm", c"broadcast", &job],
        environment: &environment_of_rt(&own, &variables),
        user: None,
        mounts: None,
        limit: None,
        says_end: false,
    };
    let mut said = Vec::new();
    match call.run(|line| said.push(line.to_owned())) {
        Ok(End::Status(0, _)) => Ok(()),
        end => Err(reason(&end, &said)),
    }
}

/// Before 23.11 a plugin reaches the arguments of `--multi-prog` only in srun, as the text of the file that was named.
fn prepend_to_programs(state: &State, spank: &Spank) -> i32 {
    if ffi::can_prepend() {
        return 0;
    }
    let arguments = spank.arguments();
    // Slurm has put the file's text behind its name.
    let [name, text, ..] = arguments[..] else { return 0 };
    let name = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    if !std::fs::read(name).is_ok_and(|read| read == text.to_bytes()) {
        return 0;
    }
    let program = state.arguments.task_program();
    let Ok(text) = CString::new(with_program(text.to_bytes(), program.as_os_str().as_bytes())) else {
        return 0;
    };
    if spank.set_argument(1, text) {
        ffi::set_own_variable(MULTI_PROG, c"1");
    }
    0
}

/// The text of a file for `--multi-prog` with a program before each rank's own.
fn with_program(text: &[u8], program: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut continues = false;
    for line in text.split_inclusive(|c| *c == b'\n') {
        let begins = !continues;
        continues = line.trim_ascii_end().ends_with(b"\\");
        let start = line.len() - line.trim_ascii_start().len();
        let ranks = line[start..].iter().position(u8::is_ascii_whitespace).map(|length| start + length);
        match ranks {
            Some(end) if begins && line[start] != b'#' => {
                all.extend_from_slice(&line[..end]);
                all.extend_from_slice(b" '");
                all.extend_from_slice(program);
                all.push(b'\'');
                all.extend_from_slice(&line[end..]);
            }
            _ => all.extend_from_slice(line),
        }
    }
    all
}

/// slurm_spank_user_init: once per node and step, as the user, before there are tasks. The image comes to the node here.
///
/// It never fails: of a failure here srun shows no exit code. The tasks fail in [`task`].
pub(crate) fn prepare(spank: &Spank, _: &[&CStr]) -> i32 {
    let mut state = state();
    if !state.enabled {
        return 0;
    }
    // What is not taken back below is a failure, a panic included.
    state.prepared = Prepared::Failed;
    if let Some(why) = &state.broken {
        ffi::error(why);
        return 0;
    }
    let environment = spank.environment();
    let step = spank.number(Number::Step);
    let mut variables = state.options.variables();
    if let Some((_, image)) = variables.iter_mut().find(|(name, _)| *name == "RT_CONTAINER_IMAGE")
        && let Some(pinned) = pinned(&environment, image)
    {
        *image = pinned;
    }
    if let Some((_, entrypoint)) = variables.iter_mut().find(|(name, _)| *name == "RT_CONTAINER_ENTRYPOINT")
        && entrypoint.is_empty()
    {
        *entrypoint = if state.arguments.execute_entrypoint { b"1".to_vec() } else { b"0".to_vec() };
    }
    let of_site = if state.arguments.scope_is_job { "job" } else { "global" };
    variables.push(("RT_CONTAINER_SCOPE", state.scope.clone().unwrap_or_else(|| of_site.into())));
    // Slurm has entered the job's directory.
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    variables.push(("RT_CONTAINER_SUBMIT_DIR", directory.into_os_string().into_vec()));
    variables.push(("RT_CONTAINER_STEPID", step.map_or(String::new(), |step| step.to_string()).into()));
    let tasks = spank.number(Number::LocalTasks);
    variables.push(("RT_CONTAINER_TASKS", tasks.map_or(String::new(), |tasks| tasks.to_string()).into()));
    // Not every step of every version has it in its environment.
    variables
        .push(("RT_CONTAINER_MEMORY", spank.memory().map_or(String::new(), |mib| mib.to_string()).into()));
    variables.push(("RT_CONTAINER_TMPFS", tmpfs(&state.arguments).unwrap_or_default().into()));
    variables.push(("RT_CONTAINER_LAYERS", state.arguments.layers.clone().unwrap_or_default().into()));
    variables.push(("RT_CONTAINER_RESOLVED", Vec::new()));
    variables.push(("RT_CONTAINER_ARGV0", Vec::new()));
    state.environment = environment_of_rt(&environment, &variables);
    state.user = user(spank);
    // Without it, what tasks leave is looked for among the mounts of slurmstepd.
    state.mounts = Mounts::new(places(&state.arguments)).ok();
    for (name, value) in &variables {
        set(spank, name, value);
    }
    let call = Call {
        program: &state.arguments.rt,
        arguments: &[c"rt", c"slurm", c"prepare"],
        environment: &state.environment,
        user: state.user.as_ref(),
        mounts: None,
        limit: Some(state.arguments.launch_wait),
        says_end: false,
    };
    // All nodes say the same; one is enough, unless another fails.
    let speaks = spank.number(Number::Node).unwrap_or(0) == 0;
    let mut said = Vec::new();
    let end = call.run(|line| {
        if speaks {
            ffi::say(plain(line));
        }
        said.push(line.to_owned());
    });
    match end {
        Ok(End::Status(0, resolved)) => {
            let resolved = resolved.trim_ascii();
            set(spank, "RT_CONTAINER_RESOLVED", resolved);
            state.environment.retain(|entry| !entry.to_bytes().starts_with(b"RT_CONTAINER_RESOLVED="));
            state.environment.extend(CString::new([b"RT_CONTAINER_RESOLVED=", resolved].concat()));
            state.prepared = Prepared::Yes;
        }
        Ok(End::Late) => {
            // Before it has tasks, a step cannot be cancelled. They bring the image to the node themselves.
            if speaks {
                let seconds = state.arguments.launch_wait.as_secs();
                ffi::say(&format!(
                    "the image is not here after {seconds} s; the tasks are started, and wait for it"
                ));
            }
            state.prepared = Prepared::Yes;
        }
        end => {
            if !speaks {
                for line in &said {
                    ffi::say(plain(line));
                }
            }
            let was_killed = matches!(end, Ok(End::Status(status, _)) if status > 128);
            if said.is_empty() || was_killed {
                let said = if was_killed { &[][..] } else { &said[..] };
                ffi::error(&format!("{}: {}", state.arguments.rt.display(), reason(&end, said)));
            }
        }
    }
    0
}

/// A line of `rt` without the name that the log puts before it again.
fn plain(line: &str) -> &str {
    line.strip_prefix("rt: ").unwrap_or(line)
}

fn reason(end: &std::io::Result<End>, said: &[String]) -> String {
    match (said.last(), end) {
        (Some(line), _) => plain(line).to_owned(),
        (None, Ok(End::Status(status @ 129.., _))) => format!("ended by signal {}", status - 128),
        (None, Ok(End::Status(status, _))) => format!("exit status {status}"),
        (None, Ok(End::Late)) => "no answer in time".to_owned(),
        (None, Err(e)) => e.to_string(),
    }
}

/// slurm_spank_task_init: in the process that will be a task, as the user. Slurm still runs TaskProlog, sets limits and
/// TMPDIR, and executes the program: so `rt-slurm-task` becomes that program.
pub(crate) fn task(spank: &Spank, _: &[&CStr]) -> i32 {
    let state = state();
    if !state.enabled {
        return 0;
    }
    if state.prepared != Prepared::Yes {
        // Slurm would start the task on the host if plugstack.conf calls the plugin optional.
        ffi::end_task();
    }
    let goes = state.options.save.as_ref().and_then(|_| what_goes_with_the_job(&state));
    match state.mounts.as_ref().map_or(Ok(()), |mounts| mounts.hand_over(goes.is_some())) {
        // Another task has done it.
        Err(e) if e.kind() != ErrorKind::WouldBlock => {
            ffi::error(&format!("the mounts of the job cannot be reached when its step has ended: {e}"));
        }
        _ => {}
    }
    if let Some(what) = goes {
        set(spank, IN_JOBS_OWN, b"1");
        if spank.number(Number::Task) == Some(0) {
            ffi::say(&format!("{what}: what has not been saved when the job ends is lost"));
        }
    }
    let Ok(program) = CString::new(state.arguments.task_program().into_os_string().into_vec()) else {
        ffi::end_task()
    };
    // rt shows a batch script by the name of its program.
    let is_script = spank.number(Number::Step) == Some(BATCH);
    if !is_script && ffi::can_prepend() {
        if !spank.prepend(&program) {
            ffi::error("Slurm does not take the program of the task");
            ffi::end_task();
        }
        return 0;
    }
    if value(&spank.environment(), &MULTI_PROG.to_string_lossy()).is_some() {
        // The program is there already.
        spank.set(MULTI_PROG, b"");
        return 0;
    }
    let Some(own) = spank.arguments().first().map(|own| own.to_bytes().to_owned()) else { return 0 };
    set(spank, "RT_CONTAINER_ARGV0", &own);
    if !spank.set_argument(0, program) {
        ffi::error("Slurm does not take the program of the task");
        ffi::end_task();
    }
    0
}

/// Where layers are.
fn layers(arguments: &Arguments) -> PathBuf {
    arguments.layers.clone().or_else(|| tmpfs(arguments)).unwrap_or_else(|| "/tmp".to_owned()).into()
}

/// That, and other directories that a job often has for itself.
fn places(arguments: &Arguments) -> Vec<PathBuf> {
    let mut all = vec![layers(arguments)];
    all.extend(tmpfs(arguments).map(PathBuf::from));
    all.push("/tmp".into());
    all.dedup();
    all
}

/// In a task: what of its container, the layer or the image without which that is worth nothing, goes with a directory of the job's own,
/// which Slurm empties before the tasks of a job that ends are dead.
fn what_goes_with_the_job(state: &State) -> Option<String> {
    let mounts = state.mounts.as_ref()?;
    let environment: Vec<&CStr> = state.environment.iter().map(CString::as_c_str).collect();
    let path = |name| value(&environment, name).filter(|path| !path.is_empty());
    let here = Path::new(OsStr::from_bytes(path("RT_CONTAINER_SUBMIT_DIR").unwrap_or(b"/")));
    let said = ["RT_CONTAINER_RESOLVED", "RT_CONTAINER_IMAGE"].into_iter().filter_map(path);
    let paths = said.filter_map(|image| {
        let path = here.join(OsStr::from_bytes(image));
        // What is not there by a relative path is a name.
        (image.starts_with(b"/") || path.symlink_metadata().is_ok()).then_some(path)
    });
    let images: Vec<PathBuf> = paths.collect();
    let layers = layers(&state.arguments);
    what_is_lost(&mounts.own_places(), &layers, state.arguments.layers.is_some(), &images)
}

/// Tells `rt` that a container goes with the job.
const IN_JOBS_OWN: &str = "RT_CONTAINER_IN_JOBS_OWN";

/// What goes with one of the job's own directories.
fn what_is_lost(own: &[&Path], layers: &Path, is_named: bool, images: &[PathBuf]) -> Option<String> {
    if own.contains(&layers) {
        return Some(match is_named {
            true => format!("layers={} in plugstack.conf is the job's own", layers.display()),
            false => "TmpFS is the job's own (layers= in plugstack.conf names another place)".to_owned(),
        });
    }
    // A link may lead there, or an image come there that the tasks wait for.
    let is_in = |place: &Path, image: &Path| {
        let found = [place, image].map(std::fs::canonicalize);
        image.starts_with(place) || matches!(found, [Ok(place), Ok(image)] if image.starts_with(&place))
    };
    let place = own.iter().find(|place| images.iter().any(|image| is_in(place, image)))?;
    Some(format!("the image is in {}, which is the job's own", place.display()))
}

/// slurm_spank_task_exit: srun waits for the end of this call, so what the user waits for is done here, when the last task
/// on the node has ended.
pub(crate) fn task_exit(spank: &Spank, _: &[&CStr]) -> i32 {
    let mut state = state();
    if !state.enabled || state.prepared != Prepared::Yes {
        return 0;
    }
    state.tasks_ended += 1;
    if state.options.save.is_none() || spank.number(Number::LocalTasks) != Some(state.tasks_ended) {
        return 0;
    }
    // Tasks that were not killed have saved it themselves.
    let mut environment = state.environment.clone();
    if state.mounts.as_mut().is_some_and(Mounts::goes_with_the_job) {
        environment.extend(CString::new(format!("{IN_JOBS_OWN}=1")));
    }
    end(&mut state, &environment, Some(limit_in_step(SAVE_LIMIT)), true)
}

/// How long a call at the end of a step may take, at most `most`. Slurm drains the node of a step that has been killed and does not end
/// within UnkillableStepTimeout, which begins anew when the first such call is over. The user can stop a call, which is no process of the
/// step; it is killed 5 s behind its limit then.
fn limit_in_step(most: Duration) -> Duration {
    let timeout = arguments::unkillable_step_timeout(&slurm_conf().unwrap_or_default());
    most.min((timeout / 2).saturating_sub(Duration::from_secs(5)).max(Duration::from_secs(5)))
}

/// slurm_spank_exit: in slurmstepd, as root, when nothing of the step runs any more.
pub(crate) fn exit(_: &Spank, _: &[&CStr]) -> i32 {
    let mut state = state();
    if ffi::context() == Context::Remote && state.enabled && state.prepared == Prepared::Yes {
        let mut environment = state.environment.clone();
        environment.retain(|entry| !entry.to_bytes().starts_with(b"RT_CONTAINER_SAVE="));
        end(&mut state, &environment, Some(limit_in_step(END_LIMIT)), false);
    }
    0
}

/// slurm_spank_job_epilog: on each node of a job, as root, also where slurmstepd was killed. Slurm drains a node whose
/// epilog fails, so this one does not.
pub(crate) fn job_epilog(spank: &Spank, words: &[&CStr]) -> i32 {
    let (Ok(arguments), Some(job), Some(uid)) =
        (words_of_site(words), spank.number(Number::Job), spank.number(Number::Uid))
    else {
        return 0;
    };
    let noted = take_note(&note_of(job), uid);
    if noted.is_none() && !has_copies(tmpfs(&arguments).as_deref().unwrap_or("/tmp"), job, LOOK_LIMIT) {
        // It had no container here, and no step has copied its image to all nodes of the job.
        return 0;
    }
    let mut environment = vec![format!("SLURM_JOB_UID={uid}")];
    environment.extend(spank.number(Number::Gid).map(|gid| format!("SLURM_JOB_GID={gid}")));
    environment.push("PATH=/usr/local/bin:/usr/bin:/bin".to_owned());
    environment.extend(tmpfs(&arguments).map(|dir| format!("RT_CONTAINER_TMPFS={dir}")));
    environment.extend(arguments.layers.as_ref().map(|dir| format!("RT_CONTAINER_LAYERS={dir}")));
    // For all numbers together: the user can have named some.
    let begin = Instant::now();
    for job in std::iter::once(job).chain(noted.unwrap_or_default()) {
        let own = format!("SLURM_JOB_ID={job}");
        let environment: Vec<CString> = std::iter::once(&own)
            .chain(&environment)
            .flat_map(|entry| CString::new(entry.as_str()))
            .collect();
        let call = Call {
            program: &arguments.rt,
            arguments: &[c"rt", c"slurm", c"end"],
            environment: &environment,
            user: None,
            mounts: None,
            limit: Some(END_LIMIT.saturating_sub(begin.elapsed())),
            says_end: false,
        };
        let _ = call.run(|line| ffi::error(plain(line)));
        if begin.elapsed() >= END_LIMIT {
            break;
        }
    }
    0
}

/// True where TmpFS has a copy of an image for the job, as `rt slurm broadcast` makes them, the kernel does not say, or it takes longer
/// than `limit` to look.
fn has_copies(tmpfs: &str, job: u32, limit: Duration) -> bool {
    let prefix = format!("rt-image-{job}-");
    let is_copy = |entry: std::fs::DirEntry| entry.file_name().as_bytes().starts_with(prefix.as_bytes());
    let begin = Instant::now();
    match std::fs::read_dir(tmpfs) {
        Ok(mut entries) => entries.any(|entry| begin.elapsed() > limit || entry.map_or(true, is_copy)),
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

/// `rt slurm end` as the user, with the mounts of the job.
fn end(state: &mut State, environment: &[CString], limit: Option<Duration>, saves: bool) -> i32 {
    let Some(user) = &state.user else { return 0 };
    let call = Call {
        program: &state.arguments.rt,
        arguments: &[c"rt", c"slurm", c"end"],
        environment,
        user: Some(user),
        mounts: state.mounts.as_mut().and_then(Mounts::of_job),
        limit,
        says_end: true,
    };
    match call.run(|line| ffi::say(plain(line))) {
        Ok(End::Status(0, _)) => 0,
        end => {
            // Where it could say nothing itself.
            let was_cut_off = saves && !matches!(end, Ok(End::Status(..=128, _)));
            let stays = if was_cut_off {
                ": what it has not saved stays until the job ends (rt list, rt slurm save)"
            } else {
                ""
            };
            failed(&format!("rt slurm end: {}{stays}", reason(&end, &[])))
        }
    }
}

/// Where PMIx makes the directory of a step's programs.
fn tmpfs(arguments: &Arguments) -> Option<String> {
    let node = std::env::var("SLURMD_NODENAME").unwrap_or_default();
    arguments.tmpfs.clone().or_else(|| arguments::tmpfs(&slurm_conf()?, &node))
}

fn slurm_conf() -> Option<String> {
    let file = std::env::var_os("SLURM_CONF").unwrap_or_else(|| "/etc/slurm/slurm.conf".into());
    std::fs::read_to_string(file).ok()
}

fn user(spank: &Spank) -> Option<User> {
    Some(User { uid: spank.number(Number::Uid)?, gid: spank.number(Number::Gid)?, groups: spank.groups() })
}

fn set(spank: &Spank, name: &str, value: &[u8]) {
    if let Ok(name) = CString::new(name) {
        spank.set(&name, value);
    }
}

/// The value of a variable.
fn value<'a>(environment: &[&'a CStr], name: &str) -> Option<&'a [u8]> {
    environment.iter().find_map(|entry| entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The name with a digest, where the job was submitted for this image.
fn pinned(environment: &[&CStr], image: &[u8]) -> Option<Vec<u8>> {
    let name = value(environment, &PIN.to_string_lossy())?.strip_prefix(image)?.strip_prefix(b" ")?;
    (!image.is_empty() && !name.is_empty()).then(|| name.to_owned())
}

/// The step's environment with the variables of the container, and what `rt` needs of slurmstepd's own.
fn environment_of_rt(step: &[&CStr], variables: &[(&str, Vec<u8>)]) -> Vec<CString> {
    let named = |entry: &&&CStr| {
        let name = entry.to_bytes().split(|c| *c == b'=').next().unwrap_or_default();
        variables.iter().any(|(variable, _)| variable.as_bytes() == name)
    };
    let mut all: Vec<CString> =
        step.iter().filter(|entry| !named(entry)).map(|entry| (*entry).into()).collect();
    for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        all.extend(CString::new([name.as_bytes(), b"=", value].concat()));
    }
    for name in ["SLURMD_NODENAME", "PATH"] {
        if let Some(own) = std::env::var_os(name).filter(|_| value(step, name).is_none()) {
            all.extend(CString::new([name.as_bytes(), b"=", own.as_bytes()].concat()));
        }
    }
    all
}

fn own_environment() -> Vec<CString> {
    std::env::vars_os()
        .flat_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_one_before_them() {
        let file = "# a comment\n0-3  hostname -s\n\n 4,5\t./solver 'a b' \\\n more words\n* echo %t";
        let expected = "# a comment\n0-3 '/b/rt-slurm-task'  hostname -s\n\n 4,5 '/b/rt-slurm-task'\t./solver 'a b' \\\n \
                        more words\n* '/b/rt-slurm-task' echo %t";
        assert_eq!(String::from_utf8(with_program(file.as_bytes(), b"/b/rt-slurm-task")).unwrap(), expected);
        // What is no line of a program stays for Slurm to refuse.
        assert_eq!(with_program(b"12", b"x"), b"12");
    }

    #[test]
    fn copies_are_those_of_the_job() {
        let dir = std::env::temp_dir().join(format!("rt-copies-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let within = |job, limit| has_copies(dir.to_str().unwrap(), job, limit);
        let has = |job| within(job, LOOK_LIMIT);
        std::fs::write(dir.join("rt-image-42-1-2-3"), "").unwrap();
        assert!(has(42) && !has(4) && !has(421));
        assert!(within(4, Duration::ZERO), "who has not looked at all does not know");
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!has(42));
        // What cannot be looked at may have some.
        assert!(has_copies("/dev/null", 42, LOOK_LIMIT));
    }

    #[test]
    fn a_job_ends_under_all_its_numbers() {
        let dir = std::env::temp_dir().join(format!("rt-notes-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let add = |note: &str, line: Option<(u32, u32)>| {
            let line = line.map(|(number, uid)| line_of(number, uid));
            add_to_note(&dir.join(note), line.as_deref())
        };
        let take = |note: &str, uid| take_note(&dir.join(note), uid);
        assert_eq!(take("2.n2", 7), None);
        // Steps have several, the same again, and none.
        for line in [None, Some((1, 7)), Some((11, 7)), Some((1, 7)), None] {
            add("2.n2", line).unwrap();
        }
        assert_eq!(std::fs::read_to_string(dir.join("2.n2")).unwrap(), "1 7\n11 7\n");
        assert_eq!(take("2.n2", 7), Some(vec![1, 11]));
        assert_eq!(take("2.n2", 7), None);
        // The last job of the user's on this node that has a number ends what is called so.
        for (note, number, uid) in
            [("2.n2", 1, 7), ("3.n2", 1, 7), ("4.n2.x", 1, 7), ("5.n2", 1, 8), ("6.n2", 11, 7)]
        {
            add(note, Some((number, uid))).unwrap();
        }
        assert_eq!(take("2.n2", 7), Some(vec![]));
        assert_eq!(take("3.n2", 7), Some(vec![1]));
        add("3.n2", Some((1, 7))).unwrap();
        add("1.n2", None).unwrap();
        assert_eq!(take("3.n2", 7), Some(vec![]), "it has an epilog of its own");
        for n in 0..MOST_NUMBERS as u32 {
            add("7.n2", Some((n, 7))).unwrap();
        }
        assert!(add("7.n2", Some((100, 7))).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_number_is_one() {
        assert_eq!(number(b"12"), Some(12));
        for other in [&b""[..], b"-1", b"+1", b"1 2", b"1/2", b"4294967296", b"\xff"] {
            assert_eq!(number(other), None);
        }
    }

    #[test]
    fn what_a_job_has_for_itself_is_lost_with_it() {
        let dir = std::env::temp_dir().join(format!("rt-own-{}", std::process::id()));
        let (own, other) = (dir.join("own"), dir.join("other"));
        for dir in [&own, &other] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(own.join("image"), "").unwrap();
        std::os::unix::fs::symlink(own.join("image"), dir.join("link")).unwrap();
        let lost = |layers: &Path, is_named, image: &Path| {
            what_is_lost(&[&own], layers, is_named, &[image.to_owned()]).unwrap_or_default()
        };
        let elsewhere = other.join("image");
        assert!(lost(&own, false, &elsewhere).starts_with("TmpFS is the job's own (layers= "));
        assert!(lost(&own, true, &elsewhere).starts_with(&format!("layers={} ", own.display())));
        assert_eq!(lost(&other, true, &elsewhere), "");
        for image in [own.join("image"), dir.join("link"), own.join("to/come")] {
            assert!(lost(&other, true, &image).starts_with("the image is in "), "{}", image.display());
        }
        assert_eq!(what_is_lost(&[], &own, true, &[own.join("image")]), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_pin_is_for_its_image() {
        let environment = [c"A=b", c"SLURM_RT_IMAGE=debian:12 debian:12@sha256:0"];
        assert_eq!(pinned(&environment, b"debian:12").as_deref(), Some(&b"debian:12@sha256:0"[..]));
        for other in [&b"debian"[..], b"", b"debian:13"] {
            assert_eq!(pinned(&environment, other), None);
        }
    }

    #[test]
    fn rt_sees_the_steps_environment() {
        let step = [
            c"HOME=/h",
            c"PATH=/own",
            c"RT_CONTAINER_IMAGE=stale",
            c"RT_CONTAINER_RESOLVED=/stale",
            c"RT_IMAGES=/i",
        ];
        let variables = [("RT_CONTAINER_IMAGE", b"new".to_vec()), ("RT_CONTAINER_RESOLVED", Vec::new())];
        let all = environment_of_rt(&step, &variables);
        let all: Vec<_> = all.iter().map(|entry| entry.to_str().unwrap()).collect();
        assert_eq!(all, ["HOME=/h", "PATH=/own", "RT_IMAGES=/i", "RT_CONTAINER_IMAGE=new"]);
    }
}
