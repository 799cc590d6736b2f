//! What the operand of `rt run` is: a container's id, a bundle, an image, or a file.

use crate::store::check_id;
use rt_image_store::Transport;
use rt_image_store::image_file::ImageKind;
use rt_image_store::word::{self, There, is_archive, is_path};
use rt_spec::asked_mounts::is_image;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err, fd, look};
use rustix::fs::{FileType, OFlags};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What an operand is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// The id of a new container, whose bundle is the current directory: runc's form.
    Id(String),
    /// A bundle.
    Bundle(PathBuf),
    /// The name of an image, in a registry or elsewhere ([`is_local_image`]).
    Image(String),
    /// A regular file.
    File(PathBuf),
}

/// True for the names of images that no registry has.
pub(super) fn is_local_image(name: &str) -> bool {
    Transport::split(name).is_some()
}

/// The most bytes that are read of somebody else's config.json.
const LONGEST_CONFIG: usize = 16 << 20;

/// What is there by the name of a bundle's config.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// No file.
    Nothing,
    /// A file of something else: many programs call theirs config.json, and models are directories with one.
    Else,
    /// The config of a bundle.
    Bundles,
}

impl Found {
    /// A config names the version of the specification and a root (config.md); what these are is for its reader to see, who
    /// parses the text. To parse it here too would cost a hundredth of a start.
    fn at(path: &Path) -> Result<Found> {
        if !look::is_file(path)? {
            return Ok(Found::Nothing);
        }
        Ok(Found::of(&fd::read_file(path).context(|| format!("read {}", path.display()))?))
    }

    /// What [`Found::at`] says of a file that somebody else has put at `path`: no link is followed, nothing mounted is asked, and
    /// no more is read than a config is long.
    fn at_others(path: &Path) -> Found {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        // Whatever he makes the kernel say, as by a lease on the file (F_SETLEASE), he stops nobody.
        let Ok(file) = fd::open_beside_others(path, flags) else { return Found::Nothing };
        let text = fd::read_regular(file, LONGEST_CONFIG).ok().flatten();
        text.map_or(Found::Nothing, |text| Found::of(&text))
    }

    fn of(text: &[u8]) -> Found {
        let is_bundles = |text: &str| text.contains("\"ociVersion\"") && text.contains("\"root\"");
        if str::from_utf8(text).is_ok_and(is_bundles) { Found::Bundles } else { Found::Else }
    }
}

/// Says what `operand` is. `config` is the name of the config in a bundle.
///
/// # Errors
/// Something else than a bundle or a file has that name, somebody else has put it here, or it can be no name of an image.
pub(super) fn classify(operand: &OsStr, config: &Path) -> Result<Operand> {
    let path = Path::new(operand);
    if is_path(operand) {
        // Where nothing is there, the error is about the bundle. What lies there in a store is not asked: it may be another user's
        // file system, which need not answer.
        let is_stored = rt_image_store::is_stored(path);
        let kind = if is_stored { None } else { look::kind_unserved(path)? };
        return Ok(match kind {
            Some(FileType::RegularFile) => Operand::File(path.to_owned()),
            _ => Operand::Bundle(path.to_owned()),
        });
    }
    let text = operand.to_str();
    // What says where an image is means nothing that is here.
    if let Some(name) = text.filter(|name| is_local_image(name) || name.contains("://")) {
        return Ok(Operand::Image(name.to_owned()));
    }
    // What is here comes before what a registry may have. Nothing is opened before it is known whose it is.
    let here = word::own_or_file(path, is_image)?;
    let inside = match here {
        Some(FileType::Directory) => {
            word::require_own(path, config)?;
            Found::at(&path.join(config))?
        }
        _ => Found::Nothing,
    };
    if inside == Found::Bundles {
        return Ok(Operand::Bundle(path.to_owned()));
    }
    if let Some(id) = text.filter(|id| check_id(id).is_ok())
        && is_bundle_here(id, config)?
    {
        return Ok(Operand::Id(id.to_owned()));
    }
    let shown = path.display();
    match here {
        Some(FileType::RegularFile) => return Ok(Operand::File(path.to_owned())),
        Some(FileType::Directory) if inside == Found::Else => {
            let config = config.display();
            return Err(err!(
                "{shown}: a directory, and its {config} has no ociVersion and root, so no bundle"
            )
            .hint(format!("docker://{shown} is the image of that name")));
        }
        Some(FileType::Directory) => return Err(without_config(path, config)?),
        Some(FileType::Symlink) => bail!("{shown}: a symbolic link to nothing"),
        Some(_) => bail!("{shown}: neither a bundle nor the name of an image"),
        None => {}
    }
    match text {
        Some(name) => Ok(Operand::Image(name.to_owned())),
        None => bail!("{}: no such bundle, and not the name of an image", path.display()),
    }
}

