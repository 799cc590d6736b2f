//! Stamps: what tells, without reading an image, that it is the one that was read before.
//!
//! Images that are no registry's are asked for at each start, since they can change under their name. A layout is read in
//! a millisecond. A compressed archive has to be inflated, and an engine writes the whole image out, to be compared.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::platform::Platform;
use super::super::reference::Source;
use super::names;
use oci_content::digest::Digest;

/// The key of the image's present state; none where the image itself is as fast, or nothing can be said.
pub(super) fn key(source: &Source, platform: &Platform) -> Option<String> {
    let state = match source {
        Source::OciArchive { path, .. } | Source::DockerArchive { path, .. } => of_file(path)?,
        Source::Engine { program, image } => of_engine(program, image)?,
        Source::Registry(_) | Source::OciLayout { .. } => return None,
    };
    let text = format!("{}\n{platform}\n{state}", names::canonical(source).ok()?);
    Some(format!(",stamp-{}", Digest::of(text.as_bytes()).hex()))
}

/// The change time cannot be set by anybody, so a file with the same one has the same contents.
fn of_file(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let (changed, modified) = ((found.ctime(), found.ctime_nsec()), (found.mtime(), found.mtime_nsec()));
    Some(format!("{} {} {} {changed:?} {modified:?}", found.dev(), found.ino(), found.size()))
}

/// The digest of the config, by which engines know images.
fn of_engine(program: &str, image: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(["image", "inspect", "--format", "{{.Id}}", "--", image]);
    command.stderr(Stdio::null());
    let (status, printed) = rt_sys::output::stdout_of(&mut command, None).ok()?;
    let id = String::from_utf8(printed).ok().filter(|_| status.success())?;
    Some(id.trim().trim_start_matches("sha256:").to_owned()).filter(|id| id.len() == 64)
}
