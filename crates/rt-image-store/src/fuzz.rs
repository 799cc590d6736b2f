//! What the fuzz target of image files (`fuzz/` at the root of the sources) calls. It panics where a promise is broken.

use crate::run_file::RunFile;

/// The parts of a run file are within it, in front of its trailer, which is written as it was read.
pub fn run_file(bytes: &[u8]) {
    let Some(file) = RunFile::of_bytes(bytes) else { return };
    let trailer = file.trailer();
    let end = (bytes.len() - trailer.len()) as u64;
    for part in [file.runtime, file.image] {
        assert!(part.offset <= end && part.size <= end - part.offset, "{file:?} of {end}");
    }
    assert!(bytes.ends_with(&trailer));
}

#[cfg(test)]
mod tests {
    /// The target itself works; its search is cargo-fuzz's.
    #[test]
    fn the_target_runs() {
        super::run_file(&[0; 100]);
    }
}
