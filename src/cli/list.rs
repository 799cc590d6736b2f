//! `rt list`

use super::Call;
use super::state::{View, not_json};
use super::table::*;
use crate::store::Store;
use rt_sys::bail;
use rt_sys::error::Result;

/// Lists the containers.
pub(super) fn run(call: &Call) -> Result<u8> {
    let mut stores = vec![super::store(call)?];
    if super::root(call)?.is_none() {
        stores.extend(Store::of_jobs());
    }
    let lists = stores.iter().map(|store| Ok((store, store.list()?))).collect::<Result<Vec<_>>>()?;
    let views: Vec<_> =
        lists.iter().flat_map(|(store, states)| states.iter().map(|state| View::new(store, state))).collect();
    if call.flags.has(&QUIET) {
        return super::print(views.iter().map(|view| format!("{}\n", view.id)).collect::<String>());
    }
    match call.flags.text(&FORMAT)?.unwrap_or("table") {
        "table" => super::print(table(&views)),
        "json" => super::print(format!("{}\n", serde_json::to_string(&views).map_err(not_json)?)),
        other => bail!("list: invalid format option {other:?}"),
    }
}

/// runc's columns: three blanks between them, none narrower than twelve. Where there are containers of jobs, a last
/// one says of which.
fn table(views: &[View]) -> String {
    let jobs = views.iter().any(|view| view.step.is_some());
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER", "JOB"].map(String::from);
    let columns = if jobs { 7 } else { 6 };
    let row = |view: &View| {
        // Root sees what others have written.
        let bundle = super::one_line(&view.bundle.display().to_string());
        [
            view.id.into(),
            view.pid.to_string(),
            view.status.into(),
            bundle,
            super::one_line(view.created),
            view.owner.clone(),
            view.step.map(|step| super::one_line(&step.to_string())).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(views.iter().map(row)).collect();
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
