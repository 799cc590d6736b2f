//! What the fuzz target of definitions calls (`fuzz/` at the root of the sources). It panics where a promise is broken.

use super::{Definition, PRECREATE, When, inject, parse};
use rt_spec::Config;
use rt_spec::caller_request::CallerRequest;
use std::path::{Path, PathBuf};

/// Configs with and without what the conditions ask about.
const CONFIGS: [&str; 2] = [
    r#"{"ociVersion":"1.0.0","root":{"path":"r"},"process":{"cwd":"/","user":{"uid":0,"gid":0},"args":["/bin/sh"]}}"#,
    r#"{"ociVersion":"1.0.0","root":{"path":"r"},"process":{"cwd":"/","user":{"uid":0,"gid":0},"args":["/usr/bin/python3","x"],
        "env":["NVIDIA_VISIBLE_DEVICES=all"]},"annotations":{"com.example.gpu":"yes","other":"no"},
        "mounts":[{"destination":"/data","source":"/d","type":"bind"}],"hooks":{"poststop":[{"path":"/p"}]}}"#,
];

/// A definition that is taken is the same with its keys in another order, is for a container where all of its conditions are
/// for it alone, and then adds itself once for each of its stages.
pub fn definition(bytes: &[u8]) {
    let Ok(definition) = parse(bytes) else { return };
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) {
        let again = parse(json.to_string().as_bytes()).expect("the same with sorted keys");
        assert_eq!(format!("{again:?}"), format!("{definition:?}"));
    }
    for text in CONFIGS {
        let config = || Config::parse(text.into()).expect("a config");
        let spec = config().spec;
        let matches =
            |when: When| Definition { when, ..definition.clone() }.matches(&spec).expect("checked patterns");
        let alone: Vec<bool> = conditions(&definition.when).into_iter().map(matches).collect();
        let expected = !alone.is_empty() && alone.iter().all(|alone| *alone);
        assert_eq!(matches(definition.when.clone()), expected, "{definition:?} for {text}");
        // A hook of the stage precreate would be run.
        if definition.stages.iter().any(|stage| stage == PRECREATE) {
            continue;
        }
        let mut config = config();
        let all = [(PathBuf::from("/h.json"), definition.clone())];
        inject(&mut config, &all, &CallerRequest::default(), Path::new("/")).expect("no hook is run");
        let hooks = |spec: &rt_spec::Spec| {
            let value = serde_json::to_value(spec.hooks()).expect("hooks are JSON");
            value
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(_, list)| Some(list.as_array()?.len()))
                .sum::<usize>()
        };
        let added = if expected { definition.stages.len() } else { 0 };
        assert_eq!(hooks(&config.spec), hooks(&spec) + added, "{definition:?} for {text}");
        let again = Config::parse(config.text().expect("hooks are JSON").into_owned())
            .expect("what was written is read again");
        assert_eq!(again.spec, config.spec);
    }
}

/// Each condition alone.
fn conditions(when: &When) -> Vec<When> {
    let mut all = Vec::new();
    all.extend(when.always.map(|always| When { always: Some(always), ..When::default() }));
    all.extend(when.has_bind_mounts.map(|wanted| When { has_bind_mounts: Some(wanted), ..When::default() }));
    for (key, value) in &when.annotations {
        all.push(When { annotations: [(key.clone(), value.clone())].into(), ..When::default() });
    }
    if !when.commands.is_empty() {
        all.push(When { commands: when.commands.clone(), ..When::default() });
    }
    all
}

#[cfg(test)]
mod tests {
    /// The target itself works; its search is cargo-fuzz's.
    #[test]
    fn the_target_runs() {
        for when in
            [r#"{"always":true}"#, r#"{"annotations":{"gpu$":"yes"},"commands":["sh$","python"]}"#, "{}"]
        {
            let text = format!(
                r#"{{"version":"1.0.0","hook":{{"path":"/h","timeout":3}},"when":{when},"stages":["poststop","prestart"]}}"#
            );
            super::definition(text.as_bytes());
        }
    }
}
