//! What stands for criu(8) where a test is about `rt`: it says a version, and a dump writes the files that `rt` looks at.

use std::fs;
use std::path::Path;

/// Runs `criu ARGS...` and returns its exit code.
pub fn main(args: &[String]) -> i32 {
    let value = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1).map(String::as_str);
    match args.first().map(String::as_str) {
        Some("--version") => {
            println!("Version: 4.2");
            0
        }
        Some("dump") => match (value("--images-dir"), value("--tree")) {
            (Some(dir), Some(tree)) => dump(Path::new(dir), tree),
            _ => 2,
        },
        Some("restore") => value("--images-dir").map_or(2, |dir| restore(Path::new(dir))),
        _ => 1,
    }
}

/// Fails, and not before it is ended where the image has a file that asks for that.
fn restore(dir: &Path) -> i32 {
    if dir.join("wait").exists() && fs::write(dir.join("waits"), "").is_ok() {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
    1
}

fn dump(dir: &Path, tree: &str) -> i32 {
    // Two magic numbers, a length, and a message: InventoryEntry with root_ids.pid_ns_id; CoreEntry without anything.
    let inventory = [&[0; 12][..], &[0x1a, 2, 0x28, 1]].concat();
    let written = [
        ("inventory.img", inventory),
        (&format!("core-{tree}.img"), vec![0; 12]),
        ("files.img", vec![0; 8]),
        ("pages-1.img", b"secret".to_vec()),
    ]
    .into_iter()
    .try_for_each(|(name, text)| fs::write(dir.join(name), text));
    i32::from(written.is_err())
}
