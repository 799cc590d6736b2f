//! `rt config`

use super::Call;
use rt_cli::image::JSON;
use rt_cli::print;
use rt_config::{Config, KEYS, Key, Origin, Setting, Value};
use rt_sys::error::Result;
use rt_sys::log;
use serde_json::{Value as Json, json};

/// Prints what is configured, and where each value comes from.
pub(super) fn run(call: &Call) -> Result<u8> {
    let config = Config::read(&rt_config::own_variable)?;
    print(if call.flags.has(&JSON) { as_json(&config) } else { as_text(&config) })
}

/// A line for each value, and for each key that has none.
fn as_text(config: &Config) -> String {
    let mut rows = vec![["KEY".to_owned(), "VALUE".to_owned(), "FROM".to_owned()]];
    for key in KEYS {
        let before = rows.len();
        for Setting { value, from, .. } in config.of(key) {
            rows.push([key.full_name(), log::one_line(&value.to_string()), log::one_line(&from.to_string())]);
        }
        if rows.len() == before {
            rows.push([key.full_name(), "-".to_owned(), "-".to_owned()]);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    rows.iter().map(|[key, value, from]| format!("{key:<first$}  {value:<second$}  {from}\n")).collect()
}

fn as_json(config: &Config) -> String {
    let places = rt_config::places(&rt_config::own_variable);
    let files = places.iter().map(|path| json!({ "path": path, "read": config.files.contains(path) }));
    let keys = KEYS.iter().filter(|key| config.of(key).next().is_some());
    let keys = keys.map(|key| (key.full_name(), of_key(key, config)));
    let document = json!({
        "files": files.collect::<Vec<_>>(),
        "keys": keys.collect::<serde_json::Map<_, _>>(),
    });
    log::json(&format!("{document:#}")) + "\n"
}

/// A list of values where the key's value is a list, else the value.
fn of_key(key: &'static Key, config: &Config) -> Json {
    let mut all: Vec<Json> = config.of(key).map(setting).collect();
    match (key.kind, all.pop()) {
        (kind, Some(last)) if !kind.adds_up() => last,
        (_, last) => {
            all.extend(last);
            Json::Array(all)
        }
    }
}

fn setting(setting: &Setting) -> Json {
    let mut object = match &setting.from {
        Origin::File { path, line } => json!({ "file": &**path, "line": line }),
        Origin::Variable(name) => json!({ "variable": name }),
    };
    object["value"] = match &setting.value {
        Value::Switch(on) => json!(on),
        Value::Number(number) => json!(number),
        Value::Text(text) | Value::Expanded(text) => json!(text),
        Value::Variable(name, value) => json!({ "name": name, "value": value }),
        Value::Mount(mount) => json!({
            "source": mount.source, "target": mount.target, "options": mount.options, "optional": mount.optional,
        }),
    };
    object
}
