//! A program of one file: an image file behind `rt-image` and `rt` ([`rt_image_store::run_file`]).

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::draft::Draft;
use oci_content::interrupt::Interrupt;
use rt_image_store::run_file::{PAGE, Part, RunFile};
use rt_sys::error::{Context, Result};
use rt_sys::{disk, err, fd, look, start};

/// The name of the whole in the draft, until it has that of the image.
const WHOLE: &[u8] = b"run";
/// Names under which the file would be one of the programs in it.
const TAKEN: [&str; 2] = ["rt", "rt-image"];

/// Refuses a name under which the file would not run its image.
pub(crate) fn check_name(target: &std::path::Path) -> Result<()> {
    match target.file_name().and_then(|name| name.to_str()).filter(|name| TAKEN.contains(name)) {
        Some(name) => Err(err!("{}: a program of the name {name} is that part of it", target.display())),
        None => Ok(()),
    }
}

/// Makes a program of the image file `name` in the draft. Nothing is compressed anew, and file systems that can do so share
/// the blocks of both.
pub(crate) fn wrap(draft: &Draft, name: &[u8], sync: bool, interrupt: &Interrupt) -> Result<u64> {
    let mut image = disk::open_file(draft.dir(), name)?;
    let mut whole = disk::create_own_file(draft.dir(), WHOLE)?;
    copy_program("rt-image", &mut whole)?;
    let offset = whole.stream_position().context(|| format!("seek in {}", fd::shown(&whole)))?;
    let runtime = Part { offset, size: copy_program("rt", &mut whole)? };
    let offset = (offset + runtime.size).next_multiple_of(PAGE);
    whole.seek(io::SeekFrom::Start(offset)).context(|| format!("seek in {}", fd::shown(&whole)))?;
    let size = copy(&mut image, u64::MAX, &mut whole, interrupt)
        .context(|| format!("copy {} to {}", fd::shown(&image), fd::shown(&whole)))?;
    let trailer = RunFile { runtime, image: Part { offset, size } }.trailer();
    whole.write_all(&trailer).context(|| format!("write {}", fd::shown(&whole)))?;
    // Who may read it may execute it.
    let mode = disk::mode(&image)?;
    disk::set_mode(whole.as_fd(), mode | (mode & 0o444) >> 2)?;
    if sync {
        disk::sync_file(&whole)?;
    }
    disk::unlink(draft.dir(), name)?;
    disk::rename_new(draft.dir(), WHOLE, draft.dir(), name)?;
    Ok(offset + size + trailer.len() as u64)
}

/// Copies `length` bytes at most, and can be interrupted meanwhile. Returns how many there were.
pub(crate) fn copy(from: &mut File, length: u64, to: &mut File, interrupt: &Interrupt) -> Result<u64> {
    /// Bytes between two looks for a signal. Of so many, file systems that can do so share the blocks.
    const PIECE: u64 = 64 << 20;
    let mut copied = 0;
    while copied < length {
        interrupt.check()?;
        // std copies from file to file by copy_file_range(2).
        match io::copy(&mut from.take(PIECE.min(length - copied)), to)? {
            0 => break,
            piece => copied += piece,
        }
    }
    Ok(copied)
}

/// Copies a program that is installed with this one.
fn copy_program(name: &str, to: &mut File) -> Result<u64> {
    let path = look::first_file(start::companions(name)?)?.ok_or_else(|| start::no_companion(name))?;
    let context = || format!("copy {}", path.display());
    let mut from = File::open(&path).context(context)?;
    if is_dynamic(&from).context(context)? {
        log::warn!("{}: linked dynamically, so the file runs only where its libraries are", path.display());
    }
    io::copy(&mut from, to).context(context)
}

/// True for an ELF file of 64 bits with an interpreter (elf(5)).
fn is_dynamic(file: &File) -> io::Result<bool> {
    const INTERPRETER: u32 = 3;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let [a, b, c, d, e, f, g, h] = [32, 33, 34, 35, 36, 37, 38, 39].map(|at| head[at]);
    let table = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    for n in 0..half(56) {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, table.saturating_add(n * half(54)))?;
        if u32::from_le_bytes(kind) == INTERPRETER {
            return Ok(true);
        }
    }
    Ok(false)
}
