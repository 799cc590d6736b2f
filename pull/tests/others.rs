//! Places in which others write: a shared cache, a directory for bundles, archives that are somebody else's.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::faults::{Fault, Server};
use super::image::{Image, Layer, Store, digest, noise};
use super::{Place, have};

/// Somebody else.
pub const OTHER: u32 = 4711;

/// False, and counted as skipped, where nothing can be given to somebody else.
pub fn can_give(place: &Place) -> bool {
    fs::write(place.join("gift"), "").unwrap();
    let own = place.join("gift").metadata().unwrap().uid();
    let can = own != OTHER && chown(place.join("gift"), Some(OTHER), Some(OTHER)).is_ok();
    fs::remove_file(place.join("gift")).unwrap();
    if !can {
        let _ = writeln!(std::io::stderr(), "SKIP only root gives files away");
    }
    can
}

/// An image of one layer that is not compressed, with a file `f` of so many bytes of one value.
fn image_of(value: u8, length: usize) -> Image {
    let tar = Layer::default().file("f", vec![value; length]).done();
    let id = digest(&tar);
    Image::raw(vec![("application/vnd.oci.image.layer.v1.tar", tar)], vec![id], serde_json::json!({}))
}

fn layer_of(image: &Image) -> (&[u8], PathBuf) {
    let name = &image.layers[0];
    (&image.blobs[name], Path::new("cache/blobs/sha256").join(&name[7..]))
}

/// A cache that everybody may write, with nothing in it.
fn shared_cache(place: &Place) {
    fs::create_dir(place.join("cache")).unwrap();
    fs::set_permissions(place.join("cache"), Permissions::from_mode(0o777)).unwrap();
    place.good(&["cache", "list"]);
    assert_eq!(place.join("cache/blobs/sha256").metadata().unwrap().mode() & 0o777, 0o777);
}

/// A pull that must not hang.
fn timed(place: &Place, arguments: &[&str]) -> Output {
    timed_command(place.command().args(arguments), &format!("{arguments:?}"))
}

/// A command that must not hang.
fn timed_command(command: &mut Command, what: &str) -> Output {
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg("-m666").arg(path).status().unwrap().success());
}

