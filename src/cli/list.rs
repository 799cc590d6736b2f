//! `rt list`

use super::Call;
use super::state::{not_json, printed};
use super::table::*;
use crate::store::{Record, Store};
use rt_spec::state::State;
use rt_sys::bail;
use rt_sys::error::{Error, Result};
use rt_sys::log::one_line;

/// What a store lists, and why it cannot list all.
type Listed = (Vec<Record>, Option<Error>);

/// Lists the containers.
pub(super) fn run(call: &Call) -> Result<u8> {
    let mut stores = vec![super::store(call)?];
    if super::root(call)?.is_none() {
        stores.extend(Store::of_jobs()?);
    }
    let lists = stores.iter().map(|store| Ok((store, store.list_all()?))).collect::<Result<Vec<_>>>()?;
    let of_store = |(store, (records, _)): &(&Store, Listed)| {
        records.iter().map(|record| printed(store, record)).collect::<Vec<_>>()
    };
    let states: Vec<State> = lists.iter().flat_map(of_store).collect::<Result<_>>()?;
    let text = if call.flags.has(&QUIET) {
        states.iter().map(|state| format!("{}\n", state.id)).collect()
    } else {
        match call.flags.text(&FORMAT)?.unwrap_or("table") {
            "table" => table(&states),
            "json" => format!("{}\n", serde_json::to_string(&states).map_err(not_json)?),
            other => bail!("list: invalid format option {other:?}"),
        }
    };
    let code = super::print(text)?;
    // What can be listed has been. A list that hides a container is not all right.
    lists.into_iter().find_map(|(_, (_, failed))| failed).map_or(Ok(code), Err)
}

/// runc's columns: three blanks between them, none narrower than twelve. Where there are containers of jobs, a last
/// column names the job.
fn table(states: &[State]) -> String {
    let jobs = states.iter().any(|state| state.step.is_some());
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER", "JOB"].map(String::from);
    let columns = if jobs { 7 } else { 6 };
    let row = |state: &State| {
        // Another user may have written the record that root looks at: no control character reaches the terminal.
        let bundle = one_line(&state.bundle.display().to_string());
        [
            state.id.clone(),
            state.pid.to_string(),
            state.status.clone(),
            bundle,
            one_line(state.created.as_deref().unwrap_or_default()),
            state.owner.clone().unwrap_or_default(),
            state.step.as_ref().map(|step| one_line(&step.to_string())).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(states.iter().map(row)).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row[..columns - 1].iter().enumerate() {
            let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            text += &format!("{cell:<width$}", width = (widest + 3).max(12));
        }
        text += &format!("{}\n", row[columns - 1]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_runcs() {
        // `runc list` with no container.
        let runc = "ID          PID         STATUS      BUNDLE      CREATED     OWNER\n";
        assert_eq!(table(&[]), runc);
    }
}
