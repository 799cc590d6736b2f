//! What is written for the dynamic loader, and the readers of ELF files.

use crate::standin::{self, CACHE_FLAGS, Library, StandIn};
use ld_so_cache::Cache;
use ld_so_cache::elf::Elf;
use rt_hooks::kit::edits::{Edits, Library as Entry};
use rt_hooks::kit::libraries;
use rt_hooks::kit::tree::Tree;

#[test]
fn elf_files_say_what_was_put_into_them() {
    let library = Library {
        needed: vec!["libc.so.6", "libm.so.6"],
        defines: vec!["X_1.0", "X_2.0"],
        requires: vec![("libc.so.6", vec!["GLIBC_2.2.5", "GLIBC_2.34"]), ("libm.so.6", vec!["GLIBC_2.29"])],
        note: Some(("Owner", "{}")),
        ..Library::named("libx.so.1")
    };
    for i386 in [false, true] {
        let bytes = Library { i386, ..library.clone() }.bytes();
        let elf = Elf::read(&bytes[..]).unwrap();
        assert_eq!(elf.soname.as_deref(), Some("libx.so.1"));
        assert_eq!(elf.needed, ["libc.so.6", "libm.so.6"]);
        assert_eq!(elf.defines, ["X_1.0", "X_2.0"]);
        let requires: Vec<String> =
            elf.requires.iter().map(|need| format!("{}:{}", need.library, need.version)).collect();
        assert_eq!(requires, ["libc.so.6:GLIBC_2.2.5", "libc.so.6:GLIBC_2.34", "libm.so.6:GLIBC_2.29"]);
        assert_eq!(elf.cache_flags(), Some(if i386 { 3 } else { CACHE_FLAGS }));
        let notes = elf.notes(&bytes[..]).unwrap();
        assert_eq!((notes[0].owner.as_str(), &notes[0].description[..]), ("Owner", &b"{}"[..]));
        for end in 0..bytes.len() {
            let _ = Elf::read(&bytes[..end]);
        }
    }
}

fn announced(root: &StandIn) -> Edits {
    let mut edits = Edits::default();
    for name in ["libx.so.1", "libx.so"] {
        let path = format!("/run/rt/gpu/lib/{name}").into();
        edits.libraries.push(Entry { name: name.into(), path, flags: CACHE_FLAGS });
    }
    libraries::announce(&mut edits, &Tree::open(&root.dir).unwrap()).unwrap();
    edits
}

#[test]
fn each_c_library_gets_its_list() {
    let dir = |name: &str| std::env::temp_dir().join(format!("rt-libc-{name}-{}", std::process::id()));
    let glibc = StandIn::new(dir("glibc"));
    standin::glibc_root(&glibc);
    // Without a cache, what is in the library directories is entered.
    let edits = announced(&glibc);
    let cache = Cache::parse(&edits.files[0].contents).unwrap();
    assert_eq!(
        cache.find("libc.so.6", CACHE_FLAGS).unwrap(),
        "/usr/lib/x86_64-linux-gnu/libc.so.6".replace("/usr", "").as_str()
    );
    assert_eq!(cache.find("libx.so.1", CACHE_FLAGS).unwrap(), "/run/rt/gpu/lib/libx.so.1");
    // A broken one is replaced, and that is said.
    glibc.file("/etc/ld.so.cache", "broken");
    let edits = announced(&glibc);
    assert!(edits.notes[0].contains("is replaced"), "{:?}", edits.notes);

    let musl = StandIn::new(dir("musl"));
    let arch = std::env::consts::ARCH;
    musl.file(&format!("/lib/ld-musl-{arch}.so.1"), "");
    let edits = announced(&musl);
    assert_eq!(edits.files.len(), 1);
    assert_eq!(edits.files[0].path.to_str().unwrap(), format!("/etc/ld-musl-{arch}.path"));
    assert_eq!(edits.files[0].contents, b"/run/rt/gpu/lib\n/lib\n/usr/local/lib\n/usr/lib\n");
    musl.file(&format!("/etc/ld-musl-{arch}.path"), "/opt/lib:/run/rt/gpu/lib\n/lib\n");
    assert_eq!(announced(&musl).files[0].contents, b"/run/rt/gpu/lib\n/opt/lib\n/lib\n");
}
