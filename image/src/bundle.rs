//! The config of an image file, most of it of the profile hpc, with what the image says about how it is run.
//!
//! An image says it in one of five ways, looked for in this order: the config of a bundle in `/.rt/config.json`
//! ([`rt_image_store::own_config`]); that of an OCI image in `/.rt/image.json`; the scripts of Apptainer in `/.singularity.d`; enroot's script `/etc/rc`, with `/etc/environment` and `/etc/fstab`; or not
//! at all. Nothing of it reaches beyond the container: no image mounts what the host has, and none names hooks or devices.

use crate::inside;
use rt_image_store::own_config;
use rt_spec::hpc::{self, HOST_FILES};
use rt_spec::json_error;
use rt_spec::{
    ANNOTATION_CMD, ANNOTATION_COPIED, ANNOTATION_ENTRYPOINT, ANNOTATION_ENVIRONMENT, ANNOTATION_OPTIONAL,
    ANNOTATION_PASSWD, ANNOTATION_USER,
};
use rt_sys::err;
use rt_sys::error::{Context, Error, Result};
use serde_json::{Value, json};
use squashfs::{Filesystem, Source};
use std::path::Path;

/// The config of the bundle, and that of the OCI image, in image files that `rt` writes.
const OWN_CONFIG: &str = ".rt/config.json";
const OWN_IMAGE: &str = ".rt/image.json";
/// Where Apptainer keeps what it runs.
const APPTAINER: &str = ".singularity.d";
const RUNSCRIPT: &str = ".singularity.d/runscript";
/// Enroot's start script.
const RC: &str = "etc/rc";
/// The most that is read of a file.
const MOST: usize = 1 << 20;
/// A variable that programs need, where the image says nothing of it.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Reads the scripts that set Apptainer's environment, then becomes the program.
const APPTAINER_ENTRY: &str = "for RT_SCRIPT in /.singularity.d/env/*.sh; do \
    if [ -f \"$RT_SCRIPT\" ]; then . \"$RT_SCRIPT\"; fi; done; unset RT_SCRIPT; exec \"$@\"";

/// How an image is run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    env: Vec<String>,
    cwd: Option<String>,
    /// Directories that the image wants to be writable and empty.
    tmpfs: Vec<String>,
}

/// The config.json for the image at `path`.
pub(crate) fn config(fs: &Filesystem<impl Source>, path: &Path) -> Result<Vec<u8>> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if let Some(text) = inside::read(fs, OWN_CONFIG, MOST)? {
        let said = serde_json::from_slice(&text).map_err(json_error);
        let config = said.and_then(|said| own_config::config(&said, path, uid, gid));
        return to_text(&config.context(|| format!("the image's /{OWN_CONFIG}"))?);
    }
    let mut run = Run::of(fs)?;
    if !run.env.iter().any(|variable| variable.starts_with("PATH=")) {
        run.env.push(DEFAULT_PATH.to_owned());
    }
    let mut mounts = hpc::mounts();
    mounts.extend(run.tmpfs.iter().map(|path| {
        json!({ "destination": path, "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "nodev", "tmpcopyup", "mode=1777"] })
    }));
    let args: Vec<&String> = run.entrypoint.iter().chain(&run.cmd).collect();
    let mut annotations = json!({
        ANNOTATION_USER: "caller",
        ANNOTATION_PASSWD: "caller",
        ANNOTATION_ENVIRONMENT: "caller",
        ANNOTATION_OPTIONAL: HOST_FILES.join(","),
        ANNOTATION_COPIED: HOST_FILES.join(","),
        "rt.image.name": path.to_string_lossy(),
    });
    for (key, words) in [(ANNOTATION_ENTRYPOINT, &run.entrypoint), (ANNOTATION_CMD, &run.cmd)] {
        if !words.is_empty() {
            annotations[key] = json!(json!(words).to_string());
        }
    }
    let config = json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": false,
            "user": { "uid": uid, "gid": gid },
            "args": args,
            "env": run.env,
            "cwd": run.cwd.as_deref().unwrap_or("/"),
            "noNewPrivileges": true,
        },
        "root": { "path": path, "readonly": true },
        "mounts": mounts,
        "linux": hpc::linux(uid, gid),
        "annotations": annotations,
    });
    to_text(&config)
}

fn to_text(config: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(config).map_err(|e| Error::new(e.to_string()))
}

impl Run {
    fn of(fs: &Filesystem<impl Source>) -> Result<Run> {
        if let Some(text) = inside::read(fs, OWN_IMAGE, MOST)? {
            return Run::of_oci(&text).context(|| format!("the image's /{OWN_IMAGE}"));
        }
        let exists = |path| Ok::<bool, Error>(inside::find(fs, path)?.is_some());
        if exists(APPTAINER)? {
            return Ok(Run::of_apptainer(exists(RUNSCRIPT)?));
        }
        if exists(RC)? {
            return Run::of_enroot(fs);
        }
        let shell = if exists("bin/bash")? { "/bin/bash" } else { "/bin/sh" };
        Ok(Run { cmd: vec![shell.to_owned()], ..Run::default() })
    }

