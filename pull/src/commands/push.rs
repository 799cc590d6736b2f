//! `rt push`

use super::{cache_location, connect_options, operand, registry, save, tell};
use crate::platform::Platform;
use crate::progress::{Style, size};
use crate::push::{self, PushOptions, PushSource};
use rt_cli::image::{JSON, OVER, PLATFORM, SILENT};
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_sys::err;
use rt_sys::error::Result;
use serde_json::json;

/// What is pushed, with what was written over it.
fn what(call: &Call) -> Result<PushSource> {
    match (call.flags.path(&OVER), PushSource::parse(call.operands[0])) {
        (None, Ok(PushSource::Bundle(..))) => Ok(PushSource::Bundle(save::source_bundle(call)?, None)),
        (None, source) => source,
        (Some(_), Ok(PushSource::Image(_))) => {
            Err(err!("push: --overlay is for bundles and images by name, and not for layouts and archives"))
        }
        (overlay, _) => Ok(PushSource::Bundle(save::source_bundle(call)?, overlay)),
    }
}

/// Pushes, and prints the manifest's digest on stdout, the rest on stderr.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    let style = Style::of_terminal(flags.has(&SILENT) || flags.has(&JSON));
    let pushed = push::run(&PushOptions {
        source: what(call)?,
        target: push::target(operand(call, 1)?, registry()?)?,
        platform: flags.text(&PLATFORM)?.map_or_else(|| Ok(Platform::host()), str::parse)?,
        connect: connect_options(flags)?,
        cache: cache_location(flags)?,
        style,
    })?;
    if flags.has(&JSON) {
        let (sent, present, mounted) = (pushed.sent, pushed.present, pushed.mounted);
        return print_json(&json!({
            "name": pushed.name, "digest": pushed.digest, "sentBytes": sent, "presentBytes": present,
            "mountedBytes": mounted,
        }));
    }
    if style != Style::Quiet {
        tell(&format!(
            "{}: {} sent, {} were there\n",
            pushed.name,
            size(pushed.sent),
            size(pushed.present + pushed.mounted)
        ));
    }
    print(format!("{}\n", pushed.digest))
}
