//! Which stages a build needs, and those that do not need each other side by side.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Condvar, Mutex};

use dockerfile::{Instruction, Kind, Mount};

use super::{Builder, From, Use, lock, stored};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{ns, process};

/// What a stage takes of others, as far as its file says it. What triggers of its base name is found once that is there.
#[derive(Default)]
struct Needs {
    stages: BTreeSet<usize>,
    /// Names of images, and which instruction has them.
    images: Vec<(usize, String)>,
}

/// The stages that a build needs, and for each those that it needs itself, however indirectly.
struct Plan(BTreeMap<usize, BTreeSet<usize>>);

impl Plan {
    /// True where two stages do not need each other.
    fn has_independent_stages(&self) -> bool {
        let mut numbers = self.0.keys();
        let mut below = BTreeSet::new();
        // A stage needs only stages before it: in a row, each needs all of them.
        numbers.any(|number| {
            let in_row = below.iter().all(|earlier| self.0[number].contains(earlier));
            below.insert(*number);
            !in_row
        })
    }
}

/// How far the stages of a plan are.
struct Progress {
    waiting: BTreeSet<usize>,
    built: BTreeSet<usize>,
    has_failed: bool,
}

/// Gets the images that `target` needs, and builds what it needs with as many threads as there are processors, where there are stages
/// that do not need each other. Else nothing is built here: a stage builds what it needs when it asks for it.
pub(super) fn build(builder: &mut Builder, target: usize) -> Result<()> {
    let mut images = Vec::new();
    let plan = plan(builder, target, &mut images)?;
    let most = builder.options.jobs.unwrap_or(usize::MAX);
    let workers = process::affinity().min(plan.0.len()).min(most);
    let is_side_by_side = workers > 1 && plan.has_independent_stages();
    builder.has_prefixes = is_side_by_side;
    // Whoever makes room in the store meanwhile would remove an image that is not used before the last instruction. Nor do the bars of
    // a pull and the lines of commands mix.
    for (stage, at, image) in images {
        let instruction = &builder.stages[stage][at];
        let what_for = if matches!(instruction.kind, Kind::From { .. }) { Use::Base } else { Use::Files };
        let failed = |e| builder.failed(builder.at(instruction, e));
        let path = builder.image(&image, what_for).map_err(failed)?;
        if what_for == Use::Base {
            let named = images_of_triggers(builder, stage, &path);
            named.iter().try_for_each(|image| builder.image(image, Use::Files).map(drop)).map_err(failed)?;
        }
    }
    if !is_side_by_side {
        return Ok(());
    }
    let progress = Mutex::new(Progress {
        waiting: plan.0.keys().copied().collect(),
        built: BTreeSet::new(),
        has_failed: false,
    });
    let changed = Condvar::new();
    let builder = &*builder;
    let work = || worker(builder, &plan, &progress, &changed);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..workers)
            .map_while(|_| std::thread::Builder::new().name("stage".into()).spawn_scoped(scope, work).ok())
            .collect();
        // Without any more threads this one builds all.
        let mut done = work();
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and(ended);
        }
        done
    })
}

/// Builds one stage after the other, of those that wait for nothing.
fn worker(builder: &Builder, plan: &Plan, progress: &Mutex<Progress>, changed: &Condvar) -> Result<()> {
    // An overlay is mounted from a working directory of its own.
    let prepared = ns::own_directory().context(|| "give a thread a working directory of its own");
    let mut result = prepared.map_err(|e| builder.failed(e));
    let mut now = lock(progress);
    loop {
        now.has_failed |= result.is_err();
        if now.has_failed || now.waiting.is_empty() {
            changed.notify_all();
            return result;
        }
        let ready = now.waiting.iter().copied().find(|stage| plan.0[stage].is_subset(&now.built));
        let Some(stage) = ready else {
            now = changed.wait(now).unwrap_or_else(|e| e.into_inner());
            continue;
        };
        now.waiting.remove(&stage);
        drop(now);
        result = builder.stage(stage).map(drop);
        now = lock(progress);
        if result.is_ok() {
            now.built.insert(stage);
            changed.notify_all();
        }
    }
}

/// What `target` needs; the images that it needs come to `images`, with the stage and the instruction.
fn plan(builder: &Builder, target: usize, images: &mut Vec<(usize, usize, String)>) -> Result<Plan> {
    let mut direct = BTreeMap::new();
    let mut left = vec![target];
    while let Some(stage) = left.pop() {
        if direct.contains_key(&stage) {
            continue;
        }
        let needs = needs(builder, stage);
        left.extend(&needs.stages);
        images.extend(needs.images.into_iter().map(|(at, image)| (stage, at, image)));
        direct.insert(stage, needs.stages);
    }
    images.sort();
    let mut all: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    // In their order, so that what a stage needs is known before it.
    for (stage, needed) in direct {
        let indirect: BTreeSet<usize> = needed.iter().flat_map(|other| all[other].clone()).collect();
        all.insert(stage, needed.union(&indirect).copied().collect());
    }
    Ok(Plan(all))
}

/// What is wrong with a stage is said when it is built.
fn needs(builder: &Builder, number: usize) -> Needs {
    let mut needs = Needs::default();
    for (at, instruction) in builder.stages[number].iter().enumerate() {
        for from in sources(builder, number, instruction) {
            match from {
                From::Stage(stage) => drop(needs.stages.insert(stage)),
                From::Image(image) => needs.images.push((at, image)),
                From::Scratch | From::Files(_) => {}
            }
        }
    }
    needs
}

/// The images that triggers of the base at `path` take files from. What is wrong with one is said when it runs.
fn images_of_triggers(builder: &Builder, number: usize, path: &Path) -> Vec<String> {
    let Ok((_, config)) = stored(path) else { return Vec::new() };
    let triggers = config["config"]["OnBuild"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let parsed = triggers.filter_map(|trigger| dockerfile::parse_instruction(trigger).ok());
    let sources = parsed
        .filter(|instruction| !matches!(instruction.kind, Kind::From { .. }))
        .flat_map(|instruction| sources(builder, number, &instruction));
    let image = |from| match from {
        From::Image(image) => Some(image),
        From::Scratch | From::Stage(_) | From::Files(_) => None,
    };
    sources.filter_map(image).collect()
}

/// What an instruction takes files from.
fn sources(builder: &Builder, number: usize, instruction: &Instruction) -> Vec<From> {
    let named: Vec<Result<From>> = match &instruction.kind {
        Kind::From { .. } => {
            vec![builder.check_platform_of(instruction).and_then(|()| builder.base(number, instruction))]
        }
        Kind::Copy(_) => {
            instruction.flag("from").map(|from| builder.named_source(from, number)).into_iter().collect()
        }
        Kind::Run(_) => {
            let mounts =
                instruction.values("mount").map(|text| Mount::parse(text, &|word| Ok(word.to_owned())));
            let from = mounts.filter_map(|mount| mount.ok()?.from);
            from.map(|from| builder.named_source(&from, number)).collect()
        }
        _ => Vec::new(),
    };
    named.into_iter().filter_map(Result::<From, Error>::ok).collect()
}