/// The error for the directory `dir`, in which no file is called `config`. Apptainer and Charliecloud run directories that hold a
/// root.
pub(super) fn without_config(dir: &Path, config: &Path) -> Result<Error> {
    let shown = dir.display();
    let error = err!("{shown}: a directory without {}, so no bundle", config.display());
    let holds_root = look::is_dir(dir.join("bin"))? || look::is_dir(dir.join("usr"))?;
    Ok(match (holds_root, is_path(dir.as_os_str())) {
        (true, _) => error.hint(format!("rt convert {shown} FILE.sqsh makes an image of a root")),
        (false, false) => error.hint(format!("docker://{shown} is the image of that name")),
        (false, true) => error,
    })
}

/// True where the current directory is the bundle of the container `id`. What others have put here is none; where it looks like
/// one, that is an error.
fn is_bundle_here(id: &str, config: &Path) -> Result<bool> {
    match word::look_here(config)? {
        There::Nothing => Ok(false),
        There::Own(_) => Ok(Found::at(config)? == Found::Bundles),
        There::Foreign(why) => match Found::at_others(config) {
            Found::Bundles => Err(word::refused_here(id, why)),
            _ => Ok(false),
        },
    }
}

/// Looks whether a file may be an image, which `rt-image` then mounts. What the image is worth is for `rt-image` to see.
///
/// # Errors
/// For an archive, which is no image that could be run as it is, with the name under which it can be run.
pub(super) fn check_image_file(path: &Path) -> Result<()> {
    let shown = || path.display().to_string();
    let file = std::fs::File::open(path).context(shown)?;
    match ImageKind::of(&file).context(shown)? {
        Some(_) => Ok(()),
        None => Err(file_is_no_bundle(path)),
    }
}

fn file_is_no_bundle(path: &Path) -> Error {
    let shown = path.display();
    let e = err!("{shown}: a file, and neither a squashfs nor a SIF image");
    match path.to_str().is_some_and(is_archive) {
        true => e.hint(format!("oci-archive:{shown} or docker-archive:{shown} is the image in it")),
        false => e.hint("a bundle is a directory with a config.json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(operand: &str) -> String {
        match classify(OsStr::new(operand), Path::new("config.json")) {
            Ok(Operand::Id(id)) => format!("id {id}"),
            Ok(Operand::Bundle(path)) => format!("bundle {}", path.display()),
            Ok(Operand::Image(name)) => format!("image {name}"),
            Ok(Operand::File(path)) => format!("file {}", path.display()),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn an_operand_is_what_it_looks_like() {
        // Tests run in this package's directory, which is no bundle and has the directory src.
        for (operand, what) in [
            (".", "bundle ."),
            ("..", "bundle .."),
            ("/not/there", "bundle /not/there"),
            ("./src", "bundle ./src"),
            ("../x/y", "bundle ../x/y"),
            ("./Cargo.toml", "file ./Cargo.toml"),
            ("Cargo.toml", "file Cargo.toml"),
            ("src/lib.rs", "file src/lib.rs"),
            (
                "src",
                "src: a directory without config.json, so no bundle (docker://src is the image of that name)",
            ),
            ("debian", "image debian"),
            ("debian:12", "image debian:12"),
            ("ghcr.io/o/i@sha256:12", "image ghcr.io/o/i@sha256:12"),
            ("docker://src", "image docker://src"),
            ("ftp://x", "image ftp://x"),
            ("oci:src", "image oci:src"),
            ("podman:x", "image podman:x"),
        ] {
            assert_eq!(classified(operand), what);
        }
        for (name, remedy) in [("x.tar", "oci-archive:x.tar"), ("x", "directory")] {
            assert!(file_is_no_bundle(Path::new(name)).to_string().contains(remedy), "{name}");
        }
    }

    #[test]
    fn a_directory_with_a_config_is_a_bundle_whatever_its_name_means() {
        let dir = std::env::temp_dir().join(format!("rt-operand-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let bundles = r#"{"hooks":{},"ociVersion":"1.0.2","root":{"path":"rootfs"}}"#;
        std::fs::write(dir.join("c.json"), bundles).unwrap();
        let of = |operand: &Path| classify(operand.as_os_str(), Path::new("c.json")).unwrap();
        assert_eq!(of(&dir), Operand::Bundle(dir.clone()));
        // In a bundle runc's form. The tests' own directory is none, so the bundle's config gets a path from there.
        let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
        let config = up.join(dir.strip_prefix("/").unwrap()).join("c.json");
        let here = |operand: &str| classify(OsStr::new(operand), &config);
        assert_eq!(here("c1").unwrap(), Operand::Id("c1".into()));
        assert_eq!(here("src").unwrap(), Operand::Id("src".into()));
        assert_eq!(here("debian:12").unwrap(), Operand::Image("debian:12".into()));
        assert_eq!(here("oci:x").unwrap(), Operand::Image("oci:x".into()));
        // A model's file of that name makes neither a bundle nor an id.
        for text in ["", "{", "[]", r#"{"architectures":["X"]}"#, r#"{"ociVersion":"1.0.2"}"#] {
            std::fs::write(&config, text).unwrap();
            assert_eq!(here("debian").unwrap(), Operand::Image("debian".into()), "{text}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
