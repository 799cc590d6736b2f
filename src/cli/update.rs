//! `rt update`

use super::Call;
use super::table::*;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use serde_json::Value;
use std::io::Read;

/// Refuses to change limits, unless none are asked for.
pub(super) fn run(call: &Call) -> Result<u8> {
    let id = call.id()?;
    super::store(call)?.load(id)?;
    let asked = match call.flags.path(&RESOURCES) {
        Some(file) => {
            let json = if file.as_os_str() == "-" {
                let mut json = Vec::new();
                std::io::stdin().read_to_end(&mut json).context(|| "update: read stdin")?;
                json
            } else {
                std::fs::read(&file).context(|| format!("update: read {}", file.display()))?
            };
            match serde_json::from_slice(&json) {
                Ok(resources) => asks_for_something(&resources),
                Err(e) => bail!("update: resources are not JSON: {e}"),
            }
        }
        // As with runc, the file overrides the other flags.
        None => call.flags.iter().any(|(_, value)| !value.is_empty()),
    };
    if asked {
        bail!(
            "update {id}: resources are not applied: its limits are those of the cgroup that the scheduler put it in, and rt changes none \
             (ask the scheduler, by scontrol for one)"
        );
    }
    Ok(0)
}

/// False where every value is empty or zero, which is how clients write "unchanged".
fn asks_for_something(resources: &Value) -> bool {
    match resources {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => values.iter().any(asks_for_something),
        Value::Object(fields) => fields.values().any(asks_for_something),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_is_what_clients_write() {
        let asks = |json| asks_for_something(&serde_json::from_str(json).unwrap());
        assert!(!asks(
            r#"{"memory":{"limit":0,"swap":null},"cpu":{"cpus":"","quota":0},"devices":[],"unified":{}}"#
        ));
        assert!(asks(r#"{"memory":{"limit":1048576}}"#));
        assert!(asks(r#"{"pids":{"limit":-1}}"#));
        assert!(asks(r#"{"cpu":{"cpus":"0-3"}}"#));
    }
}
