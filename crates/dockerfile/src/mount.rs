//! `RUN --mount=type=...`

/// What a mount of RUN is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is named as its key")]
pub enum MountKind {
    /// Files of the context, a stage or an image. Writes to it are thrown away.
    Bind { writable: bool },
    /// A directory that stays from build to build. The mode and the owner are those of a new one.
    Cache { id: Option<String>, mode: u32, uid: u32, gid: u32, readonly: bool, sharing: Sharing },
    /// An empty file system in memory, of so many bytes at most.
    Tmpfs { size: Option<u64> },
    /// A file that is in no layer, or a variable that is in no config.
    Secret { id: String, mode: u32, uid: u32, gid: u32, required: bool, variable: Option<String> },
    /// The socket of an agent with the caller's keys.
    Ssh { id: String, required: bool },
}

/// Who has a cache at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All.
    Shared,
    /// One: others get another directory.
    Private,
    /// One: others wait.
    Locked,
}

/// A mount of RUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What it is.
    pub kind: MountKind,
    /// Where it is; empty where the kind says it.
    pub target: String,
    /// The stage or image that it shows, where it is not the context.
    pub from: Option<String>,
    /// The path there.
    pub source: String,
}

impl Mount {
    /// Reads the value of the flag. `expand` expands variables in values; `from=` has none.
    ///
    /// # Errors
    /// What is wrong with it, or is not known here.
    pub fn parse(text: &str, expand: &dyn Fn(&str) -> Result<String, String>) -> Result<Mount, String> {
        let mut options: Vec<(String, String)> = Vec::new();
        for field in text.split(',') {
            let (key, value) = field.split_once('=').unwrap_or((field, "true"));
            let key = key.trim().to_ascii_lowercase();
            let value = if key == "from" { value.to_owned() } else { expand(value)? };
            options.push((key, value));
        }
        let mut take = |names: &[&str]| -> Option<String> {
            let mut last = None;
            options.retain(|(key, value)| {
                let mine = names.contains(&key.as_str());
                if mine {
                    last = Some(value.clone());
                }
                !mine
            });
            last
        };
        let kind = take(&["type"]).unwrap_or_else(|| "bind".to_owned());
        let target = take(&["target", "dst", "destination"]);
        let (from, source) = (take(&["from"]), take(&["source", "src"]));
        let switch = |value: Option<String>| -> Result<Option<bool>, String> {
            value
                .map(|value| {
                    value.parse().map_err(|_| format!("--mount: {value:?} is neither true nor false"))
                })
                .transpose()
        };
        let mode = |value: Option<String>, default: u32| match value {
            Some(value) => u32::from_str_radix(&value, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777)
                .ok_or_else(|| format!("--mount: mode={value}: not a mode such as 0755")),
            None => Ok(default),
        };
        let owner = |value: Option<String>, key: &str| match value {
            Some(value) => value.parse::<u32>().map_err(|_| format!("--mount: {key}={value}: not a number")),
            None => Ok(0),
        };
        let read_only = switch(take(&["ro", "readonly"]))?;
        let writable = switch(take(&["rw", "readwrite"]))?;
        let kind = match kind.as_str() {
            "bind" => MountKind::Bind { writable: writable.unwrap_or(false) && read_only != Some(true) },
            "cache" => {
                let sharing = match take(&["sharing"]).as_deref() {
                    None | Some("shared") => Sharing::Shared,
                    Some("private") => Sharing::Private,
                    Some("locked") => Sharing::Locked,
                    Some(other) => {
                        return Err(format!("--mount: sharing={other}: use shared, private or locked"));
                    }
                };
                if from.is_some() || source.is_some() {
                    return Err("--mount=type=cache: from= and source= are not supported".to_owned());
                }
                let readonly = read_only.unwrap_or(false) || writable == Some(false);
                let (uid, gid) = (owner(take(&["uid"]), "uid")?, owner(take(&["gid"]), "gid")?);
                let mode = mode(take(&["mode"]), 0o755)?;
                MountKind::Cache { id: take(&["id"]), mode, uid, gid, readonly, sharing }
            }
            "tmpfs" => {
                let size = take(&["size"])
                    .map(|size| bytes(&size).ok_or_else(|| format!("--mount: size={size}: not a size")));
                MountKind::Tmpfs { size: size.transpose()? }
            }
            "secret" => {
                let variable = take(&["env"]);
                let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
                let id = take(&["id"]).or_else(|| source.clone()).or_else(|| target.as_deref().map(last));
                let id = id.filter(|id| !id.is_empty()).ok_or("--mount=type=secret: no id")?;
                let required = switch(take(&["required"]))?.unwrap_or(false);
                let (uid, gid) = (owner(take(&["uid"]), "uid")?, owner(take(&["gid"]), "gid")?);
                MountKind::Secret { id, mode: mode(take(&["mode"]), 0o400)?, uid, gid, required, variable }
            }
            "ssh" => {
                let id = take(&["id"]).filter(|id| !id.is_empty()).unwrap_or_else(|| "default".to_owned());
                let required = switch(take(&["required"]))?.unwrap_or(false);
                let mode = mode(take(&["mode"]), 0o600)?;
                if mode != 0o600 {
                    return Err(format!(
                        "--mount=type=ssh: mode={mode:o} is not supported: the socket is the caller's"
                    ));
                }
                // The socket is the caller's, whose id every user of a RUN has.
                owner(take(&["uid"]), "uid")?;
                owner(take(&["gid"]), "gid")?;
                MountKind::Ssh { id, required }
            }
            other => {
                return Err(format!(
                    "--mount=type={other} is not supported: use bind, cache, tmpfs, secret or ssh"
                ));
            }
        };
        let target = target.unwrap_or_default();
        let has_own_place = matches!(kind, MountKind::Secret { .. } | MountKind::Ssh { .. });
        if target.is_empty() && !has_own_place {
            return Err("--mount: no target".to_owned());
        }
        if let Some((key, _)) = options.first() {
            return Err(format!("--mount: unexpected key {key:?}"));
        }
        Ok(Mount {
            kind,
            target,
            from,
            source: if has_own_place { String::new() } else { source.unwrap_or_default() },
        })
    }
}

