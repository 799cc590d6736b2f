//! `rt list`

use super::args::*;
use super::parse::Call;
use super::state::{View, not_json};
use crate::bail;
use crate::error::Result;

/// Lists the containers.
pub fn run(call: &Call) -> Result<u8> {
    let store = super::store(call)?;
    let states = store.list()?;
    let views: Vec<_> = states.iter().map(|state| View::new(&store, state)).collect();
    if call.flags.has(&QUIET) {
        return super::print(views.iter().map(|view| format!("{}\n", view.id)).collect::<String>());
    }
    match call.flags.text(&FORMAT)?.unwrap_or("table") {
        "table" => super::print(table(&views)),
        "json" => super::print(format!("{}\n", serde_json::to_string(&views).map_err(not_json)?)),
        other => bail!("list: invalid format option {other:?}"),
    }
}

/// runc's columns: three blanks between them, none narrower than twelve.
fn table(views: &[View]) -> String {
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(String::from);
    let row = |view: &View| {
        let bundle = view.bundle.display().to_string();
        [
            view.id.into(),
            view.pid.to_string(),
            view.status.into(),
            bundle,
            view.created.into(),
            view.owner.clone(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(views.iter().map(row)).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row[..5].iter().enumerate() {
            let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            text += &format!("{cell:<width$}", width = (widest + 3).max(12));
        }
        text += &format!("{}\n", row[5]);
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