#[test]
fn fifos_in_a_cache_hold_nobody_up() {
    let place = Place::new("fifos");
    let image = image_of(1, 1000);
    let server = Server::start(image.clone(), Fault::None);
    shared_cache(&place);
    for name in image.blobs.keys() {
        let hex = &name[7..];
        fifo(&place.join(format!("cache/blobs/sha256/{hex}")));
        fifo(&place.join(format!("cache/leases/{hex}.lease.1")));
        fifo(&place.join(format!("cache/partial/{hex}.0")));
    }
    let output = timed(&place, &["pull", "-q", "--plain-http", &server.name(), "b"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(place.join("b/rootfs/f")).unwrap(), [1; 1000]);
    place.is_clean();
    fifo(&place.join(format!("cache/blobs/sha256/{}", "a".repeat(64))));
    let output = timed(&place, &["cache", "verify"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 damaged"), "{output:?}");
}

/// A file system that somebody else has mounted on what is his, whose server does not answer, or is gone.
struct OthersMount {
    at: PathBuf,
    server: std::process::Child,
}

impl OthersMount {
    fn on(at: PathBuf, silent: bool) -> OthersMount {
        let script = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=$1,user_id=4711,group_id=4711,allow_other hang \"$0\" && \
            echo && exec sleep $2";
        let mode = if at.is_dir() { "40000" } else { "100000" };
        let mut server = Command::new("sh");
        server.args(["-c", script]).arg(&at).args([mode, if silent { "600" } else { "0" }]);
        let mut server = server.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = [0];
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut said).unwrap();
        if !silent {
            server.wait().unwrap();
        }
        OthersMount { at, server }
    }
}

impl Drop for OthersMount {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

#[test]
fn mounts_of_others_hold_nobody_up() {
    let image = image_of(1, 1000);
    for silent in [true, false] {
        let place = Place::new("others-mounts");
        if !can_give(&place) || !Path::new("/dev/fuse").exists() {
            return;
        }
        let server = Server::start(image.clone(), Fault::None);
        shared_cache(&place);
        let mut mounts = Vec::new();
        let mut mount = |path: PathBuf| mounts.push(OthersMount::on(path, silent));
        for name in image.blobs.keys() {
            let hex = &name[7..];
            for file in
                [format!("blobs/sha256/{hex}"), format!("leases/{hex}.lease.1"), format!("partial/{hex}.0")]
            {
                let file = place.join("cache").join(file);
                fs::write(&file, "").unwrap();
                mount(file);
            }
        }
        fs::create_dir(place.join("b.partial-0")).unwrap();
        mount(place.join("b.partial-0"));
        let output = timed(&place, &["pull", "-q", "--plain-http", &server.name(), "b"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read(place.join("b/rootfs/f")).unwrap(), [1; 1000]);
        for words in [&["cache", "list"][..], &["cache", "prune"]] {
            let output = timed(&place, words);
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        drop(mounts);
        // The whole cache: what is there would count as the caller's own, and not be hashed.
        let cache = OthersMount::on(place.join("cache"), silent);
        let output = timed(&place, &["pull", "-q", "--plain-http", &server.name(), "c"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("of another user's is mounted there"), "{said}");
        drop(cache);
    }
}

/// Of a team's store, whose other members can mount on what is theirs in it.
#[test]
fn mounts_of_others_stop_no_prune() {
    for silent in [true, false] {
        let place = Place::new("others-store");
        if !can_give(&place) || !Path::new("/dev/fuse").exists() {
            return;
        }
        let server = Server::start(image_of(1, 1000), Fault::None);
        let store = place.join("store");
        let store_of = || {
            let mut command = place.command();
            command.env("RT_IMAGES", &store);
            command
        };
        let output =
            timed_command(store_of().args(["pull", "-q", "--plain-http", "--store", &server.name()]), "pull");
        assert!(output.status.success(), "{output:?}");
        let bundles = || fs::read_dir(store.join("bundles")).map_or(0, Iterator::count);
        assert_eq!(bundles(), 1);
        fs::write(store.join("names/theirs"), "").unwrap();
        fs::create_dir(store.join("names/directory")).unwrap();
        let bundle = |digit: &str, end: &str| format!("bundles/sha256-{}{end}", digit.repeat(64));
        for dir in [bundle("a", ""), bundle("b", ""), bundle("c", ".removed-1")] {
            fs::create_dir(store.join(dir)).unwrap();
        }
        let config = bundle("b", "/config.json");
        fs::write(store.join(&config), "").unwrap();
        symlink(format!("../{}", bundle("a", "")), store.join("names/bundle")).unwrap();
        let mounts =
            ["names/theirs", "names/directory", &bundle("a", ""), &config, &bundle("c", ".removed-1")];
        let mounts = mounts.map(|name| OthersMount::on(store.join(name), silent));
        // Until then the pull itself may use its image.
        std::thread::sleep(Duration::from_millis(1100));
        for words in [&["images"][..], &["prune"], &["prune", "--all"]] {
            let output = timed_command(store_of().args(words), &format!("{words:?}"));
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        assert_eq!(bundles(), 3, "theirs alone are left");
        let output = timed_command(store_of().args(["rmi", "bundle"]), "rmi");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        drop(mounts);
    }
}

/// In a directory that an image leaves open to everybody, as its /tmp.
#[test]
fn mounts_of_others_stop_no_save() {
    for silent in [true, false] {
        let place = Place::new("others-save");
        if !can_give(&place) || !Path::new("/dev/fuse").exists() {
            return;
        }
        let server = Server::start(image_of(1, 1000), Fault::None);
        let output = timed(&place, &["pull", "-q", "--plain-http", &server.name(), "b"]);
        assert!(output.status.success(), "{output:?}");
        fs::create_dir_all(place.join("b/rootfs/tmp/theirs")).unwrap();
        let mount = OthersMount::on(place.join("b/rootfs/tmp/theirs"), silent);
        for to in ["oci-archive:saved.tar", "saved.sqsh"] {
            let output = timed(&place, &["save", "b", to]);
            assert!(output.status.success(), "{output:?}");
        }
        timed(&place, &["pull", "-q", "--force", "--plain-http", &server.name(), "b"]);
        drop(mount);
        unmount_all(&place);
    }
}

/// Takes away what is mounted in the directory of a test, wherever it has been moved.
fn unmount_all(place: &Place) {
    let (list, here) = (fs::read_to_string("/proc/self/mounts").unwrap(), place.join(""));
    for line in list.lines().filter(|line| line.contains(here.to_str().unwrap())) {
        let _ = Command::new("umount").arg("-l").arg(line.split(' ').nth(1).unwrap()).status();
    }
}

/// What is mounted in a bundle is no part of it.
#[test]
fn nothing_is_removed_through_a_mount() {
    let place = Place::new("others-mounted");
    if !can_give(&place) {
        return;
    }
    let server = Server::start(image_of(1, 1000), Fault::None);
    let pull = || timed(&place, &["pull", "-q", "--force", "--plain-http", &server.name(), "b"]);
    assert!(pull().status.success());
    for dir in ["b/rootfs/mnt", "mine"] {
        fs::create_dir_all(place.join(dir)).unwrap();
    }
    fs::write(place.join("mine/file"), "precious").unwrap();
    let bound =
        Command::new("mount").arg("--bind").args([place.join("mine"), place.join("b/rootfs/mnt")]).status();
    assert!(bound.unwrap().success());
    let output = pull();
    let kept = fs::read_to_string(place.join("mine/file"));
    unmount_all(&place);
    assert_eq!(kept.unwrap(), "precious", "{output:?}");
}

/// Root's configuration is not where another user's link leads: what is there can be anybody's.
#[test]
fn links_of_others_choose_no_registries_for_root() {
    let place = Place::new("others-config");
    if !can_give(&place) {
        return;
    }
    let server = Server::start(image_of(1, 1000), Fault::None);
    let open = place.join("open");
    fs::create_dir_all(open.join("containers")).unwrap();
    let (host, _) =
        server.name().split_once('/').map(|(host, rest)| (host.to_owned(), rest.to_owned())).unwrap();
    let mirror = format!(
        "[[registry]]\nlocation = \"registry.invalid\"\n[[registry.mirror]]\nlocation = \"{host}\"\ninsecure = true\n"
    );
    fs::write(open.join("containers/registries.conf"), mirror).unwrap();
    let theirs = place.join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(&open, theirs.join("config")).unwrap();
    let name = server.name().replace(&host, "registry.invalid");
    let pull = |config: PathBuf, bundle: &str| {
        let mut command = place.command();
        command.env("XDG_CONFIG_HOME", config).env_remove("CONTAINERS_REGISTRIES_CONF");
        timed_command(command.args(["pull", "-q", &name, bundle]), bundle)
    };
    let output = pull(theirs.join("config"), "own");
    assert!(output.status.success(), "root's own link: {output:?}");
    // A file of another user's in a directory of one's own, and one that others can write.
    let conf = open.join("containers/registries.conf");
    for (owner, mode) in [(OTHER, 0o644), (0, 0o666)] {
        chown(&conf, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&conf, Permissions::from_mode(mode)).unwrap();
        assert!(!pull(theirs.join("config"), "strangers").status.success());
    }
    fs::set_permissions(&conf, Permissions::from_mode(0o644)).unwrap();
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    assert!(!pull(theirs.join("config"), "theirs").status.success(), "another user has chosen a mirror");
    chown(&theirs, Some(0), Some(0)).unwrap();
    // In a directory for everybody each file can be anybody's.
    fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    assert!(!pull(open, "everybody").status.success());
}

/// A file of the caller's, as one of an image that he has unpacked, is none of his configuration because another user, whose HOME he
/// has after su, leads to it; and what another user has written there is not kept by a login.
#[test]
fn links_of_others_lead_to_no_configuration() {
    const ME: u32 = 4713;
    let place = Place::new("others-home");
    if !can_give(&place) {
        return;
    }
    let give = |path: &Path, uid: u32| lchown(path, Some(uid), Some(uid)).unwrap();
    let server = Server::start(image_of(1, 1000), Fault::Basic);
    let host = format!("127.0.0.1:{}", server.port);
    let program = place.join("rt-pull");
    fs::copy(env!("CARGO_BIN_EXE_rt-pull"), &program).unwrap();
    let (home, tree) = (place.join("home"), place.join("tree"));
    fs::create_dir_all(tree.join("enroot")).unwrap();
    fs::create_dir_all(tree.join("containers")).unwrap();
    fs::create_dir(&home).unwrap();
    give(&home, ME);
    let link = home.join(".config");
    symlink(&tree, &link).unwrap();
    give(&link, ME);
    let call = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(ME).gid(ME).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home);
        let output = command.current_dir("/").args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let name = server.name();
    let inspect = || call(&["inspect", "--plain-http", "--no-cache", "--retries", "0", &name]);
    let auth = format!("{{\"auths\": {{\"{host}\": {{\"username\": \"me\", \"password\": \"secret\"}}}}}}");
    let netrc = format!("machine {host} login me password secret\n");
    let conf = "[[registry]]\nlocation = \"blocked.example\"\nblocked = true\n";
    fs::write(tree.join("containers/registries.conf"), conf).unwrap();
    let blocked = || call(&["inspect", "--retries", "0", "blocked.example/x"]).1.contains("blocked by");
    for (file, text) in [("containers/auth.json", auth), ("enroot/.credentials", netrc)] {
        fs::write(tree.join(file), text).unwrap();
        for (home_is, link_is, counts) in
            [(ME, ME, true), (ME, 0, true), (ME, OTHER, false), (OTHER, OTHER, false)]
        {
            give(&home, home_is);
            give(&link, link_is);
            let (good, said) = inspect();
            assert_eq!((good, blocked()), (counts, counts), "{file}: {home_is}, {link_is}: {said}");
        }
        fs::remove_file(tree.join(file)).unwrap();
    }
    // What is there stays, if a login goes to another place.
    give(&home, ME);
    give(&link, ME);
    let login = || call(&["login", "--plain-http", "-u", "me", "-p", "secret", &host]);
    let file = tree.join("containers/auth.json");
    give(&tree.join("containers"), ME);
    fs::write(&file, "{\"credsStore\": \"theirs\"}").unwrap();
    give(&file, OTHER);
    let (good, said) = login();
    assert!(!good && said.contains("belongs to uid 4711"), "{said}");
    give(&file, ME);
    give(&link, OTHER);
    let (good, said) = login();
    assert!(!good && said.contains("others than root and the caller can change"), "{said}");
    give(&link, ME);
    assert!(login().0);
}

/// What another user's HOME leads to is no cache: a file of the caller's there passes for a blob by its name.
#[test]
fn links_of_others_lead_to_no_cache() {
    let place = Place::new("others-cache");
    if !can_give(&place) {
        return;
    }
    let image = image_of(1, 1000);
    let name = layer_of(&image).1;
    let server = Server::start(image, Fault::None);
    let (home, tree) = (place.join("home"), place.join("tree"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&tree).unwrap();
    let link = home.join(".cache");
    symlink(&tree, &link).unwrap();
    let pull = || {
        let mut command = place.command();
        let output = command
            .env_remove("RT_CACHE")
            .args(["pull", "-q", "--force", "--plain-http", &server.name(), "b"])
            .output()
            .unwrap();
        output.status.success().then(|| fs::read(place.join("b/rootfs/f")).unwrap()[0])
    };
    assert_eq!(pull(), Some(1));
    let wrong = image_of(2, 1000);
    let blob = tree.join("rt").join(name.strip_prefix("cache").unwrap());
    let poison = || {
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::write(&blob, layer_of(&wrong).0).unwrap();
    };
    // A blob that is hashed is found to be another one; in a home of another user's nothing is looked for.
    for (of_home, of_link, pulled) in [(0, OTHER, None), (OTHER, OTHER, Some(1))] {
        lchown(&home, Some(of_home), None).unwrap();
        lchown(&link, Some(of_link), None).unwrap();
        poison();
        assert_eq!(pull(), pulled, "home of {of_home}");
    }
    fs::remove_dir_all(&tree).unwrap();
    fs::create_dir(&tree).unwrap();
    assert_eq!(pull(), Some(1));
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 0, "a cache is made where another user's HOME leads");
}

#[test]
fn a_cache_is_no_link_of_others() {
    let place = Place::new("cache-link");
    if !can_give(&place) {
        return;
    }
    fs::create_dir_all(place.join("project/partial")).unwrap();
    fs::write(place.join("project/partial/results"), "x").unwrap();
    fs::create_dir(place.join("tmp")).unwrap();
    fs::set_permissions(place.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
    symlink(place.join("project"), place.join("tmp/cache")).unwrap();
    std::os::unix::fs::lchown(place.join("tmp/cache"), Some(OTHER), Some(OTHER)).unwrap();
    let prune = |cache: &str| {
        place.command().env("RT_CACHE", place.join(cache)).args(["cache", "prune"]).output().unwrap()
    };
    let out = prune("tmp/cache");
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(place.join("project/partial/results").exists(), "{out:?}");
    // One's own may lead anywhere.
    symlink(place.join("project"), place.join("tmp/own")).unwrap();
    assert!(prune("tmp/own").status.success());
    assert!(!place.join("project/partial/results").exists(), "a cache's own rubbish goes");
}

#[test]
fn fifos_and_devices_are_no_images() {
    let place = Place::new("fifo-image");
    fifo(&place.join("fifo"));
    let image = image_of(1, 1000);
    image.layout(&place.join("layout"));
    let blob = place.join(format!("layout/blobs/sha256/{}", &image.layers[0][7..]));
    fs::remove_file(&blob).unwrap();
    fifo(&blob);
    fs::create_dir(place.join("device")).unwrap();
    symlink("/dev/zero", place.join("device/index.json")).unwrap();
    for source in ["docker-archive:fifo", "oci-archive:/dev/null", "oci:layout:t", "oci:device"] {
        let output = timed(&place, &["pull", "-q", source, "b"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("not a regular file"), "{source}: {said}");
    }
    // Nor is what is in a bundle's place a bundle.
    fs::create_dir(place.join("b")).unwrap();
    fifo(&place.join("b/config.json"));
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, layer_of(&image).0).unwrap();
    assert!(!timed(&place, &["pull", "-q", "oci:layout:t", "b"]).status.success());
    assert!(!timed(&place, &["save", "b", "oci:saved"]).status.success());
}

/// Names in a directory that others write are not believed, whoever owns the file.
#[test]
fn blobs_are_what_their_names_say() {
    let place = Place::new("names");
    let (good, evil) = (image_of(1, 1000), image_of(2, 1000));
    let server = Server::start(good.clone(), Fault::None);
    let blob = place.join(layer_of(&good).1);
    for link in [true, false] {
        shared_cache(&place);
        let own = place.join(if link { "own" } else { "cache/partial/own" });
        fs::write(&own, layer_of(&evil).0).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o444)).unwrap();
        match link {
            true => symlink(&own, &blob).unwrap(),
            false => fs::rename(&own, &blob).unwrap(),
        }
        let output = place.run(&["pull", "-q", "--plain-http", &server.name(), "b"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("hash to"), "{said}");
        if let Ok(f) = fs::read(place.join("b/rootfs/f")) {
            assert!(f == [1; 1000], "link: {link}");
        }
        place.is_clean();
        let _ = fs::remove_dir_all(place.join("b"));
        fs::remove_dir_all(place.join("cache")).unwrap();
    }
}

/// Whoever owns an inode can change it at any time: what was hashed is what is unpacked, or the pull fails.
#[test]
fn blobs_that_change_are_not_unpacked() {
    let place = Place::new("change");
    if !can_give(&place) {
        return;
    }
    let length = 2 << 20;
    let (good, evil) = (image_of(1, length), image_of(2, length));
    let server = Server::start(good.clone(), Fault::None);
    shared_cache(&place);
    good.layout(&place.join("layout"));
    let in_layout = place.join(format!("layout/blobs/sha256/{}", &good.layers[0][7..]));
    for (path, source) in [(place.join(layer_of(&good).1), server.name()), (in_layout, "oci:layout:t".into())]
    {
        fs::write(&path, layer_of(&good).0).unwrap();
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        let stop = AtomicBool::new(false);
        let mut wrong = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    for image in [&evil, &good] {
                        file.write_all_at(layer_of(image).0, 0).unwrap();
                        std::thread::sleep(Duration::from_millis(7));
                    }
                }
            });
            for _ in 0..60 {
                let output = place.run(&["pull", "-q", "--force", "--plain-http", &source, "b"]);
                if output.status.success() && fs::read(place.join("b/rootfs/f")).unwrap() != vec![1; length] {
                    wrong += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(wrong, 0, "{source}: trees that no digest stands for");
    }
    place.is_clean();
}

/// However a layer is compressed, and however many threads inflate it.
#[test]
fn layers_of_others_are_hashed() {
    let place = Place::new("layers");
    if !can_give(&place) {
        return;
    }
    // Of one length, whatever they hold.
    let stored = |tar: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        encoder.write_all(tar).unwrap();
        encoder.finish().unwrap()
    };
    let pzstd =
        |tar: &[u8]| tar.chunks(1 << 20).flat_map(|part| zstd::encode_all(part, 1).unwrap()).collect();
    let stores: [(&str, Store); 4] = [
        ("tar", &|tar| tar.to_vec()),
        ("tar+gzip", &stored),
        ("tar+zstd", &|tar| zstd::encode_all(tar, 1).unwrap()),
        ("tar+zstd", &pzstd),
    ];
    for (at, (kind, store)) in stores.into_iter().enumerate() {
        let kind = format!("application/vnd.oci.image.layer.v1.{kind}");
        let image = |seed: u64| {
            let layer = Layer::default().file("f", noise(5 << 20, seed));
            Image::stored(vec![layer], serde_json::json!({}), |_, tar| (kind.as_str(), store(tar)))
        };
        let (good, evil) = (image(1), image(2));
        let layout = format!("layout{at}");
        good.layout(&place.join(&layout));
        let path = place.join(format!("{layout}/blobs/sha256/{}", &good.layers[0][7..]));
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        let (source, bundle) = (format!("oci:{layout}:t"), format!("b{at}"));
        place.good(&["pull", "-q", &source, &bundle]);
        let evil = layer_of(&evil).0;
        assert_eq!(evil.len(), layer_of(&good).0.len());
        fs::write(&path, evil).unwrap();
        let said = place.bad(&["pull", "-q", &source, "wrong"]);
        assert!(said.contains("hash to"), "{said}");
        place.is_clean();
    }
}

/// What only looks like the rest of a dead pull stays.
#[test]
fn forged_partial_bundles_stay() {
    let place = Place::new("forged");
    Image::new(vec![Layer::default().file("f", "x")]).layout(&place.join("image"));
    let dead = format!("far 1 pid:[1]\n{}\n1\n", i32::MAX - 7);
    let make = |name: &str, mode: u32, mark: Option<&str>| {
        let dir = place.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("data"), "mine").unwrap();
        if let Some(mark) = mark {
            fs::write(dir.join("mark"), mark).unwrap();
        }
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::open(&dir).unwrap().set_modified(old).unwrap();
    };
    // As names once said it: of a dead process of another machine, silent for long.
    let signed = |tail: &str| format!("b.partial-0123456789abcdef.1.1.{tail}");
    make(&signed("0"), 0o700, None);
    make(&signed("1"), 0o755, Some(&dead));
    make(&signed("2"), 0o700, Some("nothing"));
    let mut stay = vec![signed("0"), signed("1"), signed("2")];
    if can_give(&place) {
        make(&signed("3"), 0o700, Some(&dead));
        chown(place.join(signed("3")), Some(OTHER), Some(OTHER)).unwrap();
        make(&signed("4"), 0o700, Some(&dead));
        chown(place.join(signed("4")).join("mark"), Some(OTHER), Some(OTHER)).unwrap();
        stay.extend([signed("3"), signed("4")]);
    }
    symlink("image", place.join(signed("5"))).unwrap();
    // And one that is.
    make(&signed("6"), 0o700, Some(&dead));
    // Two whose process died before it had signed them, and while it did.
    for (name, mark) in [(signed("7"), false), (signed("8"), true)] {
        make(&name, 0o700, mark.then_some(""));
        fs::remove_file(place.join(&name).join("data")).unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::open(place.join(&name)).unwrap().set_modified(old).unwrap();
    }
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    assert!(!place.join(signed("7")).exists() && !place.join(signed("8")).exists());
    for name in &stay {
        assert_eq!(fs::read_to_string(place.join(name).join("data")).unwrap(), "mine", "{name}");
    }
    assert!(place.join("image/index.json").exists());
    assert!(!place.join(signed("6")).exists(), "a dead one stays");
}

/// The name of a bundle in the making is given to something else while it is being made.
#[test]
fn swapped_partial_bundles_do_no_harm() {
    let place = Place::new("swapped");
    let layers = vec![Layer::default().file("f", noise(800_000, 1)).dir("etc")];
    for good in [true, false] {
        let server = Server::start(Image::new(layers.clone()), Fault::Slow(Duration::from_millis(60)));
        let mut child = place.quiet().args(["pull", "--plain-http", &server.name(), "b"]).spawn().unwrap();
        let partial = || place.names(".").into_iter().find(|name| name.starts_with("b.partial-"));
        let start = Instant::now();
        while server.log.lock().unwrap().blob_bytes == 0 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let name = partial().expect("a bundle in the making");
        fs::rename(place.join(&name), place.join("aside")).unwrap();
        fs::create_dir_all(place.join(&name).join("rootfs/etc")).unwrap();
        fs::set_permissions(place.join(&name).join("rootfs/etc"), Permissions::from_mode(0o711)).unwrap();
        fs::write(place.join(&name).join("data"), "mine").unwrap();
        if !good {
            assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        }
        assert_eq!(child.wait().unwrap().success(), good);
        assert_eq!(fs::read_to_string(place.join(&name).join("data")).unwrap(), "mine");
        assert_eq!(place.names(&name), ["data", "rootfs"]);
        let mode = place.join(&name).join("rootfs/etc").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o711, "a mode was set elsewhere");
        assert_eq!(place.join("b").exists(), good);
        assert_eq!(place.names("aside"), [""; 0], "what was made is removed wherever it is");
        fs::remove_dir_all(place.join(&name)).unwrap();
        fs::remove_dir_all(place.join("aside")).unwrap();
        if good {
            assert_eq!(fs::read(place.join("b/rootfs/f")).unwrap(), noise(800_000, 1));
            fs::remove_dir_all(place.join("b")).unwrap();
            fs::remove_dir_all(place.join("cache")).unwrap();
        }
    }
}

/// What comes into the place of a bundle that is replaced is not removed.
#[test]
fn only_the_bundle_that_was_there_is_replaced() {
    if !have("strace") {
        return;
    }
    let place = Place::new("replaced");
    for name in ["one", "two"] {
        Image::new(vec![Layer::default().file("which", name)]).layout(&place.join(name));
    }
    // With RENAME_EXCHANGE and without.
    for inject in ["renameat2:delay_enter=1500000", "renameat2:delay_enter=1500000:error=EINVAL"] {
        place.good(&["pull", "-q", "--force", "oci:one:t", "b"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "trace", "-e", "trace=renameat2", "-e"]);
        command.arg(format!("inject={inject}")).arg(env!("CARGO_BIN_EXE_rt-pull"));
        command.args(["pull", "-q", "--force", "oci:two:t", "b"]).current_dir(place.join("."));
        let mut child = command.env("RT_CACHE", place.join("cache")).spawn().unwrap();
        let config = || {
            let names = place.names(".").into_iter().find(|name| name.starts_with("b.partial-"));
            names.is_some_and(|name| place.join(name).join("bundle/config.json").exists())
        };
        let start = Instant::now();
        while !config() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        fs::rename(place.join("b"), place.join("old")).unwrap();
        fs::create_dir(place.join("b")).unwrap();
        fs::write(place.join("b/data"), "mine").unwrap();
        assert!(!child.wait().unwrap().success(), "{inject}");
        assert_eq!(fs::read_to_string(place.join("b/data")).unwrap(), "mine", "{inject}");
        place.is_clean();
        fs::remove_dir_all(place.join("b")).unwrap();
        fs::remove_dir_all(place.join("old")).unwrap();
    }
}

/// A bundle of somebody else's is not taken for what it says that it is.
#[test]
fn bundles_of_others_are_not_believed() {
    let place = Place::new("believed");
    if !can_give(&place) {
        return;
    }
    Image::new(vec![Layer::default().file("f", "x")]).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    chown(place.join("b"), Some(OTHER), Some(OTHER)).unwrap();
    let said = place.bad(&["pull", "-q", "oci:image:t", "b"]);
    assert!(said.contains("others can change it"), "{said}");
}
