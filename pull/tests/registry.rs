//! Registries that behave, and registries that do not.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Place;
use super::faults::{Fault, Server};
use super::image::{Image, Layer, noise};

fn sample() -> Image {
    Image::new(vec![
        Layer::default().dir("bin").file("bin/true", noise(900_000, 1)).file("gone", "x"),
        Layer::default().file("etc/b", noise(700_000, 2)).file(".wh.gone", ""),
        Layer::default().file("etc/c", "c"),
    ])
}

fn is_right(place: &Place) {
    assert_eq!(std::fs::read(place.join("b/rootfs/bin/true")).unwrap(), noise(900_000, 1));
    assert_eq!(std::fs::read(place.join("b/rootfs/etc/b")).unwrap(), noise(700_000, 2));
    assert!(!place.join("b/rootfs/gone").exists());
    place.is_clean();
}

/// The pull succeeds in spite of the fault.
fn survives(name: &str, fault: Fault) -> Server {
    let place = Place::new(name);
    let server = Server::start(sample(), fault);
    place.good(&["pull", "--plain-http", &server.name(), "b"]);
    is_right(&place);
    server
}

/// It fails, says `why`, and leaves nothing.
fn fails(name: &str, fault: Fault, why: &str) {
    let place = Place::new(name);
    let server = Server::start(sample(), fault);
    let said = place.bad(&["pull", "--plain-http", "--retries", "2", &server.name(), "b"]);
    assert!(said.contains(why), "{said}");
    assert!(!place.join("b").exists());
    place.is_clean();
}

#[test]
fn a_pull_and_again() {
    let place = Place::new("again");
    let server = Server::start(sample(), Fault::None);
    let summary = place.good(&["pull", "--plain-http", "--json", &server.name(), "b"]);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    // A file that is whited out is not written, where its layer does not come first.
    let (files, spared) = (summary["files"].as_u64(), summary["notWritten"]["entries"].as_u64());
    assert_eq!(files.zip(spared).map(|(files, spared)| files + spared), Some(4), "{summary}");
    is_right(&place);
    // The same tag again: one HEAD.
    let before = server.log.lock().unwrap().requests.len();
    place.good(&["pull", "--plain-http", &server.name(), "b"]);
    assert_eq!(server.log.lock().unwrap().requests[before..], ["HEAD /v2/team/x/manifests/t"]);
    // The same of an image file.
    place.good(&["pull", "-q", "--plain-http", &server.name(), "x.sqsh"]);
    let before = server.log.lock().unwrap().requests.len();
    place.good(&["pull", "--plain-http", &server.name(), "x.sqsh"]);
    assert_eq!(server.log.lock().unwrap().requests[before..], ["HEAD /v2/team/x/manifests/t"]);
    // Elsewhere: nothing is fetched twice.
    place.good(&["pull", "--plain-http", &server.name(), "c"]);
    assert_eq!(server.count("GET /v2/team/x/blobs/"), 4);
    assert_eq!(server.count("GET /v2/team/x/manifests/"), 1);
    let said = place.bad(&["pull", "--plain-http", &server.name(), "cache"]);
    assert!(said.contains("exists"), "{said}");
    let said = place.bad(&["pull", "--plain-http", "--force", &server.name(), "cache"]);
    assert!(said.contains("not a bundle"), "{said}");
    place.good(&["pull", "--plain-http", "--force", &server.name(), "b"]);
    is_right(&place);
    place.good(&["cache", "verify"]);
    let listed = place.good(&["cache", "list"]);
    assert!(listed.contains("5 blobs"), "{listed}");
    place.good(&["cache", "prune"]);
    assert!(place.names("cache/blobs/sha256").is_empty());
    place.good(&["pull", "--plain-http", "--no-cache", &server.name(), "d"]);
    assert!(place.names("cache/blobs/sha256").is_empty());
    assert_eq!(place.names("d"), ["config.json", "image.json", "rootfs"]);
}

#[test]
fn http_only_where_it_is_asked_for() {
    let place = Place::new("https");
    let server = Server::start(sample(), Fault::None);
    let said = place.bad(&["pull", "--retries", "0", &server.name(), "b"]);
    assert!(server.log.lock().unwrap().requests.iter().all(|r| !r.contains("/v2/")), "{said}");
    place.good(&["pull", "--insecure", "--retries", "0", &server.name(), "b"]);
}

