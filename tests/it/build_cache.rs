//! `rt build`: layers of another machine, by way of a registry.

use crate::build::{BASE, build, built, bundle, cached, context, is_clean, put, refused, rt};
use crate::client::Caller;
use crate::fixture::{Cmd, Ctx};
use crate::runner::{skip, tests};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

tests! {
    BOTH { another_machine_does_not_begin_anew, a_cache_counts_where_it_is_named, caches_that_are_none, a_push_sends_each_layer }
    BOTH { a_push_makes_anew_what_is_damaged, a_push_says_itself_what_a_base_is }
    USER { a_push_sends_no_layers_of_another_image }
}

type Blobs = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A registry that keeps what it is given, by its path, for everybody.
struct Registry {
    name: String,
    blobs: Blobs,
}

impl Registry {
    fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let blobs = Blobs::default();
        let kept = blobs.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                std::thread::spawn(move || answer(stream.unwrap(), &kept));
            }
        });
        Registry { name, blobs }
    }

    /// The manifest and the config of the image of that name.
    fn image(&self, name: &str) -> (Value, Value) {
        let kept = self.blobs.lock().unwrap();
        let manifest: Value = serde_json::from_slice(&kept[&format!("/v2/{name}/manifests/1")]).unwrap();
        let config = format!("/v2/{name}/blobs/{}", manifest["config"]["digest"].as_str().unwrap());
        (manifest, serde_json::from_slice(&kept[&config]).unwrap())
    }

    fn cache(&self) -> String {
        format!("type=registry,ref={}/team/cache:v1", self.name)
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, kept: &Blobs) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if header == "expect: 100-continue" {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        }
        if let Some(number) = header.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut kept = kept.lock().unwrap();
    let (path, query) =
        path.split_once('?').map_or((path.clone(), ""), |(path, query)| (path.to_owned(), query));
    let uploads = "/uploads/";
    let (status, location, content) = match method.as_str() {
        "POST" => (202, Some(format!("{path}{}", kept.len())), Vec::new()),
        "PATCH" => {
            kept.entry(path.clone()).or_default().extend(body);
            (202, Some(path), Vec::new())
        }
        "PUT" if path.contains(uploads) => {
            let mut content = kept.remove(&path).unwrap_or_default();
            content.extend(body);
            let digest =
                query.split('&').find_map(|field| field.strip_prefix("digest="))?.replace("%3A", ":");
            let blob = format!("{}/{digest}", path.split(uploads).next()?);
            match digest_of(&content) == digest {
                true => {
                    kept.insert(blob.clone(), content);
                    (201, Some(blob), Vec::new())
                }
                false => (400, None, Vec::new()),
            }
        }
        "PUT" => {
            kept.insert(path.clone(), body);
            (201, Some(path), Vec::new())
        }
        _ => match kept.get(&path) {
            Some(content) => (200, None, content.clone()),
            None => (if path == "/v2/" { 200 } else { 404 }, None, Vec::new()),
        },
    };
    let location = location.map_or_else(String::new, |location| format!("Location: {location}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} X\r\n{location}Content-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if method != "HEAD" {
        stream.write_all(&content).ok()?;
    }
    Some(())
}

/// The digest of `content`.
fn digest_of(content: &[u8]) -> String {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(content).unwrap();
    let said = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    format!("sha256:{}", said.split(' ').next().unwrap())
}

/// On another machine: with nothing of this one's.
fn elsewhere(ctx: &Ctx, cmd: Cmd) -> Cmd {
    let cmd = cmd.env("RT_BUILD_DIR", ctx.path("other-build")).env("RT_IMAGES", ctx.path("other-images"));
    cmd.env("RT_CACHE", ctx.path("other-cache"))
}

/// A file whose layers have whatever a layer can have.
fn file() -> String {
    format!(
        "{BASE}COPY data /data\nRUN [\"/probe\",\"write /made x\",\"mkdir /dir\",\"write /dir/in y\",\"chown /made 33 34\",\"symlink made /link\",\"mknod /null 8630 259\"]\n\
         RUN [\"/probe\",\"rm /made\",\"rm /dir/in\",\"rmdir /dir\",\"mkdir /dir\",\"write /dir/new z\"]\n\
         WORKDIR /w/x\nUSER 7:8\nRUN [\"/probe\",\"write /tmp/of-user x\"]\n"
    )
    .replace("COPY data /data\n", "COPY data /data\nRUN [\"/probe\",\"mkdir /tmp\",\"chmod /tmp 1023\"]\n")
}

