//! Images that are none, are damaged, or are made to harm.

use crate::{Place, callers};

#[test]
fn what_is_no_image_is_said_so() {
    let place = Place::new("no-image");
    let mnt = place.text("mnt");
    std::fs::write(place.join("text"), "not an image").unwrap();
    std::fs::write(place.join("zeros"), [0; 4096]).unwrap();
    let whole = std::fs::read(place.seed("gzip.sqsh")).unwrap();
    std::fs::write(place.join("cut"), &whole[..whole.len() - 100]).unwrap();
    for caller in callers() {
        let said = |name: &str| place.bad(caller, &["rt", "mount", &place.text(name), &mnt, "--", "true"]);
        assert!(said("text").ends_with("text: not a squashfs: it has only 12 bytes\n"));
        assert!(said("zeros").ends_with("zeros: not a squashfs: the first four bytes are not \"hsqs\"\n"));
        assert!(said("cut").contains("cut: superblock at byte 0x28: the image is cut off: it has"));
        assert!(said("missing").ends_with("missing: no such file or directory\n"));
        assert!(said("mnt").ends_with("mnt: not a regular file\n"));
    }
}

/// Wherever an image is damaged, reading it gives errors; the server lives and answers what is sound.
#[test]
fn damage_is_an_error_of_the_file() {
    let place = Place::new("damaged");
    let mnt = place.text("mnt");
    let good = std::fs::read(place.seed("stored.sqsh")).unwrap();
    for caller in callers() {
        for at in (96..good.len()).step_by(good.len() / 24) {
            let mut bad = good.clone();
            bad[at..].iter_mut().take(40).for_each(|byte| *byte = 0xa5);
            let image = place.text("bad.sqsh");
            std::fs::write(&image, bad).unwrap();
            let script = "cd \"$0\" && { find . >/dev/null 2>&1; cat dir/* dir/deep/* >/dev/null 2>&1; \
                stat -f . >/dev/null && echo alive; }";
            let output = place
                .run(caller, &["timeout", "20", "rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // What the root needs may be what is damaged: then there is no mount.
            let refused = String::from_utf8_lossy(&output.stderr).contains("at byte");
            assert!(said == "alive\n" || refused, "{caller:?} at {at}: {output:?}");
        }
    }
}
