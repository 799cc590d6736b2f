//! `rt ps`

use super::Call;
use super::Named;
use super::state::not_json;
use super::table::*;
use crate::container;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, output};
use std::ffi::OsString;
use std::process::Command;

/// Lists the processes of a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let format = call.flags.text(&FORMAT)?.unwrap_or("table");
    if !matches!(format, "table" | "json") {
        bail!("ps: invalid format option {format:?}");
    }
    let Named { store, id, .. } = super::find(call)?;
    let pids = container::processes(&store, &id)?;
    if format == "json" {
        return super::print(format!("{}\n", serde_json::to_string(&pids).map_err(not_json)?));
    }
    let default = [OsString::from("-ef")];
    let args = if call.rest.is_empty() { &default } else { call.rest };
    let output = output::of(Command::new("ps").args(args)).context(|| "ps: run ps(1)")?;
    if !output.status.success() {
        bail!("ps(1): {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    super::print(of_processes(&String::from_utf8_lossy(&output.stdout), &pids)?)
}

/// The head of ps(1)'s `table` and the rows whose PID is one of `pids`.
fn of_processes(table: &str, pids: &[i32]) -> Result<String> {
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split_whitespace().position(|title| title == "PID");
    let column = column.ok_or_else(|| err!("ps: couldn't find PID field in ps output"))?;
    let mut rows = format!("{head}\n");
    for line in lines {
        let pid = line.split_whitespace().nth(column).and_then(|field| field.parse().ok());
        if pid.is_some_and(|pid| pids.contains(&pid)) {
            rows.push_str(line);
            rows.push('\n');
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ps_less_the_others() {
        let table =
            "UID          PID    PPID CMD\nroot           1       0 init 7\nroot           7       1 sh\n";
        assert_eq!(
            of_processes(table, &[7, 9]).unwrap(),
            "UID          PID    PPID CMD\nroot           7       1 sh\n"
        );
        let text = of_processes("CMD\ninit\n", &[1]).unwrap_err().to_string();
        assert_eq!(text, "ps: couldn't find PID field in ps output");
    }
}
