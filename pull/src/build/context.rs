//! Directories of files that a build takes files from: the context, named ones, and what a URL has brought.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use dockerfile::ignore::Ignore;

use super::copy::{self, Destination, Found, Origin};
use super::remote::{Fetcher, Remote};
use oci_layer::owner::Owner;
use rt_sys::error::{Context as _, Result};
use rt_sys::{disk, err, fd, mount};
use rustix::io::Errno;

/// No .dockerignore is longer.
pub(super) const MOST_IGNORED: usize = 1 << 20;

/// What the user named as a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Context {
    /// A directory.
    Directory(PathBuf),
    /// Standard input: an archive, or a Containerfile.
    Stdin,
    /// A repository, an archive or a Containerfile.
    Url(String),
}

/// What stands for a name in FROM and `--from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    /// An image.
    Image(String),
    /// Files.
    Files(Context),
}

/// Files that are nobody's in particular.
pub(super) struct Local {
    /// No path leads out of it.
    pub root: OwnedFd,
    /// What of it is left out.
    pub ignore: Ignore,
    /// What it is, for errors.
    pub shown: String,
}

impl Local {
    /// All files of a directory.
    pub(super) fn plain(root: OwnedFd, shown: String) -> Local {
        Local { root, ignore: Ignore::default(), shown }
    }
}

/// What a context is.
pub(super) enum Opened {
    /// A directory, with what is in it.
    Files(OwnedFd),
    /// A Containerfile alone, and how it is called.
    File(&'static str, Vec<u8>),
}

/// Opens a context; what is no directory becomes one of the build's.
pub(super) fn open(context: &Context, fetcher: &Fetcher) -> Result<Opened> {
    match context {
        Context::Directory(path) => {
            let root = disk::open_root(path).context(|| "context")?;
            match mount::others_server_at(&root)? {
                Some(_) => {
                    Err(fd::unserved_error(Errno::XDEV)).context(|| format!("context {}", path.display()))
                }
                None => Ok(Opened::Files(root)),
            }
        }
        Context::Stdin => {
            let dir = disk::open_root(fetcher.session)?;
            let file = disk::create_file(dir.as_fd(), STDIN, 0o600)?;
            std::io::copy(&mut std::io::stdin().lock(), &mut disk::Named(&file)).context(|| "read stdin")?;
            let found = Found::whole(String::from_utf8_lossy(STDIN).into_owned(), false);
            unpacked(&Local::plain(dir, "standard input".to_owned()), &found, fetcher, "standard input")
        }
        Context::Url(url) => {
            let fetched = Remote::parse(url, true).and_then(|remote| fetcher.fetch(&remote, None, false));
            let fetched = fetched.context(|| "context")?;
            match fetched.found.is_dir {
                true => Ok(Opened::Files(fetched.local.root)),
                false => unpacked(&fetched.local, &fetched.found, fetcher, "what the URL names")
                    .context(|| url.clone()),
            }
        }
    }
}

/// The file's name in the directory of the build.
const STDIN: &[u8] = b"stdin";

/// A file as a context: an archive's files, or a Containerfile.
fn unpacked(local: &Local, found: &Found, fetcher: &Fetcher, name: &'static str) -> Result<Opened> {
    let all = Ignore::default();
    let origin = Origin {
        root: local.root.as_fd(),
        is_one_mount: false,
        ignore: &all,
        exclude: &all,
        shown: &local.shown,
        keeps_owners: false,
    };
    let dir = fetcher.new_dir()?;
    let root = disk::open_root(&dir)?;
    let to = Destination { root: root.as_fd(), path: "/", mode: None, owner: Some(Owner::ROOT) };
    if to.unpack_alone(&origin, found, fetcher.interrupt)? {
        return Ok(Opened::Files(root));
    }
    let text = copy::read(local.root.as_fd(), Path::new(&found.path), dockerfile::MOST_BYTES)?;
    Ok(Opened::File(name, text.ok_or_else(|| err!("{name}: has gone"))?))
}
