//! What the fuzz targets call.

use crate::fuse::{Owner, Server};
use crate::{bundle, sif};
use squashfs::{Filesystem, Source};
use std::path::Path;

/// Finds the squashfs in a SIF image, and what an image there says of how it is run.
pub fn sif(bytes: &[u8]) {
    let Ok(Some(part)) = sif::partition(&bytes, bytes.len() as u64) else { return };
    let begin = usize::try_from(part.offset).unwrap_or(usize::MAX);
    let inside = bytes.get(begin..).and_then(|rest| rest.get(..usize::try_from(part.size).ok()?));
    let Some(inside) = inside else { panic!("a part that is not within the file") };
    config(inside);
}

/// The config that is made of what an image says.
pub fn config(image: &[u8]) {
    if let Ok(fs) = Filesystem::open(image, 0) {
        let _ = bundle::config(&fs, Path::new("/image"));
    }
}

/// Requests of the kernel, one behind the other, about an image.
pub fn requests(image: &[u8], requests: &[u8]) {
    let Ok(fs) = Filesystem::open(image, 0) else { return };
    answer_all(&Server::new(fs, Owner::One(1, 1)), requests);
}

fn answer_all<S: Source>(server: &Server<S>, mut requests: &[u8]) {
    for _ in 0..64 {
        // As the kernel writes them, each begins with its length.
        let Some(length) = requests.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else {
            return;
        };
        let (request, rest) = requests.split_at(length.clamp(1, requests.len()));
        server.answer_one(request);
        requests = rest;
    }
}
