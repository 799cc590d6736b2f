//! `rt doctor`

use super::Call;
use crate::doctor::{self, Check, Status};
use rt_cli::image::JSON;
use rt_sys::error::Result;
use rt_sys::log::{self, one_line};
use serde_json::json;

/// Prints what was found; the exit code is 1 where containers cannot start.
pub(super) fn run(call: &Call) -> Result<u8> {
    let root = super::root(call)?;
    let checks = doctor::examine(super::new_store(call), root.as_deref());
    let ok = checks.iter().all(|check| check.status != Status::Problem);
    let text = match call.flags.has(&JSON) {
        true => log::json(&format!("{:#}", json!({ "ok": ok, "checks": checks }))) + "\n",
        false => checks.iter().map(line).collect(),
    };
    super::print(text)?;
    Ok(u8::from(!ok))
}

fn line(check: &Check) -> String {
    let status = match check.status {
        Status::Ok => "ok",
        Status::Note => "note",
        Status::Problem => "PROBLEM",
    };
    let mut text = format!("{status:<9}{}: {}\n", check.name, one_line(&check.text));
    if let Some(remedy) = &check.remedy {
        text += &format!("{:<9}-> {}\n", "", one_line(remedy));
    }
    text
}