    /// image-spec, config.md.
    fn of_oci(text: &[u8]) -> Result<Run> {
        let image: Value = serde_json::from_slice(text).map_err(|e| Error::new(e.to_string()))?;
        let config = &image["config"];
        let words = |key: &str| -> Result<Vec<String>> {
            let word = |word: &Value| word.as_str().map(str::to_owned);
            match &config[key] {
                Value::Null => Ok(Vec::new()),
                Value::Array(words) => words.iter().map(word).collect::<Option<_>>().ok_or(key),
                _ => Err(key),
            }
            .map_err(|key| err!("{key} is no list of words"))
        };
        let (entrypoint, mut cmd) = (words("Entrypoint")?, words("Cmd")?);
        if entrypoint.is_empty() && cmd.is_empty() {
            cmd.push("/bin/sh".to_owned());
        }
        let cwd = config["WorkingDir"].as_str().filter(|cwd| cwd.starts_with('/')).map(str::to_owned);
        let volumes = config["Volumes"].as_object().into_iter().flatten().map(|(path, _)| path);
        let tmpfs = volumes.filter(|path| is_place(path)).cloned().collect();
        Ok(Run { entrypoint, cmd, env: words("Env")?, cwd, tmpfs })
    }

    fn of_apptainer(runscript: bool) -> Run {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Run {
            entrypoint: words(&["/bin/sh", "-c", APPTAINER_ENTRY, "sh"]),
            cmd: words(&[if runscript { "/.singularity.d/runscript" } else { "/bin/sh" }]),
            ..Run::default()
        }
    }

    /// enroot, doc/image-format.md.
    fn of_enroot(fs: &Filesystem<impl Source>) -> Result<Run> {
        let text = |path| -> Result<String> {
            Ok(String::from_utf8_lossy(&inside::read(fs, path, MOST)?.unwrap_or_default()).into_owned())
        };
        let env = text("etc/environment")?.lines().filter_map(variable).collect();
        // Of the mounts only those that take nothing from the host.
        let tmpfs = text("etc/fstab")?.lines().filter_map(tmpfs_of).collect();
        let entrypoint = ["/bin/sh", RC_ABSOLUTE].map(str::to_owned).into();
        Ok(Run { entrypoint, env, tmpfs, ..Run::default() })
    }
}

const RC_ABSOLUTE: &str = "/etc/rc";

/// A line of /etc/environment, as pam_env(8) reads it.
fn variable(line: &str) -> Option<String> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(good) {
        return None;
    }
    let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    Some(format!("{name}={}", quoted.unwrap_or(value)))
}

/// The directory of a line of fstab(5) that is a tmpfs.
fn tmpfs_of(line: &str) -> Option<String> {
    let mut fields = line.split_ascii_whitespace();
    let (_, place, kind) = (fields.next().filter(|f| !f.starts_with('#'))?, fields.next()?, fields.next()?);
    (kind == "tmpfs" && is_place(place)).then(|| place.to_owned())
}

/// True for a path below the root that leads nowhere else.
fn is_place(path: &str) -> bool {
    path.starts_with('/') && path != "/" && !path.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_environment_files_are_read() {
        let read = |line| variable(line);
        assert_eq!(read("A=b c").as_deref(), Some("A=b c"));
        assert_eq!(read(" export A=\"b c\"").as_deref(), Some("A=b c"));
        assert_eq!(read("A='b\"").as_deref(), Some("A='b\""));
        for none in ["", "# A=b", "A", "=b", "1A=b", "A B=c"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn an_image_mounts_nothing_of_the_host() {
        assert_eq!(tmpfs_of("tmpfs /scratch tmpfs x-create=dir,rw").as_deref(), Some("/scratch"));
        for none in [
            "/home /home none bind",
            "# tmpfs /x tmpfs",
            "tmpfs / tmpfs",
            "tmpfs /a/../.. tmpfs",
            "tmpfs x tmpfs",
        ] {
            assert_eq!(tmpfs_of(none), None, "{none}");
        }
    }

    #[test]
    fn configs_of_oci_images_are_read() {
        let run = Run::of_oci(
            br#"{"config":{"Env":["A=b"],"Entrypoint":["e"],"Cmd":["c"],"WorkingDir":"/w",
            "Volumes":{"/data":{},"/../x":{}},"Labels":{"rt.user":"root"}}}"#,
        );
        let word = |word: &str| vec![word.to_owned()];
        let expected = Run {
            entrypoint: word("e"),
            cmd: word("c"),
            env: word("A=b"),
            cwd: Some("/w".to_owned()),
            tmpfs: word("/data"),
        };
        assert_eq!(run, Ok(expected));
        assert_eq!(Run::of_oci(b"{}").unwrap().cmd, ["/bin/sh"]);
        assert!(Run::of_oci(br#"{"config":{"Cmd":"sh"}}"#).unwrap_err().to_string().contains("Cmd"));
        assert!(Run::of_oci(b"{").is_err());
    }
}
