//! `--trace`: where the time of a start goes, as a line of JSON.
//!
//! The line is written once: by the runtime when the program runs, or by the process itself right before it becomes the
//! program, where no runtime is left.

use super::CreateOptions;
use super::request::StartRequest;
use crate::hooks::{self, Stage};
use oci_spec::runtime::{Hook, Hooks};
use rt_spec::Spec;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{time, trace};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

/// The phases, in their order. Each ends where it is noted.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Phase {
    /// The config is loaded and changed.
    Load,
    /// The plan is made.
    Plan,
    /// The id is reserved.
    State,
    /// Init has its namespaces and ids.
    Namespaces,
    /// The root, the mounts and the devices are there.
    Mounts,
    /// The hooks before pivot_root have run.
    Hooks,
    /// Masks are mounted, and pivot_root is called.
    Pivot,
    /// Limits, ids, capabilities and filter are set, and the state is published.
    Settings,
    /// The program runs, or waits for start.
    Exec,
}

/// Their names.
const NAMES: [&str; 9] =
    ["load", "plan", "state", "namespaces", "mounts", "hooks", "pivot", "settings", "exec"];

/// What is known of the start that is traced.
struct Start {
    file: File,
    begun: SystemTime,
    from: u64,
    id: String,
    bundle: PathBuf,
    image: Option<String>,
    /// Who has said what.
    origins: BTreeMap<&'static str, Vec<String>>,
    hooks: Hooks,
}

static START: Mutex<Option<Start>> = Mutex::new(None);

/// Notes that `phase` has ended, where the start is traced.
#[inline]
pub(super) fn end(phase: Phase) {
    trace::phase(phase as u8);
}

/// Begins the trace of the start of container `id`, where the options ask for one.
pub(super) fn begin(options: &CreateOptions, id: &str) -> Result<()> {
    let Some(path) = &options.trace else { return Ok(()) };
    let file = File::options().append(true).create(true).open(path);
    let file = file.context(|| format!("open trace {}", path.display()))?;
    trace::start()?;
    let start = Start {
        file,
        begun: time::now(),
        from: trace::now().unwrap_or(0),
        id: id.to_owned(),
        bundle: options.bundle.clone(),
        image: None,
        origins: BTreeMap::new(),
        hooks: Hooks::default(),
    };
    *START.lock().unwrap_or_else(|e| e.into_inner()) = Some(start);
    Ok(())
}

/// Tells what container it is, and who has said what of it.
pub(super) fn describe(spec: &Spec, hooks: &Hooks, request: &StartRequest) {
    if let Some(start) = START.lock().unwrap_or_else(|e| e.into_inner()).as_mut() {
        let annotations = spec.annotations().as_ref();
        start.image = annotations.and_then(|all| all.get(rt_spec::ANNOTATION_NAME).cloned());
        start.hooks = hooks.clone();
        start.origins = request.origins();
    }
}

/// Writes the line, if that has not been done. `pid` is that of the container's first process.
#[cold]
pub(super) fn finish(pid: Option<i32>, error: Option<&Error>) {
    let Some(mut start) = START.lock().unwrap_or_else(|e| e.into_inner()).take() else { return };
    let line = format!("{}\n", start.line(pid, error));
    // A start does not fail for want of a trace.
    if let Err(e) = start.file.write_all(line.as_bytes()) {
        log::warn!("write the trace: {e}");
    }
}

impl Start {
    fn line(&self, pid: Option<i32>, error: Option<&Error>) -> Value {
        if error.is_none() {
            end(Phase::Exec);
        }
        let (mut phases, mut hooks) = (Vec::new(), Vec::new());
        let mut last = self.from;
        for note in trace::notes() {
            if note.from != 0 {
                let (stage, path) = self.hook(note.kind, note.index.into());
                let status = if note.failed { "failed" } else { "ok" };
                hooks.push(json!({ "path": path, "stage": stage, "us": (note.to - note.from) / 1000, "status": status }));
            } else if let Some(name) = NAMES.get(usize::from(note.kind)) {
                phases.push(json!({ "name": name, "us": note.to.saturating_sub(last) / 1000 }));
                last = note.to;
            }
        }
        let total = trace::now().unwrap_or(last).saturating_sub(self.from) / 1000;
        let mut line = json!({
            "time": time::rfc3339(self.begun), "id": self.id, "bundle": self.bundle, "pid": pid,
            "totalUs": total, "phases": phases, "hooks": hooks,
        });
        if let Some(image) = &self.image {
            line["image"] = json!(image);
        }
        if !self.origins.is_empty() {
            line["origins"] = json!(self.origins);
        }
        if let Some(error) = error {
            line["error"] = json!(error.to_string());
        }
        line
    }

    /// The stage of a hook, and its path.
    fn hook(&self, kind: u8, index: usize) -> (&'static str, Option<String>) {
        let Some(stage) = Stage::of_number(kind) else { return ("precreate", hooks::precreate_path(index)) };
        #[allow(deprecated, reason = "configs still carry prestart hooks")]
        let list: &Option<Vec<Hook>> = match stage {
            Stage::Prestart => self.hooks.prestart(),
            Stage::CreateRuntime => self.hooks.create_runtime(),
            Stage::CreateContainer => self.hooks.create_container(),
            Stage::StartContainer => self.hooks.start_container(),
            Stage::Poststart => self.hooks.poststart(),
            Stage::Poststop => self.hooks.poststop(),
        };
        let path =
            list.as_deref().and_then(|list| list.get(index)).map(|hook| hook.path().display().to_string());
        (stage.as_str(), path)
    }
}
