//! `rt list`

use super::Call;
use super::state::{not_json, printed};
use super::table::*;
use crate::store::{Record, Store};
use rt_spec::ANNOTATION_NAME;
use rt_spec::state::State;
use rt_sys::error::{Error, Result};
use rt_sys::log::{self, one_line};
use rt_sys::{account, bail, tty};

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
        match call.flags.text(&FORMAT)? {
            None if tty::is_terminal(std::io::stdout()) => {
                let width = tty::width(std::io::stdout()).filter(|columns| *columns > 0);
                for_people(&states, width.unwrap_or(usize::MAX))
            }
            None | Some("table") => table(&states),
            Some("json") => log::json(&serde_json::to_string(&states).map_err(not_json)?) + "\n",
            Some(other) => bail!("list: invalid format option {other:?}"),
        }
    };
    let code = super::print(text)?;
    if !call.flags.has(&QUIET) {
        lists.iter().try_for_each(|(store, (records, _))| tell_of_failed_saves(store, records))?;
    }
    // What can be listed has been. A list that hides a container is not all right.
    lists.into_iter().find_map(|(_, (_, failed))| failed).map_or(Ok(code), Err)
}

/// Says which containers a step could not save. It has said so itself, but where srun had gone by then, in slurmd's log.
fn tell_of_failed_saves(store: &Store, records: &[Record]) -> Result<()> {
    for Record { id, .. } in records {
        for file in store.failed_saves(id)? {
            let (file, root) = (file.display(), store.path().display());
            let saves = format!("rt --root {root} slurm save {id} FILE saves it");
            log::tell(format_args!(
                "container {id} was not saved as {file}: on this node, until its job ends, {saves}"
            ));
        }
    }
    Ok(())
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

/// The table for a terminal of so many columns: the image's name in place of a long path, the owner's name, and a short time.
/// The image gives way where a row would be too long; an id is whole, because it is what is typed.
fn for_people(states: &[State], width: usize) -> String {
    const IMAGE: usize = 3;
    const LEAST: usize = 12;
    let jobs = states.iter().any(|state| state.step.is_some());
    let head = ["ID", "PID", "STATUS", "IMAGE", "CREATED", "OWNER", "JOB"].map(String::from);
    let row = |state: &State| {
        let job = state.step.as_ref().map(|step| one_line(&step.to_string())).unwrap_or_default();
        [
            state.id.clone(),
            state.pid.to_string(),
            state.status.clone(),
            one_line(&image(state)),
            one_line(&short_time(state)),
            one_line(&owner(state)),
            job,
        ]
    };
    let mut rows: Vec<_> = std::iter::once(head).chain(states.iter().map(row)).collect();
    let columns = if jobs { 7 } else { 6 };
    let widest = |rows: &[[String; 7]], column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let others: usize = (0..columns).filter(|n| *n != IMAGE).map(|n| widest(&rows, n) + 2).sum();
    let room = width.saturating_sub(others).max(LEAST);
    rows.iter_mut().for_each(|row| row[IMAGE] = end_of(&row[IMAGE], room));
    let mut text = String::new();
    for row in &rows {
        let cells = (0..columns).map(|n| format!("{:<width$}", row[n], width = widest(&rows, n)));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The name of the image that a container runs, or else its bundle.
fn image(state: &State) -> String {
    let name = state.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION_NAME));
    name.cloned().unwrap_or_else(|| state.bundle.display().to_string())
}

/// The name of the owner where this machine's accounts have one.
fn owner(state: &State) -> String {
    let number = state.owner.as_deref().unwrap_or_default().trim_start_matches('#');
    let account = number.parse().ok().and_then(account::in_file);
    account.map_or_else(|| number.to_owned(), |account| account.name)
}

/// Month, day, hour and minute of RFC 3339, in UTC.
fn short_time(state: &State) -> String {
    let created = state.created.as_deref().unwrap_or_default();
    created.get(5..16).unwrap_or(created).replace('T', " ")
}

/// `text`, or its end with dots in front, where it is longer than `room`: names differ at their ends.
fn end_of(text: &str, room: usize) -> String {
    match text.chars().count() {
        length if length > room => {
            format!("...{}", text.chars().skip(length + 3 - room).collect::<String>())
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(end_of("registry.example/team/tool:1.2", 12), ".../tool:1.2");
        assert_eq!(end_of("debian:12", 12), "debian:12");
    }

    #[test]
    fn an_empty_table_is_runcs() {
        // `runc list` with no container.
        let runc = "ID          PID         STATUS      BUNDLE      CREATED     OWNER\n";
        assert_eq!(table(&[]), runc);
    }
}
