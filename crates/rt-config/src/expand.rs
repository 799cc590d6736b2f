//! `$NAME` in paths, and what the name of a variable is.

use rt_sys::bail;
use rt_sys::error::Result;

/// Looks a variable up: in this process's environment, or in that of a job.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `path` with the values of the variables that it names, as `$NAME` or `${NAME}`.
pub(crate) fn expand(path: &str, variable: Lookup<'_>) -> Result<String> {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('$') {
        text.push_str(before);
        let name = match behind.strip_prefix('{') {
            Some(inside) => inside.split_once('}'),
            None => Some(behind.split_at(name_length(behind))),
        };
        let Some((name, behind)) = name.filter(|(name, _)| is_name(name)) else {
            bail!("$ without the name of a variable");
        };
        match variable(name).filter(|value| !value.is_empty()) {
            Some(value) => text.push_str(&value),
            None => bail!("the variable {name} is not set"),
        }
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

fn name_length(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

/// True for what a shell takes as the name of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len() && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// True for such a name, also with `*` at its end, which means all that begin so.
pub(crate) fn is_pattern(text: &str) -> bool {
    text == "*" || is_name(text.strip_suffix('*').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_variables() {
        let variable = |name: &str| match name {
            "USER" => Some("ada".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (path, expected) in [
            ("/scratch/$USER", Some("/scratch/ada")),
            ("/scratch/${USER}_x/$USER.d", Some("/scratch/ada_x/ada.d")),
            ("/plain", Some("/plain")),
            ("/$NONE", None),
            ("/$EMPTY/x", None),
            ("/$", None),
            ("/${USER", None),
            ("/${}", None),
            ("/$1", None),
        ] {
            assert_eq!(expand(path, &variable).ok().as_deref(), expected, "{path}");
        }
    }
}
