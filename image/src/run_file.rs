//! A program of one file ([`rt_image_store::run_file`]), called as that program: it executes the `rt` that is in it, which runs
//! the image that is in it.

use rt_image_store::run_file::{Part, RunFile};
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rt_sys::process::ExecArgs;
use rt_sys::start;
use rustix::fd::OwnedFd;
use rustix::fs::{self, MemfdFlags, SealFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Names under which the file is one of the programs in it.
const RT_IMAGE: &str = "rt-image";
const RT: &str = "rt";
/// What the words for `rt run` begin with.
const OWN: &[u8] = b"--rt-";

/// The run file that this process was executed from, and what it was called; none where it is `rt-image`.
///
/// # Errors
/// This program cannot read itself.
pub(crate) fn called() -> Result<Option<(PathBuf, RunFile, bool)>> {
    let words: Vec<OsString> = std::env::args_os().take(1).collect();
    let name = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if name == RT_IMAGE {
        return Ok(None);
    }
    let own = || RunFile::of(&File::open("/proc/self/exe")?);
    match own().context(|| "read /proc/self/exe")? {
        Some(parts) => Ok(Some((start::program()?, parts, name == RT))),
        None => Ok(None),
    }
}

/// Becomes `rt`. Returns the exit code where that fails, or where only help was asked for.
pub(crate) fn run(path: &Path, parts: &RunFile, as_rt: bool) -> Result<u8> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut all = vec![OsString::from(RT)];
    match as_rt {
        true => all.extend(words),
        false => match words_of_run(path, words)? {
            Some(words) => all.extend(words),
            None => return rt_cli::print(help(path)),
        },
    }
    let env = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let args = ExecArgs::new(&all, &env.collect::<Vec<_>>())?;
    let e = args.exec_fd(&runtime(path, parts.runtime)?);
    Err(e).context(|| "execute the rt in this file from memory")
}

/// The words of `rt` for those that the program was called with; none where these ask for help.
fn words_of_run(path: &Path, words: Vec<OsString>) -> Result<Option<Vec<OsString>>> {
    let mut flags = vec![OsString::from("run")];
    let mut words = words.into_iter().peekable();
    let mut shell = false;
    while let Some(word) = words.next_if(|word| word.as_bytes().starts_with(OWN)) {
        match word.as_bytes() {
            b"--rt-help" => return Ok(None),
            b"--rt-shell" => shell = true,
            other => {
                // The value stands behind a =, so that it need not be known which flags have one.
                let flag = [b"--", &other[OWN.len()..]].concat();
                flags.push(OsString::from_vec(flag));
            }
        }
    }
    if shell {
        flags.push("--entrypoint=".into());
    }
    flags.push(path.into());
    let mut rest: Vec<OsString> = words.collect();
    if shell {
        rest.insert(0, "/bin/sh".into());
    }
    if !rest.is_empty() {
        flags.push("--".into());
        flags.append(&mut rest);
    }
    Ok(Some(flags))
}

/// A copy of `rt` in memory, named as if the run file was a directory with the programs: so it is found again
/// ([`start::companions`]).
fn runtime(path: &Path, part: Part) -> Result<OwnedFd> {
    /// What memfd_create(2) takes.
    const LONGEST_NAME: usize = 249;
    let name = path.join(RT);
    if name.as_os_str().len() >= LONGEST_NAME {
        bail!("{}: a path of more than {} bytes", path.display(), LONGEST_NAME - RT.len() - 2);
    }
    let file = File::open("/proc/self/exe").context(|| "open /proc/self/exe")?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC, and let every memory file be executed.
    let copy = fs::memfd_create(&name, flags | MemfdFlags::EXEC).or_else(|_| fs::memfd_create(&name, flags));
    let copy = copy.context(|| "make a file in memory")?;
    let (mut from, mut left) = (part.offset, part.size as usize);
    while left > 0 {
        match fs::sendfile(&copy, &file, Some(&mut from), left)? {
            0 => bail!("{}: cut off", path.display()),
            n => left -= n,
        }
    }
    fs::fcntl_add_seals(&copy, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(copy)
}

fn help(path: &Path) -> String {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    format!(
        "\
{name}: a program with its image in one file, which rt runs in a container

Usage: {name} [--rt-FLAG[=VALUE]...] [ARGS...]

ARGS are the program's, or take the place of the image's command where it has no entrypoint.

  --rt-help               print this help
  --rt-shell              run /bin/sh in the image, or what ARGS name, in place of its program
  --rt-volume=SRC:DST     show a file or directory of the host, or an image, in the container
  --rt-home               mount the caller's home directory
  --rt-cwd=DIR            start in DIR
  --rt-env=NAME=VALUE     set a variable
  --rt-writable           keep what is written to the root in memory
  --rt-overlay=DIR        keep what is written to the root in DIR
  --rt-extract            unpack the image into memory instead of mounting it, which needs /dev/fuse
  --rt-as-root            be root inside

Any other flag of rt run can be given as --rt-FLAG or --rt-FLAG=VALUE. The container runs as the user who
calls. The file is a squashfs behind two programs: rt and squashfs tools read it, and it is rt itself where
it is called by the name rt.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_rt_run() {
        let read = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            let read = words_of_run(Path::new("/a"), words).unwrap();
            read.map(|words| {
                words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(read(&[]).unwrap(), "run /a");
        assert_eq!(read(&["-x", "--rt-help"]).unwrap(), "run /a -- -x --rt-help");
        assert_eq!(
            read(&["--rt-volume=/a:/b", "--rt-home", "x"]).unwrap(),
            "run --volume=/a:/b --home /a -- x"
        );
        assert_eq!(read(&["--rt-shell", "-c", "ls"]).unwrap(), "run --entrypoint= /a -- /bin/sh -c ls");
        assert_eq!(read(&["--rt-help", "x"]), None);
    }
}