fn another_machine_does_not_begin_anew(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "text");
    let registry = Registry::start();
    let cache = registry.cache();
    let to = ["--plain-http", "--cache-to", &cache, "-t", "x"];
    let from = ["--plain-http", "--cache-from", &cache, "-t", "x"];
    let first = built(ctx, &file(), &to);
    let second = elsewhere(ctx, build(ctx, &file(), &from)).ok();
    assert_eq!((cached(&second).1, &second.stdout), (0, &first.stdout), "{second:?}");
    // It is all the same, byte for byte: what is hidden, whose it is, and when it was changed.
    let third = elsewhere(ctx, build(ctx, &file(), &from)).ok();
    assert_eq!((cached(&third).1, &third.stdout), (0, &first.stdout));
    // What differs is made, and what is before it is not; from then on the cache has both.
    let other = file().replace("/tmp/of-user x", "/tmp/of-user y");
    let both = ["--plain-http", "--cache-from", &cache, "--cache-to", &cache, "-t", "y"];
    let changed = elsewhere(ctx, build(ctx, &other, &both)).ok();
    assert_eq!(cached(&changed).1, 1, "{changed:?}");
    fs::remove_dir_all(ctx.path("other-build")).unwrap();
    let again = elsewhere(ctx, build(ctx, &other, &both)).ok();
    assert_eq!((cached(&again).1, again.stdout), (0, changed.stdout));
    // What the cache has is not sent again.
    let layers = registry.blobs.lock().unwrap().keys().filter(|path| path.contains("/blobs/sha256:")).count();
    assert!(layers <= 8 + 3, "{layers} blobs");
    is_clean(ctx);
}

/// What comes from a cache is used by builds that name the cache, and by no others.
fn a_cache_counts_where_it_is_named(ctx: &Ctx) {
    context(ctx);
    let registry = Registry::start();
    let cache = registry.cache();
    let file = format!("{BASE}RUN write /a good\nRUN write /b good\n");
    built(ctx, &file, &["--plain-http", "--cache-to", &cache]);
    // A list that is not what its digest says counts for nothing.
    let (mut kept, image) = (registry.blobs.lock().unwrap(), "/v2/team/cache/manifests/v1");
    let manifest: Value = serde_json::from_slice(&kept[image]).unwrap();
    let list = format!("/v2/team/cache/blobs/{}", manifest["config"]["digest"].as_str().unwrap());
    assert!(kept.contains_key(&list));
    let damaged = kept[&list].iter().map(|byte| if *byte == b'a' { b'b' } else { *byte }).collect();
    let good = kept.insert(list.clone(), damaged).unwrap();
    drop(kept);
    let from = |flags: &[&str]| elsewhere(ctx, build(ctx, &file, flags)).ok();
    let with = ["--plain-http", "--cache-from", &cache];
    let out = from(&with);
    assert_eq!(cached(&out).0, 0, "its list is not what its digest says: {out:?}");
    assert!(out.stderr.contains("--cache-from") && out.stderr.contains("nothing is taken"), "{out:?}");
    fs::remove_dir_all(ctx.path("other-build")).unwrap();
    registry.blobs.lock().unwrap().insert(list, good);
    assert_eq!(cached(&from(&with)), (3, 0));
    let alone = from(&[]);
    assert_eq!(cached(&alone).0, 0, "without the flag: {alone:?}");
    assert_eq!(
        fs::read_to_string(
            ctx.path("other-images/bundles").join(alone.stdout.trim().replacen(':', "-", 1)).join("rootfs/a")
        )
        .unwrap(),
        "good"
    );
    assert_eq!(cached(&from(&with)).1, 0);
}

fn caches_that_are_none(ctx: &Ctx) {
    context(ctx);
    let registry = Registry::start();
    let out = built(ctx, BASE, &["--plain-http", "--cache-from", &registry.cache()]);
    assert!(out.stderr.contains("--cache-from") && out.stderr.contains("404"), "{out:?}");
    for (flag, value) in
        [("--cache-from", "type=local,src=x"), ("--cache-to", "type=registry"), ("--cache-to", "oci:dir")]
    {
        rt(ctx, &["build", flag, value, "context"]).fails(&[flag]);
    }
    // A registry that takes nothing is an error: the user has asked for it.
    let flags = ["--plain-http", "--retries", "0", "--cache-to", "127.0.0.1:1/x"];
    refused(build(ctx, BASE, &flags), &["--cache-to 127.0.0.1:1/x", "connection refused"]);
    is_clean(ctx);
}

/// The digests of an image's layers in a registry.
fn layers((manifest, config): &(Value, Value)) -> Vec<String> {
    let all = manifest["layers"].as_array().unwrap();
    let history = config["history"].as_array().unwrap().iter();
    assert_eq!(history.filter(|entry| entry["empty_layer"] != true).count(), all.len(), "{config}");
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), all.len());
    all.iter().map(|layer| layer["digest"].as_str().unwrap().to_owned()).collect()
}