#[test]
fn broken_connections_go_on() {
    let server = survives("cut", Fault::Cut(100_000));
    // Nothing came twice, as far as whole pieces go.
    let bytes = server.log.lock().unwrap().blob_bytes;
    assert!(bytes < 2_000_000, "{bytes} bytes for 1.6 MB of layers");
    assert!(server.count("GET /v2/team/x/blobs/") > 10);
}

#[test]
fn servers_without_ranges() {
    survives("no-range", Fault::CutOnceWithoutRange);
}

#[test]
fn chunked_bodies() {
    survives("chunked", Fault::Chunked);
}

#[test]
fn busy_servers() {
    survives("429", Fault::Busy(429, 2));
    survives("503", Fault::Busy(503, 1));
}

#[test]
fn tokens_that_end() {
    let server = survives("tokens", Fault::Tokens(1));
    assert!(server.count("/token") >= 3, "a new token each time");
    assert!(server.count("scope=repository%3Ateam%2Fx%3Apull") > 0);
}

/// A terminal as the standard input of `rt login`, which shows what is typed.
struct Terminal {
    master: std::fs::File,
    slave: std::fs::File,
}

impl Terminal {
    fn new() -> Terminal {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let slave = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
        Terminal { master: master.into(), slave: slave.into() }
    }

    fn echoes(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.slave).unwrap();
        modes.local_modes.contains(rustix::termios::LocalModes::ECHO)
    }

    fn types(&mut self, line: &str) {
        self.master.write_all(line.as_bytes()).unwrap();
    }

    /// Types a user name, and waits until the password is asked for.
    fn asked_for_a_password(&mut self, place: &Place, host: &str) -> std::process::Child {
        let mut command = place.command();
        command.args(["login", "--plain-http", host]).stdin(self.slave.try_clone().unwrap());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.types("me\n");
        let started = Instant::now();
        while self.echoes() {
            assert!(started.elapsed() < Duration::from_secs(20), "the password would be seen");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }
}

#[test]
fn a_password_is_not_seen() {
    let place = Place::new("typed");
    let server = Server::start(sample(), Fault::Basic);
    let host = format!("127.0.0.1:{}", server.port);
    let mut terminal = Terminal::new();
    let child = terminal.asked_for_a_password(&place, &host);
    terminal.types("secret\n");
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(terminal.echoes());
    let mut seen = [0; 1000];
    let seen =
        terminal.master.read(&mut seen).map(|n| String::from_utf8_lossy(&seen[..n]).into_owned()).unwrap();
    assert!(seen.contains("me") && !seen.contains("secret"), "{seen:?}");
    place.good(&["inspect", "--plain-http", "--no-cache", &server.name()]);
}

#[test]
fn the_terminal_is_as_before_after_an_interrupt() {
    let place = Place::new("interrupted");
    let mut terminal = Terminal::new();
    let child = terminal.asked_for_a_password(&place, "127.0.0.1:1");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("interrupted"), "{out:?}");
    assert!(terminal.echoes(), "the user's shell would not show what is typed");
}

#[test]
fn passwords() {
    let place = Place::new("basic");
    let server = Server::start(sample(), Fault::Basic);
    let said = place.bad(&["pull", "--plain-http", &server.name(), "b"]);
    assert!(said.contains("rt login"), "{said}");
    let host = format!("127.0.0.1:{}", server.port);
    // No question where nobody can answer.
    let unasked = place.bad(&["login", "--plain-http", &host]);
    assert!(unasked.contains("standard input is no terminal") && !unasked.contains("user name"), "{unasked}");
    let wrong = place.bad(&["login", "--plain-http", "-u", "me", "-p", "wrong", &host]);
    assert!(wrong.contains(&format!("log in to {host} as me: ")), "{wrong}");
    for name in [server.name(), server.name().replace("/x", "/y")] {
        let wrong = place.bad(&["pull", "--plain-http", "--creds", "me:wrong", &name, "b"]);
        let refused =
            format!("({host} does not take the name or the password of user me: run rt login {host})");
        assert!(wrong.contains(&refused), "{wrong}");
    }
    place.good(&["login", "--plain-http", "-u", "me", "-p", "secret", &host]);
    place.good(&["pull", "--plain-http", &server.name(), "b"]);
    is_right(&place);
    place.good(&["logout", &host]);
    place.bad(&["inspect", "--plain-http", "--no-cache", &server.name()]);
    // enroot's file.
    std::fs::create_dir_all(place.join("home/.config/enroot")).unwrap();
    let netrc = format!("machine {host} login me password $(echo secret)\n");
    std::fs::write(place.join("home/.config/enroot/.credentials"), netrc).unwrap();
    place.good(&["inspect", "--plain-http", "--no-cache", &server.name()]);
}