/// A size, as docker writes it.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match number.as_bytes().last()? {
        b'k' => (&number[..number.len() - 1], 10),
        b'm' => (&number[..number.len() - 1], 20),
        b'g' => (&number[..number.len() - 1], 30),
        _ => (number, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Mount, String> {
        Mount::parse(text, &|text| Ok(text.replace("$x", "X")))
    }

    #[test]
    fn every_kind() {
        let mount = parse("target=/$x,from=$x,source=a").unwrap();
        assert_eq!(
            (mount.target.as_str(), mount.from.as_deref(), mount.source.as_str()),
            ("/X", Some("$x"), "a")
        );
        assert_eq!(mount.kind, MountKind::Bind { writable: false });
        assert_eq!(parse("type=bind,dst=a,rw").unwrap().kind, MountKind::Bind { writable: true });
        assert_eq!(
            parse("type=cache,target=/c,id=i,sharing=locked,mode=0700").unwrap().kind,
            MountKind::Cache {
                id: Some("i".into()),
                mode: 0o700,
                uid: 0,
                gid: 0,
                readonly: false,
                sharing: Sharing::Locked
            }
        );
        assert_eq!(
            parse("type=tmpfs,target=/t,size=2m").unwrap().kind,
            MountKind::Tmpfs { size: Some(2 << 20) }
        );
        let cache = parse("type=cache,target=/c,sharing=private,uid=7,gid=8").unwrap().kind;
        assert!(
            matches!(cache, MountKind::Cache { uid: 7, gid: 8, sharing: Sharing::Private, .. }),
            "{cache:?}"
        );
        let secret =
            MountKind::Secret { id: "k".into(), mode: 0o400, uid: 0, gid: 9, required: true, variable: None };
        assert_eq!(parse("type=secret,target=/run/k,required,gid=9").unwrap().kind, secret);
        let ssh = |id: &str, required| MountKind::Ssh { id: id.into(), required };
        assert_eq!(parse("type=ssh,uid=7").unwrap().kind, ssh("default", false));
        assert_eq!(parse("type=ssh,id=github,required=true,target=/s").unwrap().kind, ssh("github", true));
    }

    #[test]
    fn what_is_none() {
        for bad in [
            "type=ssh,mode=0666",
            "type=device",
            "type=bind",
            "type=cache",
            "type=secret",
            "type=tmpfs,target=/t,size=x",
            "target=/a,foo=b",
            "type=cache,target=/a,sharing=alone",
            "type=cache,target=/a,mode=9",
            "target=/a,rw=maybe",
            "type=cache,target=/a,uid=app",
            "type=secret,id=a,gid=-1",
            "type=bind,target=/a,uid=5",
            "type=tmpfs,target=/a,gid=0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
