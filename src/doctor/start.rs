//! The real thing: a container of the host's own userland.

use super::Check;
use crate::store::Store;
use rt_image_store::word;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, output};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "a container";

pub(super) fn checks(store: Result<Store>, root: Option<&Path>) -> Vec<Check> {
    if let Err(e) = store {
        return vec![Check::problem("state directory", e.to_string())];
    }
    let tried = Bundle::new().and_then(|bundle| {
        let run = output::of(bundle.rt(root, &["run"]).arg(&bundle.0).args(["--", "true"]));
        require(run.context(|| "execute rt")?)
    });
    vec![match tried {
        Ok(()) => Check::ok(NAME, "of the host's userland was started and has run true"),
        Err(e) => Check::problem(NAME, format!("of the host's userland does not start: {e}")),
    }]
}

/// A bundle of the host's userland, which is removed again.
pub(super) struct Bundle(PathBuf);

impl Bundle {
    pub(super) fn new() -> Result<Bundle> {
        // Hooks of a bundle are executed, so nobody else may put one in its place.
        let mut dir = word::temporary_directory()?;
        dir.push(format!("rt-doctor-{}", rt_sys::unique::name()));
        std::fs::DirBuilder::new().mode(0o700).create(&dir).context(|| format!("make {}", dir.display()))?;
        let bundle = Bundle(dir);
        let made = output::of(bundle.rt(None, &["spec", "--host", "--bundle"]).arg(&bundle.0));
        require(made.context(|| "execute rt")?)?;
        Ok(bundle)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn rt(&self, root: Option<&Path>, words: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        if let Some(root) = root {
            command.arg("--root").arg(root);
        }
        command.args(words).stdin(Stdio::null());
        command
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn require(output: std::process::Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or_default();
    match line.strip_prefix("rt: ").unwrap_or(line) {
        "" => bail!("it ended with {}", output.status),
        text => Err(err!("{text}")),
    }
}