/// registries.conf says of a host how it is asked. Where it says that of a place to which a name leads, the name is not meant.
#[test]
fn a_login_goes_where_registries_conf_allows_it() {
    let place = Place::new("login");
    let server = Server::start(sample(), Fault::Basic);
    let host = format!("127.0.0.1:{}", server.port);
    let authorized = || server.log.lock().unwrap().authorized;
    let login = |conf: String| {
        std::fs::write(place.join("registries.conf"), conf).unwrap();
        let mut command = place.command();
        command.env("CONTAINERS_REGISTRIES_CONF", place.join("registries.conf"));
        let output =
            command.args(["login", "--retries", "0", "-u", "me", "-p", "secret", &host]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    for table in [format!("location = \"{host}\""), format!("prefix = \"{host}\"")] {
        let (good, said) = login(format!("[[registry]]\n{table}\ninsecure = true\n"));
        assert!(good, "{table}: {said}");
    }
    assert!(login(format!("[registries.insecure]\nregistries = [\"{host}\"]\n")).0);
    let before = authorized();
    assert!(before >= 3);
    for table in [
        format!("location = \"{host}\""),
        format!("prefix = \"{host}\"\nlocation = \"registry.invalid\"\ninsecure = true"),
        format!("prefix = \"registry.example\"\nlocation = \"{host}\"\ninsecure = true"),
        format!("location = \"{host}/team\"\ninsecure = true"),
    ] {
        let (good, said) = login(format!("[[registry]]\n{table}\n"));
        assert!(!good && said.contains(&format!("https://{host}/v2/")), "{table}: {said}");
    }
    assert_eq!(authorized(), before, "HTTP gets no password");
}

/// What a tag means now is said with its digest, and is an image's name by itself.
#[test]
fn a_pinned_name_names_the_same_image() {
    let place = Place::new("pinned");
    let server = Server::start(sample(), Fault::None);
    let said = place.good(&["inspect", "--plain-http", "--pinned", &server.name()]);
    let pinned = said.trim_end();
    let (name, digest) = pinned.rsplit_once('@').unwrap();
    assert_eq!((server.name().trim_start_matches("docker://"), said.lines().count()), (name, 1));
    assert!(digest.starts_with("sha256:"), "{said}");
    assert_eq!(place.good(&["inspect", "--plain-http", "--pinned", pinned]), said);
    place.good(&["pull", "--plain-http", pinned, "b"]);
    is_right(&place);
}

/// A registry that sends the user to another's token server gets no token that the user's password bought.
#[test]
fn passwords_of_others_buy_nothing() {
    let place = Place::new("foreign");
    let tokens = Server::start(sample(), Fault::None);
    let server = Server::start(sample(), Fault::TokensOf(tokens.port));
    std::fs::create_dir_all(place.join("home/.config/enroot")).unwrap();
    let netrc = format!("machine localhost:{} login me password secret\n", tokens.port);
    std::fs::write(place.join("home/.config/enroot/.credentials"), netrc).unwrap();
    place.good(&["inspect", "--plain-http", "--no-cache", &server.name()]);
    assert!(tokens.count("GET /token") > 0);
    assert_eq!(tokens.log.lock().unwrap().authorized, 0);
}

#[test]
fn redirects_lose_the_authorization() {
    let store = Server::start(sample(), Fault::None);
    let place = Place::new("redirect");
    let server = Server::start(sample(), Fault::Redirect(store.port));
    // Basic would be sent if asked for; the redirecting registry takes tokens.
    place.good(&["pull", "--plain-http", "--creds", "me:secret", &server.name(), "b"]);
    is_right(&place);
    assert_eq!(store.log.lock().unwrap().authorized, 0);
    assert_eq!(store.count("GET /v2/team/x/blobs/"), 4);
}

/// Whoever a registry redirects to gets no credentials by asking for them, in whatever way.
#[test]
fn challenges_of_others_are_not_heeded() {
    for (at, bearer) in [true, false].into_iter().enumerate() {
        let place = Place::new(&format!("challenge{at}"));
        let tokens = Server::start(sample(), Fault::None);
        let store = Server::start(sample(), if bearer { Fault::TokensOf(tokens.port) } else { Fault::Basic });
        let server = Server::start(sample(), Fault::Redirect(store.port));
        let said = place.bad(&["pull", "--plain-http", "--creds", "me:secret", &server.name(), "b"]);
        assert!(said.contains("redirects") && said.contains("401"), "{said}");
        assert_eq!(tokens.log.lock().unwrap().requests, [""; 0]);
        for server in [&server, &store] {
            assert_eq!(server.log.lock().unwrap().authorized, 0);
        }
        place.is_clean();
    }
}

/// `--creds` are for the registry that is named, also where registries.conf says that it is elsewhere.
#[test]
fn credentials_that_are_given_are_no_mirrors() {
    let place = Place::new("creds-mirror");
    let mirror = Server::start(sample(), Fault::Basic);
    let own = Server::start(sample(), Fault::Basic);
    let conf = format!(
        "[[registry]]\nprefix = \"registry.example\"\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n\
         [[registry.mirror]]\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n",
        own.port, mirror.port
    );
    std::fs::write(place.join("registries.conf"), conf).unwrap();
    let mut command = place.command();
    command.env("CONTAINERS_REGISTRIES_CONF", place.join("registries.conf"));
    command.args(["pull", "--retries", "0", "--creds", "me:secret", "registry.example/team/x:t", "b"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_right(&place);
    assert!(mirror.count("HEAD") > 0);
    assert_eq!(mirror.log.lock().unwrap().authorized, 0);
}

#[test]
fn lies_are_found_out() {
    fails("wrong", Fault::WrongBytes, "hash to");
    fails("short", Fault::Short, "of");
    fails("long", Fault::Long, "longer than");
    fails("denied", Fault::Denied, "requested access is denied");
    fails("busy", Fault::Busy(503, 1000), "503");
}

/// Wrong bytes that a server sent before it went away spoil no later pull.
#[test]
fn poisoned_partial_downloads_go_away() {
    let place = Place::new("poison");
    let poison = || {
        let server = Server::start(sample(), Fault::Poison);
        place.bad(&["pull", "--plain-http", "--retries", "0", &server.name(), "p"]);
        assert!(!place.names("cache/partial").is_empty(), "nothing was kept");
    };
    poison();
    let server = Server::start(sample(), Fault::None);
    place.good(&["pull", "--plain-http", &server.name(), "b"]);
    is_right(&place);
    assert_eq!(place.names("cache/partial"), [""; 0]);
    // Once: who sends wrong bytes again is believed no second time.
    place.good(&["cache", "prune"]);
    poison();
    let wrong = Server::start(sample(), Fault::WrongBytes);
    let said = place.bad(&["pull", "--plain-http", &wrong.name(), "c"]);
    assert!(said.contains("hash to"), "{said}");
    place.good(&["pull", "--plain-http", "--force", &server.name(), "b"]);
    is_right(&place);
}

#[test]
fn a_mirror_that_is_down_is_passed_over() {
    let place = Place::new("mirror");
    let server = Server::start(sample(), Fault::None);
    let conf = format!(
        "[[registry]]\nlocation = \"registry.example\"\n\
         [[registry.mirror]]\nlocation = \"127.0.0.1:1/none\"\ninsecure = true\n\
         [[registry.mirror]]\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n\
         [[registry]]\nlocation = \"bad.example\"\nblocked = true\n",
        server.port
    );
    std::fs::write(place.join("registries.conf"), conf).unwrap();
    let pull = |name: &str| {
        let mut command = place.command();
        command.env("CONTAINERS_REGISTRIES_CONF", place.join("registries.conf"));
        command.args(["pull", "--retries", "0", name, "b"]).output().unwrap()
    };
    let blocked = pull("bad.example/x");
    assert!(String::from_utf8_lossy(&blocked.stderr).contains("blocked"));
    let output = pull("registry.example/team/x:t");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_right(&place);
}

#[test]
fn a_home_of_somebody_else_says_nothing_to_root() {
    let place = Place::new("home");
    let dir = place.join("home/.config/containers");
    std::fs::create_dir_all(&dir).unwrap();
    let conf = "[[registry]]\nlocation = \"127.0.0.1:1\"\nblocked = true\n";
    std::fs::write(dir.join("registries.conf"), conf).unwrap();
    let says_blocked = || {
        let mut command = place.command();
        command.env_remove("CONTAINERS_REGISTRIES_CONF");
        let output = command.args(["pull", "--retries", "0", "127.0.0.1:1/x", "b"]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("blocked")
    };
    assert!(says_blocked());
    if std::os::unix::fs::chown(place.join("home"), Some(12345), None).is_err() {
        eprintln!("SKIP for root: only root gives a directory away");
        return;
    }
    assert!(!says_blocked(), "a user's file steers root's pull");
}

/// enroot's file names commands, so what others can write in it is not heeded.
#[test]
fn commands_of_somebody_else_are_not_run() {
    let place = Place::new("netrc");
    let dir = place.join("home/.config/enroot");
    std::fs::create_dir_all(&dir).unwrap();
    let (file, ran) = (dir.join(".credentials"), place.join("ran"));
    let server = Server::start(sample(), Fault::Basic);
    let command = format!("touch {}; echo secret", ran.display());
    let text = format!("machine 127.0.0.1:{} login me password $({command})\n", server.port);
    std::fs::write(&file, text).unwrap();
    let runs = |uid: Option<u32>, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let given = uid.is_none_or(|uid| std::os::unix::fs::chown(&file, Some(uid), None).is_ok());
        let _ = std::fs::remove_file(&ran);
        let mut command = place.command();
        command.args(["inspect", "--plain-http", "--no-cache", &server.name()]).output().unwrap();
        given.then(|| ran.exists())
    };
    assert_eq!(runs(None, 0o600), Some(true), "it is asked");
    assert_eq!(runs(None, 0o660), Some(false), "a group has written it");
    if runs(Some(12345), 0o644).is_none_or(|ran| !ran) {
        return;
    }
    panic!("another user's command has run");
}

#[test]
fn an_interrupted_pull_goes_on() {
    let place = Place::new("interrupt");
    let server = Server::start(sample(), Fault::Slow(Duration::from_millis(80)));
    let start = Instant::now();
    let child = place.quiet().args(["pull", "--plain-http", &server.name(), "b"]).spawn().unwrap();
    while server.log.lock().unwrap().blob_bytes < 400_000 && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(!place.join("b").exists());
    place.is_clean();
    assert!(!place.names("cache/partial").is_empty(), "what came is kept");
    place.good(&["pull", "--plain-http", &server.name(), "b"]);
    is_right(&place);
    assert!(place.names("cache/partial").is_empty());
    let bytes = server.log.lock().unwrap().blob_bytes;
    assert!(bytes < 2_100_000, "{bytes} bytes for 1.6 MB of layers: nothing was resumed");
}

/// Ctrl-C ends a pull that waits for a registry which says nothing any more, or next to nothing.
#[test]
fn an_interrupt_does_not_wait_for_a_silent_registry() {
    for (n, fault) in [
        Fault::Silent("/manifests/"),
        Fault::Silent("/blobs/"),
        Fault::Trickle("/manifests/"),
        Fault::Trickle("/blobs/"),
    ]
    .into_iter()
    .enumerate()
    {
        let part = if n % 2 == 0 { "/manifests/" } else { "/blobs/" };
        let place = Place::new(&format!("silent{n}"));
        let server = Server::start(sample(), fault.clone());
        let mut command = place.command();
        command.args(["pull", "--plain-http", &server.name(), "b"]).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let start = Instant::now();
        while server.count(part) == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{fault:?}: nothing is asked");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
            .unwrap();
        let start = Instant::now();
        let out = child.wait_with_output().unwrap();
        assert!(start.elapsed() < Duration::from_secs(15), "{fault:?}: {:?}", start.elapsed());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains("interrupted"), "{fault:?}: {said}");
        place.is_clean();
    }
}

/// A registry that sends next to nothing is given up, with words that say so and where.
#[test]
fn a_trickle_is_given_up() {
    for part in ["/manifests/", "/blobs/"] {
        let place = Place::new(&format!("trickle{}", part.len()));
        std::fs::create_dir_all(place.join("home/.config/rt")).unwrap();
        let configured = "[pull]\nleast-rate = 1024\nleast-rate-time = 2\n";
        std::fs::write(place.join("home/.config/rt/config.toml"), configured).unwrap();
        let server = Server::start(sample(), Fault::Trickle(part));
        let said = place.bad(&["pull", "-q", "--plain-http", "--retries", "1", &server.name(), "b"]);
        assert!(said.contains("less than 1024 bytes a second for 2 s"), "{said}");
        assert!(said.contains(part.trim_matches('/').trim_end_matches('s')), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        place.is_clean();
    }
}

/// Nor does one keep a pull with trailers behind an answer, which are no part of what was asked for.
#[test]
fn trailers_without_end_are_given_up() {
    let given_up = |part: &'static str| {
        let place = Place::new(&format!("trailers{}", part.len()));
        std::fs::create_dir_all(place.join("home/.config/rt")).unwrap();
        let configured = "[pull]\nleast-rate = 500000\nleast-rate-time = 5\n";
        std::fs::write(place.join("home/.config/rt/config.toml"), configured).unwrap();
        let server = Server::start(sample(), Fault::Trailers(part));
        let mut command = place.command();
        command.args(["pull", "-q", "--plain-http", "--retries", "0", &server.name(), "b"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(90) {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{part}: still there");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("the answer has not ended in time"), "{said}");
        place.is_clean();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| given_up("/manifests/"));
        scope.spawn(|| given_up("/blobs/"));
    });
}

/// Nor is one that sends a byte and hangs up, again and again.
#[test]
fn a_byte_a_connection_is_given_up() {
    let place = Place::new("drip");
    let server = Server::start(sample(), Fault::Cut(1));
    let said = place.bad(&["pull", "-q", "--plain-http", "--retries", "3", &server.name(), "b"]);
    assert!(said.contains("blob sha256:"), "{said}");
    assert!(server.count("/blobs/") < 40, "{} requests", server.count("/blobs/"));
    place.is_clean();
}

#[test]
fn other_platforms_and_artifacts() {
    let place = Place::new("artifact");
    let mut image = sample();
    let text = String::from_utf8(image.manifest.clone()).unwrap();
    image.manifest = text.replace("image.config.v1", "chart.config.v1").into_bytes();
    let server = Server::start(image, Fault::None);
    let said = place.bad(&["pull", "--plain-http", &server.name(), "b"]);
    assert!(said.contains("not a container image"), "{said}");
}

#[test]
fn busy_until_a_date() {
    let start = Instant::now();
    survives("date", Fault::BusyUntil(1));
    assert!(start.elapsed() > Duration::from_secs(1), "the date was not waited for");
}

/// A program in the test's own `bin`, which comes first in PATH.
fn program(place: &Place, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let bin = place.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

fn pull_with(place: &Place, env: &[(&str, &str)], arguments: &[&str]) -> std::process::Output {
    let mut command = place.command();
    command.envs(env.iter().copied()).args(["pull", "-q", "--plain-http", "--retries", "0"]).args(arguments);
    command.output().unwrap()
}

#[test]
fn credential_helpers_are_asked() {
    let place = Place::new("helper");
    let server = Server::start(sample(), Fault::Basic);
    let host = format!("127.0.0.1:{}", server.port);
    let answer = |secret: &str| {
        format!(
            "[ \"$1\" = get ] && read -r host; [ \"$host\" = {host} ] || exit 1; \
                 printf '{{\"Username\":\"me\",\"Secret\":\"{secret}\"}}'"
        )
    };
    std::fs::create_dir_all(place.join("home/.docker")).unwrap();
    for (key, value) in
        [("credHelpers", format!("{{\"{host}\":\"test\"}}")), ("credsStore", "\"test\"".into())]
    {
        std::fs::write(place.join("home/.docker/config.json"), format!("{{\"{key}\":{value}}}")).unwrap();
        let path = program(&place, "docker-credential-test", &answer("wrong"));
        let refused = pull_with(&place, &[("PATH", &path)], &["--no-cache", &server.name(), "b"]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("rt login"), "{key}: {refused:?}");
        let umask = place.join("umask");
        program(
            &place,
            "docker-credential-test",
            &format!("umask >{}\n{}", umask.display(), answer("secret")),
        );
        let output = pull_with(&place, &[("PATH", &path)], &["--force", &server.name(), "b"]);
        assert!(output.status.success(), "{key}: {output:?}");
        is_right(&place);
        let own = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
        assert_eq!(std::fs::read(umask).unwrap(), own, "what a helper writes is not open to everybody");
    }
    // One that is not installed is named.
    let output = pull_with(&place, &[], &["--no-cache", &server.name(), "c"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("docker-credential-test"), "{output:?}");
}

#[test]
fn identity_tokens_are_exchanged() {
    let place = Place::new("identity");
    let server = Server::start(sample(), Fault::Identity("s%2Bt"));
    let auth = |token: &str| {
        let text = format!(r#"{{"auths":{{"127.0.0.1:{}":{{"identitytoken":"{token}"}}}}}}"#, server.port);
        std::fs::write(place.join("auth.json"), text).unwrap();
    };
    auth("other");
    let said = place.bad(&["pull", "--plain-http", "--authfile", "auth.json", &server.name(), "b"]);
    assert!(said.contains("token server") && said.contains("rt login"), "{said}");
    auth("s+t");
    place.good(&["pull", "--plain-http", "--authfile", "auth.json", &server.name(), "b"]);
    is_right(&place);
}

/// A token server may move within its host, and may not pass an identity token on to another.
#[test]
fn identity_tokens_stay_at_their_host() {
    let place = Place::new("moved");
    let elsewhere = Server::start(sample(), Fault::None);
    let pull = |fault: Fault| {
        let server = Server::start(sample(), fault);
        let text = format!(r#"{{"auths":{{"127.0.0.1:{}":{{"identitytoken":"s"}}}}}}"#, server.port);
        std::fs::write(place.join("auth.json"), text).unwrap();
        let output = pull_with(&place, &[], &["--authfile", "auth.json", &server.name(), "b"]);
        (output, server.count("POST /token"))
    };
    let (output, asked) = pull(Fault::IdentityMoved("s", elsewhere.port));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && asked == 1 && said.contains("/token: redirects to http://"),
        "{said}"
    );
    assert_eq!(elsewhere.log.lock().unwrap().requests, [""; 0]);
    let (output, asked) = pull(Fault::IdentityMoved("s", 0));
    assert!(output.status.success() && asked >= 2, "{output:?}");
    is_right(&place);
}

#[test]
fn proxies_are_those_of_the_environment() {
    let place = Place::new("proxy");
    let server = Server::start(sample(), Fault::None);
    let proxy = format!("http://127.0.0.1:{}", server.port);
    // A host that only the proxy finds.
    let name = "registry.invalid/team/x:t";
    assert!(!pull_with(&place, &[], &[name, "b"]).status.success());
    let output = pull_with(&place, &[("http_proxy", &proxy), ("no_proxy", "invalid")], &[name, "b"]);
    assert!(!output.status.success(), "no_proxy was not heeded");
    let output = pull_with(&place, &[("HTTP_PROXY", &proxy)], &[name, "b"]);
    assert!(!output.status.success(), "HTTP_PROXY in capitals may be a request's header");
    assert_eq!(server.count("CONNECT"), 0);
    for variable in ["http_proxy", "ALL_PROXY"] {
        let output = pull_with(&place, &[(variable, &proxy)], &["--force", name, "b"]);
        assert!(output.status.success(), "{variable}: {output:?}");
        is_right(&place);
    }
    assert!(server.count("CONNECT registry.invalid:80") > 0);
    // One that takes no connections is told from a registry that takes none, without its password.
    let output = pull_with(&place, &[("ALL_PROXY", "http://me:secret@127.0.0.1:1")], &["--force", name, "b"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("asked through the proxy 127.0.0.1:1, which the environment names"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn an_index_gives_the_image_for_the_machine() {
    let place = Place::new("index");
    let image = |text: &str| Image::new(vec![Layer::default().file("which", text)]);
    let server = Server::start(
        Image::index(vec![
            ("unknown/unknown", image("attestation")),
            ("linux/arm64", image("arm64")),
            ("windows/amd64", image("windows")),
            ("linux/amd64", image("amd64")),
            ("linux/amd64/v2", image("amd64/v2")),
            ("linux/amd64/v9", image("amd64/v9")),
            ("linux/arm/v6", image("arm/v6")),
            ("linux/arm/v7", image("arm/v7")),
        ]),
        Fault::None,
    );
    let which = |flags: &[&str]| {
        let name = server.name();
        place.good(&[&["pull", "-q", "--plain-http", "--force", &name, "b"], flags].concat());
        std::fs::read_to_string(place.join("b/rootfs/which")).unwrap()
    };
    assert_eq!(which(&["--platform", "linux/arm64"]), "arm64");
    assert_eq!(which(&["--platform", "aarch64"]), "arm64");
    assert_eq!(which(&["--platform", "linux/arm"]), "arm/v6");
    assert_eq!(which(&["--platform", "linux/arm/v7"]), "arm/v7");
    assert_eq!(which(&["--platform", "linux/amd64/v1"]), "amd64");
    assert_eq!(which(&["--platform", "linux/amd64/v3"]), "amd64/v2");
    // Without a word it is the machine's own; the bundle that is here afterwards is that one.
    let (own, other) = match std::env::consts::ARCH {
        "aarch64" => ("arm64", "linux/amd64"),
        _ => ("amd64", "linux/arm64"),
    };
    assert!(which(&[]).starts_with(own));
    let said = place.bad(&["pull", "--plain-http", "--platform", "linux/s390x", &server.name(), "c"]);
    assert!(said.contains("linux/arm64") && !said.contains("unknown/unknown"), "{said}");
    // The bundle knows both digests, and what the tag stands for has not changed.
    let config = std::fs::read_to_string(place.join("b/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_ne!(config["annotations"]["rt.image.digest"], config["annotations"]["rt.image.resolved"]);
    let json = place.good(&["pull", "--plain-http", "--json", &server.name(), "b"]);
    assert!(json.contains("\"unchanged\":true"), "{json}");
    let said = place.bad(&["pull", "--plain-http", "--platform", other, &server.name(), "b"]);
    assert!(said.contains("another image"), "{said}");
}

/// What a pull of the server's image, which succeeds, shows on a terminal with so many columns.
fn pull_on_terminal(place: &Place, columns: u32, server: &Server) -> String {
    let pull = env!("CARGO_BIN_EXE_rt-pull");
    let line = format!("stty cols {columns}; {pull} pull --plain-http {} b", server.name());
    let output = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(place.join("."))
        .env("RT_CACHE", place.join("cache"))
        .env("TERM", "xterm")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_terminal_shows_bars() {
    if !super::have("script") {
        return;
    }
    let place = Place::new("bars");
    let server = Server::start(sample(), Fault::Slow(Duration::from_millis(60)));
    let text = pull_on_terminal(&place, 70, &server);
    assert!(text.contains("\x1b[2K") && text.contains("3/3 layers") && text.contains('#'), "{text:?}");
    let rows =
        text.lines().filter_map(|line| line.rsplit("\x1b[2K").next()).filter(|row| row.contains(" / "));
    assert!(rows.clone().count() > 3 && rows.clone().all(|row| row.trim_end().len() <= 70), "{text:?}");
    is_right(&place);
}

/// What is done again is said in a line that the bars leave alone, and what is unpacked has a bar of its own.
#[test]
fn bars_leave_what_is_said() {
    if !super::have("script") {
        return;
    }
    let place = Place::new("bars-notes");
    let big = Image::new(vec![Layer::default().file("big", noise(20_000_000, 3))]);
    let server = Server::start(big, Fault::Busy(503, 2));
    let text = pull_on_terminal(&place, 100, &server);
    assert!(
        text.contains("\x1b[2Kretrying in ") && text.contains("503 Service Unavailable)\r\n\x1b[2K"),
        "{text:?}"
    );
    let rows: Vec<_> = text.lines().filter_map(|line| line.rsplit("\x1b[2K").next()).collect();
    assert!(rows.iter().any(|row| row.starts_with("fetch ") || row.starts_with("unpack ")), "{text:?}");
    assert!(rows.iter().any(|row| row.starts_with("1/1 layers")), "{text:?}");
}

/// Names below .invalid exist nowhere (RFC 6761). Where no name service answers, the error says that instead.
#[test]
fn a_name_that_does_not_exist_is_final() {
    let place = Place::new("no-such-host");
    let begun = std::time::Instant::now();
    let said = place.bad(&["pull", "registry.invalid/a", "x"]);
    if said.contains("no name service answers") {
        return eprintln!("skipped: no name service answers");
    }
    assert!(said.contains("no such host"), "{said}");
    assert!(!said.contains("retrying in"), "{said}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
