//! `rt build`: which files COPY and ADD take, what they are called, and what takes the place of what.

use crate::build::{BASE, build, built, bundle, context, is_clean, put, refused};
use crate::fixture::{Ctx, Out};
use crate::runner::tests;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

tests! {
    BOTH {
        parents_of_what_is_copied, parents_that_are_not_there, directories_only_for_what_is_in_them, directories_that_are_there_already,
        modes_in_letters, archives_of_xz, directories_on_the_way, patterns_that_are_none, links_to_what_is_left_out, archives_replace_kinds, links_of_an_archive,
    }
}

/// What is below the root of an image, by path and in order; directories with a slash at their end.
fn tree(ctx: &Ctx, out: &Out, top: &str) -> Vec<String> {
    let top = bundle(ctx, out).join("rootfs").join(top);
    let mut found = Vec::new();
    let mut left = vec![top.clone()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
            let name = path.strip_prefix(&top).unwrap().to_str().unwrap();
            found.push(format!("{name}{}", if is_dir { "/" } else { "" }));
            if is_dir {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

fn mode(ctx: &Ctx, out: &Out, path: &str) -> u32 {
    let path = bundle(ctx, out).join("rootfs").join(path);
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn parents_of_what_is_copied(ctx: &Ctx) {
    let dir = context(ctx);
    for name in [
        "a/b/c/d/foo",
        "a/b/c/d/e/bay",
        "a/b2/c/d/e/bar",
        "a/b/c2/d/e/baz",
        "a/b/c2/d/e2/baz",
        "x/y.txt",
        "z/y.txt",
    ] {
        put(ctx, name, name);
    }
    symlink("b", dir.join("a/link")).unwrap();
    set_mode(dir.join("a"), 0o711);
    for (words, there) in [
        ("a/b/c/d/foo", &["a/", "a/b/", "a/b/c/", "a/b/c/d/", "a/b/c/d/foo"][..]),
        ("./x /z", &["x/", "x/y.txt", "z/", "z/y.txt"]),
        ("*/y.txt", &["x/", "x/y.txt", "z/", "z/y.txt"]),
        ("/a/b/./c/d", &["c/", "c/d/", "c/d/e/", "c/d/e/bay", "c/d/foo"]),
        ("a/b/c/d/.", &["a/", "a/b/", "a/b/c/", "a/b/c/d/", "a/b/c/d/e/", "a/b/c/d/e/bay", "a/b/c/d/foo"]),
        ("a/./b2/./c/d/e", &["b2/", "b2/c/", "b2/c/d/", "b2/c/d/e/", "b2/c/d/e/bar"]),
        ("x/./", &["y.txt"]),
        ("a/b*/./c/**/e", &["c/", "c/d/", "c/d/e/", "c/d/e/bar", "c/d/e/bay"]),
        ("a/b/c*/./d/**/baz", &["d/", "d/e/", "d/e/baz", "d/e2/", "d/e2/baz"]),
        ("--exclude=**/e a/b/./c", &["c/", "c/d/", "c/d/foo"]),
        ("a/link", &["a/", "a/link"]),
        ("**/nothing*", &[]),
    ] {
        let out = built(ctx, &format!("FROM scratch\nWORKDIR /to\nCOPY --parents {words} /to/\n"), &[]);
        assert_eq!(tree(ctx, &out, "to"), there, "{words}");
    }
    // Directories on the way are copied, too, and --chown and --chmod are theirs as well.
    let copies = "COPY --parents a/b/c/d/foo /to/\nCOPY --parents --chmod=0700 x/y.txt /to/\nCOPY --parents=false x/y.txt /flat/\n";
    let out = built(ctx, &format!("FROM scratch\n{copies}"), &[]);
    assert_eq!((mode(ctx, &out, "to/a"), mode(ctx, &out, "to/x")), (0o711, 0o700));
    assert_eq!(tree(ctx, &out, "flat"), ["y.txt"]);
    is_clean(ctx);
}

/// What moby's patternmatcher refuses is refused, with the file that has it and its line there.
fn patterns_that_are_none(ctx: &Ctx) {
    context(ctx);
    for (bad, shown) in [("[-x]", "[-x]"), ("!/[a-b-c]", "[a-b-c]")] {
        put(ctx, ".dockerignore", &format!("a\n# b\n{bad}\n"));
        let why = format!(".dockerignore: line 3: {shown:?}: not a pattern");
        refused(build(ctx, "FROM scratch\nCOPY . /\n", &[]), &[&why]);
    }
    put(ctx, ".dockerignore", "");
    refused(
        build(ctx, "FROM scratch\nCOPY --exclude=[-] . /\n", &[]),
        &["line 2: COPY --exclude=[-] . /: \"[-]\": not a pattern"],
    );
}

fn parents_that_are_not_there(ctx: &Ctx) {
    context(ctx);
    put(ctx, "a/file", "x");
    put(ctx, "secret/file", "x");
    put(ctx, ".dockerignore", "secret\n");
    for (words, why) in [
        ("gone/file", "\"gone/file\": not found in the context"),
        ("a/./gone", "\"a/./gone\": not found in the context"),
        ("gone/./file", "\"gone\": not found in the context"),
        ("a/file/./x", "\"a/file\": no directory"),
        ("secret/file", "\"secret/file\": not found in the context"),
        ("a/[ ", "not a pattern"),
    ] {
        refused(
            build(ctx, &format!("FROM scratch\nCOPY --parents {words} /to/\n"), &[]),
            &["line 2: COPY", why],
        );
    }
    refused(
        build(ctx, "FROM scratch\nCOPY --parents a/file a /to\n", &[]),
        &["with more than one source the destination must be a directory"],
    );
    refused(build(ctx, "FROM scratch\nCOPY --parents=maybe a /to\n", &[]), &["--parents=maybe"]);
}

/// A directory that .dockerignore leaves out is there where something in it is, with its mode, and is not where nothing is.
fn directories_only_for_what_is_in_them(ctx: &Ctx) {
    let dir = context(ctx);
    for name in ["in/sub/kept", "in/sub/not", "none/not", "none/deep/not"] {
        put(ctx, name, "x");
    }
    put(ctx, ".dockerignore", "**\n!in/sub/kept\n!none/gone\n");
    set_mode(dir.join("in"), 0o750);
    let out = built(ctx, "FROM scratch\nCOPY . /all/\n", &[]);
    assert_eq!(tree(ctx, &out, "all"), ["in/", "in/sub/", "in/sub/kept"]);
    assert_eq!(mode(ctx, &out, "all/in"), 0o750);
    refused(build(ctx, "FROM scratch\nCOPY none /x/\n", &[]), &["line 2: COPY", "left out of the context"]);
    let out = built(ctx, "FROM scratch\nWORKDIR /x\nCOPY n*e /x/\n", &[]);
    assert!(tree(ctx, &out, "x").is_empty());
    // The mode counts in the key.
    set_mode(dir.join("in"), 0o700);
    let out = built(ctx, "FROM scratch\nCOPY . /all/\n", &[]);
    assert_eq!(mode(ctx, &out, "all/in"), 0o700);
}

/// A directory below a source gives its mode to the one that it comes upon; the destination itself stays as it is.
fn directories_that_are_there_already(ctx: &Ctx) {
    let dir = context(ctx);
    put(ctx, "one/sub/a", "a");
    put(ctx, "two/sub/b", "b");
    set_mode(dir.join("one/sub"), 0o700);
    set_mode(dir.join("two/sub"), 0o755);
    set_mode(dir.join("two"), 0o700);
    let out = built(ctx, "FROM scratch\nCOPY --chown=7:8 one /to/\nCOPY two /to/\n", &[]);
    assert_eq!(tree(ctx, &out, "to"), ["sub/", "sub/a", "sub/b"]);
    assert_eq!((mode(ctx, &out, "to"), mode(ctx, &out, "to/sub")), (0o755, 0o755));
}

fn pack(ctx: &Ctx, name: &str, script: &str) {
    let dir = ctx.path("context");
    let script =
        format!("mkdir packed && cd packed && {script} && tar -cf ../{name} * && cd .. && rm -r packed");
    assert!(Command::new("sh").arg("-c").arg(script).current_dir(&dir).status().unwrap().success());
    ctx.give(&dir.join(name));
}

/// What .dockerignore leaves out is not there, whatever the way to it.
fn links_to_what_is_left_out(ctx: &Ctx) {
    let dir = context(ctx);
    for name in ["secret/k", "secret/pub/in", "open/k", "lone"] {
        put(ctx, name, name);
    }
    put(ctx, ".dockerignore", "secret\n!secret/pub\nlone\nhidden\nopen/no\nnone\n");
    fs::create_dir(dir.join("none")).unwrap();
    for (name, target) in [
        ("alias", "secret"),
        ("over", "alias"),
        ("file", "/secret/k"),
        ("out", "open/../secret/k"),
        ("single", "lone"),
        ("top", "."),
        ("hidden", "open"),
        ("by-hidden", "hidden"),
        ("by-none", "none/../open"),
        ("open/up", "../secret"),
        ("good", "open/./k"),
        ("above", "../../open"),
    ] {
        symlink(target, dir.join(name)).unwrap();
    }
    for source in [
        "secret/k",
        "alias/k",
        "over/k",
        "file",
        "out",
        "single",
        "top/lone",
        "top/alias/k",
        "hidden",
        "by-hidden/k",
        "by-none/k",
        "open/up/k",
        "open/no",
        "--parents alias/./k",
        "--parents top/./lone",
    ] {
        for instruction in ["COPY", "ADD"] {
            let out = build(ctx, &format!("FROM scratch\n{instruction} {source} /x/\n"), &[]).run();
            assert!(out.code == 1 && out.stderr.contains("line 2"), "{instruction} {source}: {out:?}");
        }
    }
    for (source, there) in [
        ("alias", &["pub/", "pub/in"][..]),
        ("over/pub", &["in"]),
        ("a*/k s*/k o*/k", &["k"]),
        ("good", &["good"]),
        ("above", &["k", "up"]),
        ("--parents top/./open", &["open/", "open/k", "open/up"]),
        ("--parents alias/./", &["pub/", "pub/in"]),
    ] {
        let out = built(ctx, &format!("FROM scratch\nCOPY {source} /x/\n"), &[]);
        assert_eq!(tree(ctx, &out, "x"), there, "{source}");
    }
    let out = built(ctx, "FROM scratch\nCOPY top/ /x/\n", &[]);
    let all = tree(ctx, &out, "x");
    assert!(all.contains(&"secret/pub/in".to_owned()) && !all.contains(&"secret/k".to_owned()), "{all:?}");
}

/// An archive replaces what is there of another kind, as with docker; COPY refuses that.
fn archives_replace_kinds(ctx: &Ctx) {
    context(ctx);
    pack(
        ctx,
        "one.tar",
        "mkdir -p full/in empty && echo x >full/in/x && echo f >file && ln -s file link && ln -s full way",
    );
    pack(ctx, "two.tar", "echo f >full && ln -s full empty && mkdir file link way && echo y >way/y");
    let out = built(ctx, "FROM scratch\nADD one.tar /to/\nADD two.tar /to/\n", &[]);
    assert_eq!(tree(ctx, &out, "to"), ["empty", "file/", "full", "link/", "way/", "way/y"]);
    assert_eq!(fs::read_link(bundle(ctx, &out).join("rootfs/to/empty")).unwrap(), Path::new("full"));
    let two = "FROM scratch\nADD one.tar /one/\nADD two.tar /two/\nFROM scratch\nCOPY --from=0 ";
    for (words, why) in [
        ("/one/ /to/\nCOPY --from=0 /two/ /to/", "a directory, which no file replaces"),
        ("/two/ /to/\nCOPY --from=0 /one/ /to/", "no directory, and none replaces it"),
    ] {
        refused(build(ctx, &format!("{two}{words}\n"), &[]), &["line 6: COPY", why]);
    }
}

/// Links of an archive, and those where it goes to, lead to what is below its destination.
fn links_of_an_archive(ctx: &Ctx) {
    context(ctx);
    pack(
        ctx,
        "up.tar",
        "mkdir in && echo x >in/file && ln -s .. up && ln -s /root absolute && tar -cf ../more.tar in",
    );
    let dir = ctx.path("context");
    let script = "cp up.tar a.tar && mkdir t t/up t/absolute && echo x >t/up/file && echo x >t/absolute/file && tar -C t -rf a.tar up/file absolute/file && rm -r t";
    assert!(Command::new("sh").arg("-c").arg(script).current_dir(&dir).status().unwrap().success());
    ctx.give(&dir.join("a.tar"));
    let out = built(ctx, &format!("{BASE}RUN mkdir /root\nADD a.tar /to/\n"), &[]);
    let there = tree(ctx, &out, "to");
    assert_eq!(there, ["absolute", "file", "in/", "in/file", "root/", "root/file", "up"]);
    assert_eq!(tree(ctx, &out, "root"), Vec::<String>::new());
}

/// What --chmod says is the mode of the directories, too, that are made for what is copied, but for those of an archive.
fn directories_on_the_way(ctx: &Ctx) {
    let dir = context(ctx);
    put(ctx, "src/private/key", "x");
    let tar = Command::new("tar").args(["-cf", "a.tar", "src/private/key"]).current_dir(&dir).status();
    assert!(tar.unwrap().success());
    let copies = "COPY --chmod=700 src /s\nCOPY --chmod=750 src/private/key /p/q/key\nCOPY --chmod=2750 <<E /h/\nE\n\
        COPY src /plain/sub\nCOPY --chmod=700 src/private/key /plain/key\nCOPY --link --chmod=711 src /l/m\nADD --chmod=700 a.tar /a/\n";
    let out = built(ctx, &format!("FROM scratch\n{copies}"), &[]);
    for (path, wanted) in [
        ("s", 0o700),
        ("s/private", 0o700),
        ("s/private/key", 0o700),
        ("p", 0o750),
        ("p/q", 0o750),
        ("h", 0o750),
        ("h/E", 0o2750),
        ("plain", 0o755),
        ("plain/sub", 0o755),
        ("plain/key", 0o700),
        ("l", 0o711),
        ("l/m", 0o711),
        ("a", 0o755),
        ("a/src/private/key", 0o700),
    ] {
        assert_eq!(mode(ctx, &out, path), wanted, "{path}");
    }
}

/// dir/file, which says hello, as an archive of xz.
const XZ: &str = "fd377a585a000004e6d6b446020021011c00000010cf58cce027ff00745d00321a4aa7220494b34ac8bcd1fe424b652469a3\
    8fb90363ed17c5f81e90edcd89641d64ff53e20bdf71fc7d00ab723a9fb8d15c2431b43aa738405df281ce70b443d3a2487c\
    3124e46e3979ad413985d087c53414e04b033ce272da170f2423d8b9bb7fff197da17dc27865b424ad4c74657dd30000b2b5\
    2c90204b19600001900180500000a573b662b1c467fb020000000004595a";
/// The same, made with a dictionary of 1 GiB.
const XZ_OF_A_GIGABYTE: &str = "fd377a585a000004e6d6b44602002101240000005e1fc7f9e027ff00785d00321a4aa7220494b34ac8bccf47dec8331083bb\
    220580cfadacd790e0735755c0a382ebcafea507401de8e1a885203e443352ac2ef1b3db0b27fe9517fc6391af9e103d7e75\
    51896cd3ab86e54308b50d00877b651a52a25edd74b9c48720169332cbaf51e81a00acaaf69b27c826fe4ee84cd9db2fbf94\
    0000b2b52c90204b19600001940180500000b33127f9b1c467fb020000000004595a";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn archives_of_xz(ctx: &Ctx) {
    let dir = context(ctx);
    let give = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).unwrap();
        ctx.give(&dir.join(name));
    };
    let archive = unhex(XZ);
    give("a.tar.xz", &archive);
    let file = "FROM scratch\nADD a.tar.xz /to/\nCOPY a.tar.xz /copied\n";
    let out = built(ctx, file, &[]);
    let root = |out: &Out| bundle(ctx, out).join("rootfs");
    assert_eq!(fs::read_to_string(root(&out).join("to/dir/file")).unwrap(), "hello");
    assert_eq!(fs::read(root(&out).join("copied")).unwrap(), archive);
    // On standard input it is the context.
    let rt = crate::build::rt(ctx, &["build", "-f", "Containerfile", "-"]);
    refused(rt.input(archive.clone()), &["Containerfile: no such file"]);
    let add = "FROM scratch\nADD b.xz /to/\n";
    give("b.xz", &unhex(XZ_OF_A_GIGABYTE));
    refused(build(ctx, add, &[]), &["line 2: ADD b.xz", "wants more than 256 MiB of memory"]);
    // Behind a head of an archive, what is wrong is an error.
    give("b.xz", &[&archive[..100], &[archive[100] ^ 1], &archive[101..]].concat());
    refused(build(ctx, add, &[]), &["line 2: ADD b.xz", "read the archive"]);
    give("b.xz", &archive[..20]);
    let out = built(ctx, add, &[]);
    assert_eq!(fs::read(root(&out).join("to/b.xz")).unwrap(), archive[..20]);
    is_clean(ctx);
}

/// What --chmod says with letters changes the mode that each thing has; directories on the way are as they are without it.
fn modes_in_letters(ctx: &Ctx) {
    let dir = context(ctx);
    put(ctx, "src/private/run", "x");
    put(ctx, "src/private/text", "x");
    for (path, mode) in [("src/private", 0o700), ("src/private/run", 0o711), ("src/private/text", 0o600)] {
        set_mode(dir.join(path), mode);
    }
    let copies = "COPY --chmod=u=rwX,go=rX src /s/t\nARG M=go-rx\nCOPY --chmod=$M src/private/run /r\nCOPY --chmod=a+x <<E /e\nE\n";
    let out = built(ctx, &format!("FROM scratch\n{copies}"), &[]);
    for (path, wanted) in [
        ("s", 0o755),
        ("s/t/private", 0o755),
        ("s/t/private/run", 0o755),
        ("s/t/private/text", 0o644),
        ("r", 0o700),
        ("e", 0o755),
    ] {
        assert_eq!(mode(ctx, &out, path), wanted, "{path}");
    }
    refused(
        build(ctx, "FROM scratch\nCOPY --chmod=u=q src /s\n", &[]),
        &["line 2: COPY", "--chmod=u=q: not a mode such as 0755 or u=rwX,go=rX"],
    );
}
