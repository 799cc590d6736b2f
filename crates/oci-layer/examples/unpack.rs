//! Unpacks layers, lowest first, into an empty directory: `unpack DIRECTORY LAYER...`.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use oci_content::interrupt::Interrupt;
use oci_layer::decode::Expected;
use oci_layer::merge::MergedTree;
use oci_layer::unpack::{self, Counts, DirectoryTarget, UnpackContext};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let directory = words.next().ok_or_else(|| io::Error::other("needs DIRECTORY and LAYER..."))?;
    let layers: Vec<File> = words.map(File::open).collect::<Result<_, _>>()?;
    let trash = format!("{}.trash", directory.display());
    std::fs::create_dir(&trash)?;
    let root = OwnedFd::from(File::open(&directory)?);
    let (counts, interrupt) = (Counts::default(), Interrupt::install());
    let target = DirectoryTarget::new(root.try_clone()?, File::open(&trash)?.into(), false, false, &counts);
    let tree = MergedTree::new(target);
    let context = UnpackContext {
        tree: &tree,
        root: Some(&root),
        max_bytes: u64::MAX,
        counts: &counts,
        interrupt: &interrupt,
        frame_threads: 2,
        pieces: 32,
    };
    let open = |number: u16| (At { file: &layers[usize::from(number) - 1], offset: 0 }, Expected::Any);
    let mut links = Vec::new();
    for number in (1..=u16::try_from(layers.len())?).rev() {
        let size = layers[usize::from(number) - 1].metadata()?.len();
        links.extend(unpack::apply(&context, number, size, open(number))?);
    }
    unpack::finish_links(&context, links, open)?;
    tree.finish_dirs()?;
    std::fs::remove_dir_all(trash)?;
    Ok(())
}

/// Reads a file from its start, whoever else reads it.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}
