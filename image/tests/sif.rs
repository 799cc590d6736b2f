//! Images of Apptainer: which partition is taken, and which are refused.

use crate::{Place, callers};

/// A SIF file with these partitions: file system, kind of partition, contents.
pub fn sif(partitions: &[(u32, u32, &[u8])]) -> Vec<u8> {
    const DESCRIPTOR: usize = 585;
    const DATA: usize = 64 << 10;
    let mut file = vec![0; DATA];
    file[..31].copy_from_slice(b"#!/usr/bin/env run-singularity\n");
    file[32..42].copy_from_slice(b"SIF_MAGIC\0");
    file[42..48].copy_from_slice(b"01\x0002\0");
    let mut put = |at: usize, value: u64| file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    // Descriptors: how many are free, how many there are, where they begin.
    put(80, 48 - 1 - partitions.len() as u64);
    put(88, 48);
    put(96, 4096);
    put(104, 48 * DESCRIPTOR as u64);
    put(112, DATA as u64);
    let describe = |file: &mut Vec<u8>, n: usize, kind: u32, data: &[u8], extra: &[u32]| {
        let (at, offset) = (4096 + n * DESCRIPTOR, file.len().next_multiple_of(4096));
        file.resize(offset, 0);
        file.extend(data);
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 4] = 1;
        file[at + 17..at + 25].copy_from_slice(&(offset as u64).to_le_bytes());
        file[at + 25..at + 33].copy_from_slice(&(data.len() as u64).to_le_bytes());
        for (n, word) in extra.iter().enumerate() {
            file[at + 201 + n * 4..at + 205 + n * 4].copy_from_slice(&word.to_le_bytes());
        }
    };
    // The first one is the definition, as in files that apptainer builds.
    describe(&mut file, 0, 0x4001, b"bootstrap: docker\n", &[]);
    for (n, (fs, kind, data)) in partitions.iter().enumerate() {
        describe(&mut file, n + 1, 0x4004, data, &[*fs, *kind]);
    }
    file
}

#[test]
fn the_primary_partition_is_mounted() {
    let place = Place::new("sif");
    let (mnt, image) = (place.text("mnt"), place.text("x.sif"));
    let (other, primary) = (place.seed("many.sqsh"), place.seed("zstd.sqsh"));
    let [other, primary] = [other, primary].map(|path| std::fs::read(path).unwrap());
    std::fs::write(&image, sif(&[(1, 3, &other), (1, 2, &primary), (1, 4, &other)])).unwrap();
    for caller in callers() {
        let said =
            place.good(caller, &["rt", "mount", &image, &mnt, "--", "cat", &format!("{mnt}/dir/hello")]);
        assert_eq!(said, "hello\n", "{caller:?}");
    }
}

/// What another program has made is read by `rt-image`, without a mount.
#[test]
fn files_of_others_are_inspected() {
    let place = Place::new("inspect");
    std::fs::copy(crate::built("rt-pull"), place.join("bin/rt-pull")).unwrap();
    let (squashfs, image) = (place.seed("zstd.sqsh"), place.text("x.sif"));
    std::fs::write(&image, sif(&[(1, 2, &std::fs::read(&squashfs).unwrap())])).unwrap();
    let damaged = place.text("damaged.sqsh");
    std::fs::write(&damaged, b"hsqs, and nothing more").unwrap();
    for caller in callers() {
        for file in [&squashfs, &image] {
            let said = place.good(caller, &["rt", "inspect", file]);
            assert!(said.contains(&format!("name         {file}\n")), "{caller:?}: {said}");
            assert!(said.contains("cmd          /bin/sh\n") && said.contains("env          PATH="), "{said}");
        }
        let output = place.run(caller, &["rt", "inspect", &damaged]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.lines().count() == 1 && said.contains(&damaged), "{said}");
    }
}

#[test]
fn what_cannot_be_mounted_is_named() {
    let place = Place::new("bad-sif");
    let (mnt, image) = (place.text("mnt"), place.text("x.sif"));
    let squashfs = std::fs::read(place.seed("zstd.sqsh")).unwrap();
    let Some(caller) = callers().into_iter().next() else { return };
    let said = |bytes: &[u8]| {
        std::fs::write(&image, bytes).unwrap();
        place.bad(caller, &["rt", "mount", &image, &mnt, "--", "true"])
    };
    assert!(said(&sif(&[(2, 2, b"x")])).contains("SIF with an ext3 file system"));
    assert!(said(&sif(&[(5, 2, b"x")])).contains("SIF with an encrypted file system"));
    assert!(said(&sif(&[(1, 3, &squashfs)])).contains("SIF without a primary system partition"));
    let whole = sif(&[(1, 2, &squashfs)]);
    assert!(said(&whole[..whole.len() - 10]).contains("it is cut off"));
    assert!(said(&whole[..5000]).contains("SIF whose descriptors are not within the file"));
    let mut many = whole.clone();
    many[88..96].fill(0xff);
    assert!(said(&many).contains("descriptors, more than 4096"));
}
