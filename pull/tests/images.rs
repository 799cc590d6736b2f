//! The store of images: filled once, listed, and emptied of what nobody uses.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::Place;
use super::faults::{Fault, Server};
use super::filter;
use super::image::{Image, Layer, digest, noise};

fn sample(text: &str) -> Image {
    Image::new(vec![
        Layer::default().dir("bin").file("bin/true", noise(300_000, 1)),
        Layer::default().dir("etc").file("etc/which", text),
    ])
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command();
    command.env("RT_IMAGES", place.join("images")).args(arguments);
    command
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    command(place, arguments).output().unwrap()
}

#[track_caller]
fn good(place: &Place, arguments: &[&str]) -> String {
    let output = run(place, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn bad(place: &Place, arguments: &[&str]) -> String {
    let output = run(place, arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches('\n').count(), 1, "one line: {said}");
    said
}

/// `rt pull --store`, as `rt run` calls it.
#[track_caller]
fn pull(place: &Place, image: &str, policy: &str) -> PathBuf {
    let path = good(place, &["pull", "-q", "--plain-http", "--store", "--pull", policy, image]);
    PathBuf::from(path.trim_end())
}

fn which(bundle: &Path) -> String {
    std::fs::read_to_string(bundle.join("rootfs/etc/which")).unwrap()
}

fn listed(place: &Place) -> Vec<Value> {
    serde_json::from_str::<Value>(&good(place, &["images", "--json"])).unwrap().as_array().unwrap().clone()
}

/// Makes all marks as old as this.
fn age(place: &Place, age: Duration) {
    for name in place.names("images/uses") {
        let file = std::fs::File::open(place.join("images/uses").join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn an_image_is_pulled_once_and_then_known_by_name() {
    let place = Place::new("images-once");
    let server = Server::start(sample("one"), Fault::None);
    let first = pull(&place, &server.name(), "missing");
    assert_eq!(which(&first), "one");
    let requests = server.log.lock().unwrap().requests.len();
    for spelling in [server.name(), format!("docker://{}", server.name())] {
        for policy in ["missing", "never"] {
            assert_eq!(pull(&place, &spelling, policy), first);
        }
    }
    assert_eq!(server.log.lock().unwrap().requests.len(), requests, "the registry is not asked");
    assert_eq!(pull(&place, &server.name(), "always"), first);
    let asked = server.log.lock().unwrap().requests[requests..].to_vec();
    assert_eq!(asked, ["HEAD /v2/team/x/manifests/t"]);
    let said = bad(&place, &["pull", "--store", "--pull", "never", "localhost:1/none"]);
    assert!(said.contains("not in the store"), "{said}");
    let image = &listed(&place)[0];
    assert_eq!(image["names"], serde_json::json!([server.name()]));
    assert_eq!(image["digest"], digest(&sample("one").manifest));
    assert_eq!(image["bytes"], 300_003);
    assert_eq!(good(&place, &["images", "-q"]).trim(), digest(&sample("one").manifest));
    for bad_flags in [&["--profile", "isolated"][..], &["--writable"], &["--force"], &["--pull", "x"]] {
        let name = server.name();
        let words = [&["pull", "--store"], bad_flags, &[name.as_str()]].concat();
        bad(&place, &words);
    }
    bad(&place, &["pull", "--store", &server.name(), "b"]);
    bad(&place, &["pull", "--pull", "always", &server.name(), "b"]);
}

/// Something else in the place of a bundle is not replaced, and no flag that would do so is named.
#[test]
fn what_is_in_the_place_of_a_bundle_stays() {
    let place = Place::new("images-place");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    std::fs::rename(&bundle, place.join("moved")).unwrap();
    symlink(place.join("moved"), &bundle).unwrap();
    let said = bad(&place, &["pull", "-q", "--store", "--pull", "always", "oci:image:t"]);
    assert!(said.contains(bundle.to_str().unwrap()) && !said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_link(&bundle).unwrap(), place.join("moved"));
}

/// A tag that moves, and an image of this machine that changes.
#[test]
fn a_name_moves_to_a_new_image() {
    let place = Place::new("images-move");
    sample("one").layout(&place.join("image"));
    let first = pull(&place, "oci:image:t", "missing");
    let digests = || place.names("images/bundles");
    assert_eq!((which(&first), digests().len()), ("one".into(), 1));
    assert_eq!(pull(&place, &format!("oci:{}:t", place.join("image").display()), "missing"), first);
    sample("two").layout(&place.join("image"));
    assert_eq!(pull(&place, "oci:image:t", "never"), first);
    let said = || String::from_utf8(run(&place, &["pull", "--store", "oci:image:t"]).stderr).unwrap();
    let (moved, again) = (said(), said());
    assert!(!moved.contains("unchanged") && again.contains("unchanged"), "{moved} {again}");
    // The other name of what is here is news, too.
    std::fs::rename(place.join("image"), place.join("copy")).unwrap();
    let copy = String::from_utf8(run(&place, &["pull", "--store", "oci:copy:t"]).stderr).unwrap();
    assert!(copy.contains("already here, by another name: sha256:"), "{copy}");
    std::fs::rename(place.join("copy"), place.join("image")).unwrap();
    good(&place, &["rmi", "oci:copy:t"]);
    let second = pull(&place, "oci:image:t", "missing");
    assert_eq!((which(&second), which(&first)), ("two".into(), "one".into()));
    // The first one has no name any more, and goes.
    age(&place, MINUTE);
    assert!(good(&place, &["images"]).contains("<none>"));
    assert!(good(&place, &["prune", "--dry-run"]).contains("would remove <none>"));
    assert_eq!(digests().len(), 2);
    good(&place, &["prune"]);
    assert_eq!(digests(), [second.file_name().unwrap().to_str().unwrap()]);
    assert!(place.names("images/uses").len() == 1 && which(&second) == "two");
}

/// Where the processes cannot be looked at, nobody can say that none uses the image. Elsewhere readlink(3) is readlinkat(2),
/// which the store itself needs.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_image_whose_users_cannot_be_seen_stays() {
    let place = Place::new("images-unseen");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    let mut user = Command::new("sleep").arg("60").current_dir(bundle.join("rootfs")).spawn().unwrap();
    age(&place, MINUTE);
    for words in [&["rmi", "oci:image:t"][..], &["prune", "--all"]] {
        for errno in [libc::EIO, libc::ENOMEM, libc::EMFILE] {
            let output = super::failing(command(&place, words), &["readlink"], errno);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(bundle.join("rootfs/bin/true").exists(), "{words:?}: {said}");
            assert_eq!((output.status.code(), said.contains("read /proc/")), (Some(1), true), "{said}");
        }
    }
    let said = bad(&place, &["rmi", "oci:image:t"]);
    assert!(said.contains(&format!("in use by processes {}", user.id())), "{said}");
    user.kill().unwrap();
    user.wait().unwrap();
    good(&place, &["rmi", "oci:image:t"]);
}

#[test]
fn platforms_are_not_mixed_up() {
    let place = Place::new("images-platform");
    let image = Image::index(vec![("linux/amd64", sample("amd")), ("linux/arm64", sample("arm"))]);
    let server = Server::start(image, Fault::None);
    let of = |platform: &str, policy: &str| {
        let words = [
            "pull",
            "-q",
            "--plain-http",
            "--store",
            "--pull",
            policy,
            "--platform",
            platform,
            &server.name(),
        ];
        run(&place, &words)
    };
    let path = |output: Output| PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
    assert_eq!(which(&path(of("linux/arm64", "missing"))), "arm");
    assert!(!of("linux/amd64", "never").status.success(), "the name is that of another platform");
    bad(&place, &["pull", "--store", "--pull", "never", &server.name()]);
    assert_eq!(which(&path(of("linux/amd64", "missing"))), "amd");
    assert_eq!(which(&path(of("linux/arm64", "never"))), "arm");
    age(&place, MINUTE);
    good(&place, &["rmi", "--platform", "linux/arm64", &server.name()]);
    assert!(!of("linux/arm64", "never").status.success());
    assert_eq!(which(&path(of("linux/amd64", "never"))), "amd");
}

/// A compressed archive is inflated only where it has changed.
#[test]
fn archives_are_known_by_their_state() {
    let place = Place::new("images-archive");
    let archive = |text: &str| {
        let _ = std::fs::remove_dir_all(place.join("image"));
        sample(text).layout(&place.join("image"));
        let mut tar = Command::new("tar");
        tar.args(["-C", "image", "-czf", "image.tgz", "."]).current_dir(place.join("."));
        assert!(tar.status().unwrap().success());
    };
    archive("one");
    let first = pull(&place, "oci-archive:image.tgz:t", "missing");
    // It is not inflated again, which would need a cache to inflate it into.
    std::fs::rename(place.join("cache"), place.join("hidden")).unwrap();
    std::fs::write(place.join("cache"), "no directory").unwrap();
    assert_eq!(pull(&place, "oci-archive:image.tgz:t", "missing"), first);
    std::fs::remove_file(place.join("cache")).unwrap();
    archive("two");
    assert_eq!(which(&pull(&place, "oci-archive:image.tgz:t", "missing")), "two");
    assert_eq!(which(&first), "one");
}

#[test]
fn names_go_first_and_the_bundle_with_the_last() {
    let place = Place::new("images-rmi");
    let server = Server::start(sample("one"), Fault::None);
    let other = format!("localhost:{}/team/x:t", server.port);
    let bundle = pull(&place, &server.name(), "missing");
    assert_eq!(pull(&place, &other, "missing"), bundle);
    age(&place, MINUTE);
    let hex = &digest(&sample("one").manifest)[7..19];
    let said = bad(&place, &["rmi", hex]);
    assert!(said.contains("several names"), "{said}");
    assert!(bad(&place, &["rmi", "localhost:1/none"]).contains("no such image"));
    let said = good(&place, &["rmi", &format!("docker://{}", server.name())]);
    assert_eq!(said, format!("untagged {}\n", server.name()));
    assert!(bundle.exists());
    let said = good(&place, &["rmi", hex]);
    assert_eq!(said, format!("untagged {other}\nremoved {}\n", digest(&sample("one").manifest)));
    for dir in ["bundles", "names", "uses", "leases"] {
        assert_eq!(place.names(&format!("images/{dir}")), [""; 0], "{dir}");
    }
}

/// A process in the bundle, as a container's is.
fn resident(bundle: &Path) -> Child {
    Command::new("sleep").arg("60").current_dir(bundle.join("rootfs")).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_is_used_stays() {
    let place = Place::new("images-used");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    let user = resident(&bundle);
    age(&place, 30 * DAY);
    let images = listed(&place);
    assert_eq!(images[0]["users"], serde_json::json!([{ "pids": [user.id()] }]));
    let said = bad(&place, &["rmi", "oci:image:t"]);
    assert!(said.contains(&format!("in use by processes {}", user.id())), "{said}");
    good(&place, &["prune", "--all"]);
    good(&place, &["prune", "--high", "0"]);
    assert_eq!(which(&bundle), "one");
    good(&place, &["rmi", "--force", "oci:image:t"]);
    assert!(place.names("images/names").is_empty());
    good(&place, &["prune"]);
    assert_eq!(which(&bundle), "one");
    end(user);
    good(&place, &["prune"]);
    assert!(!bundle.exists());
}

/// Processes of other machines cannot be seen, so their marks count for a week.
#[test]
fn marks_of_other_machines_count_for_a_week() {
    let place = Place::new("images-marks");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    let own = place.names("images/uses").remove(0);
    let name = bundle.file_name().unwrap().to_str().unwrap();
    let far = format!("{name}.{}.4026531836.1234.node7", "0".repeat(32));
    std::fs::write(place.join("images/uses").join(&far), "").unwrap();
    age(&place, 6 * DAY);
    let said = bad(&place, &["rmi", "oci:image:t"]);
    assert!(said.contains("on node7 by uid 1234, 6 d ago"), "{said}");
    good(&place, &["prune", "--all"]);
    assert!(bundle.exists() && good(&place, &["images"]).contains("node7"));
    assert_eq!(place.names("images/uses"), {
        let mut both = vec![own, far];
        both.sort();
        both
    });
    age(&place, 8 * DAY);
    good(&place, &["prune", "--all", "--older", "9d"]);
    assert!(bundle.exists());
    good(&place, &["prune", "--all", "--older", "7d"]);
    assert!(!bundle.exists());
    assert!(place.names("images/uses").is_empty() && place.names("images/names").is_empty());
}

/// A mark that the kernel does not show is an error, and says nothing of another machine.
#[test]
fn a_mark_that_cannot_be_looked_at_is_an_error() {
    let place = Place::new("images-unseen-marks");
    sample("one").layout(&place.join("image"));
    pull(&place, "oci:image:t", "missing");
    age(&place, MINUTE);
    for words in [&["images"][..], &["rmi", "oci:image:t"], &["prune", "--all"]] {
        let fails = filter::fails(&["openat2"], libc::EMFILE);
        let output = filter::under_filter(command(&place, words), fails, |command| command.output().unwrap());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("/images/"), "{words:?}: {said}");
        assert_eq!(listed(&place).len(), 1);
    }
}

#[test]
fn the_least_recently_used_goes_first_where_the_file_system_is_full() {
    let place = Place::new("images-full");
    for name in ["old", "new"] {
        sample(name).layout(&place.join(name));
        pull(&place, &format!("oci:{name}:t"), "missing");
    }
    age(&place, 2 * DAY);
    let new = pull(&place, "oci:new:t", "missing");
    let mark = place
        .names("images/uses")
        .into_iter()
        .find(|m| m.starts_with(new.file_name().unwrap().to_str().unwrap()));
    let file = std::fs::File::open(place.join("images/uses").join(mark.unwrap())).unwrap();
    file.set_modified(SystemTime::now() - DAY).unwrap();
    assert_eq!(good(&place, &["prune", "--high", "100"]), "0 B freed\n");
    let said = good(&place, &["prune", "--high", "0", "--dry-run"]);
    let order: Vec<bool> =
        said.lines().filter(|l| l.contains("remove")).map(|l| l.contains("/old")).collect();
    assert_eq!(order, [true, false], "{said}");
    bad(&place, &["prune", "--low", "5"]);
    bad(&place, &["prune", "--high", "5", "--low", "6"]);
    // A pull makes room by itself, where the site says so.
    sample("third").layout(&place.join("third"));
    let mut third = command(&place, &["pull", "-q", "--store", "oci:third:t"]);
    let output = third.env("RT_IMAGES_HIGH", "0").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(place.names("images/bundles").len(), 1);
    assert_eq!(which(&place.join("images/bundles").join(&place.names("images/bundles")[0])), "third");
}

#[test]
fn many_at_once_ask_once() {
    let place = Place::new("images-crowd");
    let server = Server::start(sample("one"), Fault::Slow(Duration::from_millis(20)));
    let start = |_| {
        let words = ["pull", "-q", "--plain-http", "--store", "--pull", "missing", &server.name()];
        command(&place, &words).stdout(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    let mut paths = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        paths.push(output.stdout);
    }
    paths.dedup();
    assert_eq!(paths.len(), 1);
    assert_eq!(server.count("HEAD /v2/team/x/manifests/"), 1, "{:?}", server.log.lock().unwrap().requests);
    assert_eq!(server.count("GET /v2/team/x/manifests/"), 1);
    assert_eq!(server.count("GET /v2/team/x/blobs/"), 3);
    assert!(place.names("images/leases").is_empty());
}

/// The process that pulls is killed. Others that wait for it go on, and nothing of it stays.
#[test]
fn another_takes_over_from_a_process_that_is_killed() {
    for pause in [30, 90, 200, 400] {
        let place = Place::new(&format!("images-kill{pause}"));
        let server = Server::start(sample("one"), Fault::Slow(Duration::from_millis(20)));
        let name = server.name();
        let start = || {
            let words = ["pull", "-q", "--plain-http", "--store", "--pull", "missing", &name];
            command(&place, &words).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut first = start();
        std::thread::sleep(Duration::from_millis(pause));
        let others: Vec<_> = (0..3).map(|_| start()).collect();
        std::thread::sleep(Duration::from_millis(pause));
        let _ = first.kill();
        let _ = first.wait();
        for other in others {
            assert!(other.wait_with_output().unwrap().status.success());
        }
        let bundles = place.names("images/bundles");
        let whole: Vec<_> = bundles.iter().filter(|name| !name.contains(".partial-")).collect();
        assert_eq!(whole.len(), 1, "{bundles:?}");
        assert_eq!(which(&place.join("images/bundles").join(whole[0])), "one");
        // One that was killed before it could sign its directory left it empty: old age takes it.
        for name in bundles.iter().filter(|name| name.contains(".partial-")) {
            let dir = format!("images/bundles/{name}");
            assert_eq!(place.names(&dir), [""; 0]);
        }
    }
}

/// A removal that was killed is finished, or taken back.
#[test]
fn a_removal_that_died_is_finished_or_taken_back() {
    let place = Place::new("images-aside");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    let aside = PathBuf::from(format!("{}.removed-0123456789abcdef", bundle.display()));
    age(&place, MINUTE);
    std::fs::rename(&bundle, &aside).unwrap();
    // A container had been started before the name was gone.
    let user = resident(&aside);
    good(&place, &["prune"]);
    assert!(bundle.exists() && !aside.exists());
    end(user);
    std::fs::rename(&bundle, &aside).unwrap();
    good(&place, &["prune"]);
    assert!(!bundle.exists() && !aside.exists());
    // It has no name any more, and no mark.
    assert_eq!(place.names("images/names"), [""; 0]);
    assert_eq!(place.names("images/uses"), [""; 0]);
    assert_eq!(which(&pull(&place, "oci:image:t", "missing")), "one");
    // Where the image was pulled again meanwhile, the name is that of the new bundle.
    age(&place, MINUTE);
    std::fs::create_dir(&aside).unwrap();
    good(&place, &["prune"]);
    assert!(bundle.exists() && !aside.exists());
    assert_eq!(pull(&place, "oci:image:t", "never"), bundle);
}

/// Starts and removals at the same time: a start that was told of a bundle either has it, or finds that it is not there.
#[test]
fn starts_and_removals_race() {
    let place = Place::new("images-race");
    sample("one").layout(&place.join("image"));
    let name = pull(&place, "oci:image:t", "missing");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (pruned, started) = std::thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                age(&place, MINUTE);
                good(&place, &["prune", "--all"]);
                rounds += 1;
            }
            rounds
        });
        let end_at = Instant::now() + Duration::from_secs(4);
        let mut started = 0;
        while Instant::now() < end_at {
            let output = run(&place, &["pull", "-q", "--store", "--pull", "missing", "oci:image:t"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            // As a container does: it enters the bundle, and uses it for a while.
            let Ok(mut child) = Command::new("sh")
                .args(["-c", "sleep 0.05; exec cat rootfs/etc/which"])
                .current_dir(&name)
                .stdout(Stdio::piped())
                .spawn()
            else {
                continue;
            };
            let mut text = String::new();
            std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
            assert!(child.wait().unwrap().success(), "a bundle went while it was used");
            assert_eq!(text, "one");
            started += 1;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (pruner.join().unwrap(), started)
    });
    assert!(pruned > 3 && started > 3, "{pruned} {started}");
}

/// A store that a site shares is read beside one's own.
#[test]
fn stores_are_a_list() {
    let place = Place::new("images-list");
    sample("site").layout(&place.join("site-image"));
    sample("own").layout(&place.join("own-image"));
    let (site, own) = (place.join("site"), place.join("own"));
    std::fs::create_dir(&site).unwrap();
    std::fs::set_permissions(&site, std::fs::Permissions::from_mode(0o755)).unwrap();
    let with = |list: &[&Path], words: &[&str]| {
        let list: Vec<_> = list.iter().map(|path| path.to_str().unwrap()).collect();
        place.command().env("RT_IMAGES", list.join(":")).args(words).output().unwrap()
    };
    let path = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    };
    let shared = path(with(&[&site], &["pull", "-q", "--store", "oci:site-image:t"]));
    assert_eq!(shared.metadata().unwrap().permissions().mode() & 0o777, 0o755, "others may run it");
    let found = path(with(&[&own, &site], &["pull", "-q", "--store", "oci:site-image:t"]));
    assert_eq!(found, shared, "it is not pulled twice");
    let private = path(with(&[&own, &site], &["pull", "-q", "--store", "oci:own-image:t"]));
    assert!(private.starts_with(&own));
    assert_eq!(private.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let list = String::from_utf8(with(&[&own, &site], &["images"]).stdout).unwrap();
    assert!(list.contains("own-image") && list.contains("site-image"), "{list}");
    let none = place.join("none");
    let never = with(&[&none, &site], &["pull", "--store", "--pull", "never", "oci:site-image:t"]);
    assert_eq!(path(never), shared);
}

/// A name leads into the store's bundles and nowhere else, and a store that everybody can write is not used.
#[test]
fn hostile_stores_are_refused() {
    let place = Place::new("images-hostile");
    sample("one").layout(&place.join("image"));
    let bundle = pull(&place, "oci:image:t", "missing");
    let key = place.names("images/names").remove(0);
    let link = place.join("images/names").join(&key);
    for target in ["/etc", "../../image", "../bundles/../../image", "../bundles/x", "../bundles"] {
        std::fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
        let said = bad(&place, &["pull", "--store", "--pull", "never", "oci:image:t"]);
        assert!(said.contains("leads to no bundle"), "{target}: {said}");
        // It is no image, and goes where the right one comes.
        assert!(good(&place, &["images"]).contains("<none>"));
        assert_eq!(pull(&place, "oci:image:t", "missing"), bundle, "{target}");
    }
    // A fifo, a file, and something huge in their places are no names either.
    std::fs::remove_file(&link).unwrap();
    std::fs::write(&link, "x").unwrap();
    std::fs::write(place.join("images/bundles/x"), "x").unwrap();
    good(&place, &["images"]);
    for dir in ["images/names", "images/bundles", "images"] {
        let open = std::fs::Permissions::from_mode(0o777);
        let closed = place.join(dir).metadata().unwrap().permissions();
        std::fs::set_permissions(place.join(dir), open).unwrap();
        let said = bad(&place, &["pull", "--store", "oci:image:t"]);
        assert!(said.contains("can change it") || said.contains("everybody can write"), "{dir}: {said}");
        std::fs::set_permissions(place.join(dir), closed).unwrap();
    }
    // Another directory in the place of the names.
    std::fs::rename(place.join("images/names"), place.join("elsewhere")).unwrap();
    symlink("../elsewhere", place.join("images/names")).unwrap();
    bad(&place, &["pull", "--store", "oci:image:t"]);
}

#[test]
fn a_user_without_a_home_is_told_what_to_set() {
    let place = Place::new("images-home");
    sample("one").layout(&place.join("image"));
    // Without the variable the account's home counts, which is that of whoever runs the tests.
    let output =
        place.command().env("HOME", "no/path").args(["pull", "--store", "oci:image:t"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("RT_IMAGES"), "{said}");
    let path = place.good(&["pull", "-q", "--store", "oci:image:t"]);
    assert!(path.starts_with(place.join("home/.local/share/rt/images/bundles").to_str().unwrap()), "{path}");
    let output =
        place.command().env("RT_IMAGES", "/proc/x").args(["pull", "--store", "oci:image:t"]).output();
    assert!(!output.unwrap().status.success());
}

/// An engine is asked what it has before it writes the whole image out.
#[test]
fn engines_are_asked_first() {
    let place = Place::new("images-engine");
    // What `docker save` writes, and what `docker image inspect` says of it.
    let layer = Layer::default().dir("etc").file("etc/which", "one").done();
    let config = serde_json::json!({ "os": "linux", "architecture": "amd64", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] } });
    let config = config.to_string();
    let manifest = serde_json::json!([{ "Config": "c.json", "RepoTags": ["x:1"], "Layers": ["l.tar"] }]);
    let saved = Layer::default().file("manifest.json", manifest.to_string()).file("c.json", &config);
    std::fs::write(place.join("saved.tar"), saved.file("l.tar", layer).done()).unwrap();
    let id = digest(config.as_bytes());
    let engine = place.join("docker");
    let script = format!(
        "#!/bin/sh\ncase $1 in\nsave) echo save >>{0}; cat {1};;\nimage) echo sha256:{2};;\nesac\n",
        place.join("log").display(),
        place.join("saved.tar").display(),
        id[7..].to_owned()
    );
    std::fs::write(&engine, script).unwrap();
    std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.join(".").display(), std::env::var("PATH").unwrap());
    for _ in 0..3 {
        let output = command(&place, &["pull", "-q", "--store", "docker-daemon:x:1"])
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bundle = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
        assert_eq!(which(&bundle), "one");
    }
    assert_eq!(std::fs::read_to_string(place.join("log")).unwrap(), "save\n");
}