/// What a registry gets of an image are the layers that it was made of, so that it has those already that did not change.
fn a_push_sends_each_layer(ctx: &Ctx) {
    context(ctx);
    let registry = Registry::start();
    let push = |cmd: fn(&Ctx, Cmd) -> Cmd, name: &str| {
        let to = format!("{}/{name}:1", registry.name);
        let out = cmd(ctx, rt(ctx, &["push", "--json", "--plain-http", name, &to])).ok();
        let sent: Value = serde_json::from_str(&out.stdout).unwrap();
        (layers(&registry.image(name)), sent["sentBytes"].as_u64().unwrap())
    };
    let here = |_: &Ctx, cmd: Cmd| cmd;
    built(ctx, BASE, &["-t", "low"]);
    let file = |text: &str| {
        format!(
            "FROM low\nRUN write /made {text}\nRUN [\"/probe\",\"rm /made\",\"write /new x\",\"chown /new 33 34\"]\n"
        )
    };
    built(ctx, &file("a"), &["-t", "high"]);
    let (first, sent) = push(here, "high");
    assert_eq!(first.len(), 3, "that of the base as well: {first:?}");
    // What a build has made is kept for the next push, where nobody else can read it: users may share the cache.
    for layer in &first {
        let hex = layer.strip_prefix("sha256:").unwrap();
        assert!(!ctx.path("cache/blobs/sha256").join(hex).exists());
        let mut kept = fs::read_dir(ctx.path("build/layers")).unwrap();
        let blob = kept.find_map(|dir| fs::metadata(dir.unwrap().path().join(format!("blob-{hex}"))).ok());
        assert_eq!(blob.unwrap().permissions().mode() & 0o777, 0o600);
    }
    // The same again, and what is built on the same base anew.
    assert_eq!(push(here, "high").0, first);
    built(ctx, &file("b"), &["-t", "high"]);
    let (second, again) = push(here, "high");
    assert!(again < sent / 2, "{again} bytes after {sent}");
    assert_eq!((second[0] == first[0], second[1] == first[1]), (true, false));
    let (base, _) = push(here, "low");
    assert_eq!(base, first[..1]);
    // On another machine the base is pulled, and keeps the layers that its registry has.
    let from = format!("FROM {}/low:1\n{}", registry.name, file("b").split_once('\n').unwrap().1);
    elsewhere(ctx, build(ctx, &from, &["--plain-http", "-t", "other"])).ok();
    let (other, _) = push(elsewhere, "other");
    assert_eq!((other.len(), &other[0]), (3, &base[0]));
    // It is what was built, with the owners that were given.
    let name = format!("{}/other:1", registry.name);
    rt(ctx, &["pull", "--plain-http", &name, "back"]).ok();
    assert_eq!(fs::read_to_string(ctx.path("back/rootfs/new")).unwrap(), "x");
    assert!(!ctx.path("back/rootfs/made").exists());
    // Without the layers it is one, and where what is known of them is damaged, or their directory is none.
    for entry in fs::read_dir(ctx.path("build/images")).unwrap() {
        fs::write(entry.unwrap().path(), "").unwrap();
    }
    assert_eq!(push(here, "high").0.len(), 1);
    for left in ["build/lock", "build/layers/left"] {
        fs::remove_dir_all(ctx.path("build")).unwrap();
        ctx.mkdir(left);
        fs::set_permissions(ctx.path("build"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(push(here, "high").0.len(), 1, "{left}");
    }
}

/// Pushes the image `name` to a repository of that name; its layers.
fn pushed(ctx: &Ctx, registry: &Registry, name: &str, change: fn(&Ctx, Cmd) -> Cmd) -> Vec<String> {
    let to = format!("{}/{name}:1", registry.name);
    change(ctx, rt(ctx, &["push", "--plain-http", name, &to])).ok();
    layers(&registry.image(name))
}

/// As a power cut leaves files: a layer that was kept, and one of a base in the cache.
fn a_push_makes_anew_what_is_damaged(ctx: &Ctx) {
    context(ctx);
    let registry = Registry::start();
    let empty = |dir: &str, name: &str| {
        let mut found = 0;
        for dir in fs::read_dir(ctx.path(dir)).unwrap().map(|dir| dir.unwrap().path()) {
            let files = fs::read_dir(&dir)
                .map_or(vec![dir], |files| files.map(|file| file.unwrap().path()).collect());
            for file in files {
                let is_one = file.file_name().unwrap().to_str().unwrap().starts_with(name);
                if is_one && fs::metadata(&file).unwrap().is_file() {
                    let mode = fs::metadata(&file).unwrap().permissions();
                    let size = fs::metadata(&file).unwrap().len() as usize;
                    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
                    fs::write(&file, vec![0; size]).unwrap();
                    fs::set_permissions(&file, mode).unwrap();
                    found += 1;
                }
            }
        }
        found
    };
    built(ctx, &format!("{BASE}RUN write /made x\n"), &["-t", "own"]);
    let here = |_: &Ctx, cmd: Cmd| cmd;
    let first = pushed(ctx, &registry, "own", here);
    registry.blobs.lock().unwrap().clear();
    assert_eq!(empty("build/layers", "blob-"), first.len());
    assert_eq!(pushed(ctx, &registry, "own", here), first);
    registry.blobs.lock().unwrap().clear();
    rt(ctx, &["push", "--json", "--plain-http", "own", &format!("{}/own:1", registry.name)]).ok();
    assert_eq!(layers(&registry.image("own")), first, "what is kept is right again");
    // Of a base that was pulled, which is one layer then.
    let from = format!("FROM {}/own:1\nRUN write /more x\n", registry.name);
    elsewhere(ctx, build(ctx, &from, &["--plain-http", "-t", "other"])).ok();
    registry.blobs.lock().unwrap().clear();
    let layer = first[0].strip_prefix("sha256:").unwrap();
    assert_eq!(empty("other-cache/blobs/sha256", layer), 1);
    assert_eq!(pushed(ctx, &registry, "other", elsewhere).len(), 2);
}

/// The config of a base that was pulled may say anything of its layers, which are looked at only where somebody asks for that. Other
/// clients refuse an image whose config is wrong.
fn a_push_says_itself_what_a_base_is(ctx: &Ctx) {
    context(ctx);
    let registry = Registry::start();
    built(ctx, BASE, &["-t", "low"]);
    let base = pushed(ctx, &registry, "low", |_, cmd| cmd);
    let (mut manifest, mut config) = registry.image("low");
    let is = config["rootfs"]["diff_ids"].clone();
    config["rootfs"]["diff_ids"][0] = format!("sha256:{}", "0".repeat(64)).into();
    let text = config.to_string().into_bytes();
    let digest = digest_of(&text);
    manifest["config"]["digest"] = digest.clone().into();
    manifest["config"]["size"] = text.len().into();
    let mut blobs = registry.blobs.lock().unwrap();
    blobs.insert(format!("/v2/low/blobs/{digest}"), text);
    blobs.insert("/v2/low/manifests/1".into(), manifest.to_string().into_bytes());
    drop(blobs);
    let from = format!("FROM {}/low:1\nRUN write /made x\n", registry.name);
    elsewhere(ctx, build(ctx, &from, &["--plain-http", "-t", "other"])).ok();
    for _ in 0..2 {
        let sent = pushed(ctx, &registry, "other", elsewhere);
        assert_eq!((sent.len(), &sent[0]), (2, &base[0]));
        assert_eq!(registry.image("other").1["rootfs"]["diff_ids"][0], is[0]);
    }
}

/// Whoever can change a bundle can give it the name of an image that the caller has built: it is sent as what it is.
fn a_push_sends_no_layers_of_another_image(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    context(ctx);
    let registry = Registry::start();
    let push = |name: &str| {
        rt(ctx, &["push", "--plain-http", name, &format!("{}/{name}:1", registry.name)]).ok();
        layers(&registry.image(name))
    };
    let own = built(ctx, &format!("{BASE}RUN write /key secret\n"), &["-t", "own"]);
    let tools = built(ctx, &format!("{BASE}RUN write /tool x\n"), &["-t", "tools"]);
    let secret = push("own").pop().unwrap();
    let (from, to) = (bundle(ctx, &tools), bundle(ctx, &own));
    fs::rename(&to, ctx.path("away")).unwrap();
    fs::rename(&from, &to).unwrap();
    for name in fs::read_dir(ctx.path("images/names")).unwrap() {
        let name = name.unwrap().path();
        if fs::read_link(&name).unwrap().file_name() == from.file_name() {
            fs::remove_file(&name).unwrap();
            symlink(Path::new("../bundles").join(to.file_name().unwrap()), &name).unwrap();
        }
    }
    let bundles = ctx.path("images/bundles");
    std::os::unix::fs::chown(&bundles, None, Some(12345)).unwrap();
    fs::set_permissions(&bundles, fs::Permissions::from_mode(0o775)).unwrap();
    let sent = push("tools");
    assert!(!sent.contains(&secret), "{secret} in {sent:?}");
}
