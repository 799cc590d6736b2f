//! Host files in a root that root inside may write: copied, so that package managers can replace them, and left alone
//! once somebody has.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, errno};
use crate::runner::tests;
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

tests! {
    USER {
        what_somebody_wrote_stays, what_the_image_had_is_replaced, nothing_leads_out_of_the_root,
        a_copied_bundle_knows_its_copies, record_of_somebody_else, starts_at_the_same_time, others_than_root_get_binds,
    }
    NESTED { what_somebody_wrote_stays }
    EVERY { host_files_can_be_replaced, read_only_roots_get_binds }
}

/// A file of the host, which the containers have at its own place.
struct HostFile {
    path: PathBuf,
}

impl HostFile {
    fn new(ctx: &Ctx, text: &str) -> HostFile {
        ctx.mkdir("host");
        HostFile { path: ctx.file("host/file", text) }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// A bundle as `rt pull --writable --user-map root` makes one, with an empty file as the place of this one.
    fn bundle(&self, ctx: &Ctx) -> Bundle {
        let bundle = ctx.bundle().mount(self.path(), "bind", self.path(), &["bind", "ro", "nosuid", "nodev"]);
        let bundle = bundle.with(
            "/annotations",
            json!({ "rt.user": "root", "rt.mounts.copied": format!("/x,{}", self.path()) }),
        );
        fs::create_dir_all(self.inside(&bundle).parent().unwrap()).unwrap();
        fs::write(self.inside(&bundle), "").unwrap();
        ctx.give(&bundle.rootfs());
        bundle
    }

    /// Its place in the root of a bundle, as the host sees it.
    fn inside(&self, bundle: &Bundle) -> PathBuf {
        bundle.rootfs().join(self.path().trim_start_matches('/'))
    }

    /// Makes its place in the root of `bundle` a link.
    fn link(&self, ctx: &Ctx, bundle: &Bundle, target: &str) {
        let place = self.inside(bundle);
        fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink(target, &place).unwrap();
        ctx.give_link(&place);
    }

    /// The file in the bundle after one more start.
    fn started(&self, ctx: &Ctx, bundle: &Bundle) -> String {
        let out = ctx.run(bundle);
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        fs::read_to_string(self.inside(bundle)).unwrap()
    }
}

fn record(bundle: &Bundle) -> String {
    fs::read_to_string(bundle.dir.join("host-files")).unwrap_or_default()
}

/// The names beside the file: no draft may be left.
fn neighbours(file: &HostFile, bundle: &Bundle) -> usize {
    fs::read_dir(file.inside(bundle).parent().unwrap()).unwrap().count()
}

fn host_files_can_be_replaced(ctx: &Ctx) {
    let file = HostFile::new(ctx, "the host's\n");
    let at = file.path();
    let new = format!("{at}.new");
    let operations = [
        format!("cat {at}"),
        format!("write {new} package's"),
        format!("rename {new} {at}"),
        format!("cat {at}"),
        format!("rm {at}"),
        format!("exists {at}"),
    ];
    let bundle = file.bundle(ctx).ops(&operations.each_ref().map(String::as_str));
    let all = ctx.run(&bundle).all();
    assert_eq!(all[..4], [json!("the host's\n"), Value::Null, Value::Null, json!("package's")]);
    assert_eq!(all[4..], [Value::Null, json!(false)]);
    assert_eq!(fs::read_to_string(&file.path).unwrap(), "the host's\n");
    let bundle = bundle.ops(&["ready"]);
    assert_eq!(file.started(ctx, &bundle), "the host's\n", "what is missing is copied again");
    let made = fs::metadata(file.inside(&bundle)).unwrap();
    assert_eq!(
        (made.mode() & 0o7777, made.uid(), made.gid()),
        (0o644, ctx.caller.host_ids().0, ctx.caller.host_ids().1)
    );
    assert_eq!(neighbours(&file, &bundle), 1);
}

fn what_somebody_wrote_stays(ctx: &Ctx) {
    let file = HostFile::new(ctx, "one");
    let bundle = file.bundle(ctx).ops(&["ready"]);
    assert_eq!(file.started(ctx, &bundle), "one");
    let before = fs::metadata(file.inside(&bundle)).unwrap().ino();
    assert_eq!(file.started(ctx, &bundle), "one");
    assert_eq!(fs::metadata(file.inside(&bundle)).unwrap().ino(), before, "nothing is written without need");
    // The host's changes arrive, back to an earlier state too.
    for text in ["two", "three", "one"] {
        fs::write(&file.path, text).unwrap();
        assert_eq!(file.started(ctx, &bundle), text);
    }
    assert_eq!(record(&bundle).lines().count(), 3, "a line for each content");
    // Changed in place, which keeps the inode.
    fs::write(file.inside(&bundle), "somebody's").unwrap();
    assert_eq!(file.started(ctx, &bundle), "somebody's");
    fs::write(file.inside(&bundle), "").unwrap();
    assert_eq!(file.started(ctx, &bundle), "one", "an empty file is nobody's");
    // A directory in its place cannot be replaced, and nothing can be mounted on it.
    fs::remove_file(file.inside(&bundle)).unwrap();
    fs::create_dir(file.inside(&bundle)).unwrap();
    assert_eq!(ctx.run(&bundle).code, 0);
    assert!(file.inside(&bundle).is_dir());
}

fn a_copied_bundle_knows_its_copies(ctx: &Ctx) {
    let file = HostFile::new(ctx, "one");
    let bundle = file.bundle(ctx).ops(&["ready"]);
    file.started(ctx, &bundle);
    let copy = ctx.bundle();
    fs::remove_dir_all(&copy.dir).unwrap();
    let cp = std::process::Command::new("cp").arg("-r").args([&bundle.dir, &copy.dir]).status().unwrap();
    assert!(cp.success());
    ctx.give(&copy.dir);
    fs::write(&file.path, "two").unwrap();
    assert_eq!(file.started(ctx, &copy), "two");
}

fn what_the_image_had_is_replaced(ctx: &Ctx) {
    let file = HostFile::new(ctx, "host");
    let bundle = file.bundle(ctx).ops(&["ready"]);
    // Without a record nobody knows whose a file is. `rt pull` records what it finds.
    fs::write(file.inside(&bundle), "image").unwrap();
    assert_eq!(file.started(ctx, &bundle), "image");
    fs::write(bundle.dir.join("host-files"), rt_spec::host_files::line(&file.path, b"image")).unwrap();
    ctx.give(&bundle.dir.join("host-files"));
    assert_eq!(file.started(ctx, &bundle), "host");
    // A link that leads nowhere.
    file.link(ctx, &bundle, "/run/not/there");
    assert_eq!(file.started(ctx, &bundle), "host");
    assert!(!file.inside(&bundle).is_symlink());
    // A link to a zone of the image's, and one that was set since.
    let bundle = file.bundle(ctx).ops(&["ready"]);
    fs::create_dir_all(bundle.rootfs().join("usr/share/zoneinfo")).unwrap();
    let zone = bundle.file("usr/share/zoneinfo/UTC", "zone");
    file.link(ctx, &bundle, "/usr/share/zoneinfo/UTC");
    file.started(ctx, &bundle);
    assert!(!file.inside(&bundle).is_symlink(), "the image's");
    file.link(ctx, &bundle, "/usr/share/zoneinfo/UTC");
    assert_eq!(ctx.run(&bundle).code, 0);
    assert!(file.inside(&bundle).is_symlink(), "set since");
    assert_eq!(fs::read_to_string(zone).unwrap(), "zone");
}

fn nothing_leads_out_of_the_root(ctx: &Ctx) {
    let file = HostFile::new(ctx, "host");
    ctx.mkdir("outside");
    let outside = ctx.file("outside/file", "outside");
    // The file itself is a link to one of the host's, and so is the directory that it is in.
    let bundle = file.bundle(ctx).ops(&["ready"]);
    file.link(ctx, &bundle, outside.to_str().unwrap());
    ctx.run(&bundle);
    let bundle = file.bundle(ctx).ops(&["ready"]);
    let dir = file.inside(&bundle).parent().unwrap().to_owned();
    fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(ctx.path("outside"), &dir).unwrap();
    ctx.give_link(&dir);
    ctx.run(&bundle);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    assert_eq!(fs::read_dir(ctx.path("outside")).unwrap().count(), 1);
    // A fifo in its place is not waited for.
    let bundle = file.bundle(ctx).ops(&["ready"]);
    fs::remove_file(file.inside(&bundle)).unwrap();
    sys::mknod(file.inside(&bundle).to_str().unwrap(), libc::S_IFIFO | 0o644, 0, 0).unwrap();
    assert_eq!(ctx.run(&bundle).code, 0);
}

fn record_of_somebody_else(ctx: &Ctx) {
    let file = HostFile::new(ctx, "host");
    let at = file.path();
    // The record is another name of a file that the caller may write.
    let victim = ctx.file("victim", "victim");
    for hard in [true, false] {
        let bundle = file.bundle(ctx).ops(&[&format!("cat {at}"), &format!("rm {at}")]);
        let record = bundle.dir.join("host-files");
        if hard {
            fs::hard_link(&victim, &record).unwrap();
        } else {
            std::os::unix::fs::symlink(&victim, &record).unwrap();
        }
        assert_eq!(ctx.run(&bundle).all(), [json!("host"), errno(libc::EBUSY)], "bound instead");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
    }
    // No record can be made, since the bundle's directory is somebody else's.
    if !Caller::tests_are_root() {
        return;
    }
    let bundle = file.bundle(ctx).ops(&[&format!("cat {at}"), &format!("rm {at}")]);
    sys::chown(&bundle.dir, 0, 0).unwrap();
    assert_eq!(ctx.run(&bundle).all(), [json!("host"), errno(libc::EBUSY)], "bound instead");
    assert_eq!(fs::read_to_string(file.inside(&bundle)).unwrap(), "");
}

fn starts_at_the_same_time(ctx: &Ctx) {
    let file = HostFile::new(ctx, "host");
    let bundle = file.bundle(ctx).ops(&[&format!("cat {}", file.path())]);
    for round in 0..5 {
        let text = format!("host {round}");
        fs::write(&file.path, &text).unwrap();
        let run = |_| ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
        let jobs: Vec<_> = (0..6).map(run).collect();
        for job in jobs {
            assert_eq!(job.wait().all(), [json!(text)]);
        }
        assert_eq!(neighbours(&file, &bundle), 1, "no draft is left");
    }
    for line in record(&bundle).lines() {
        assert!(line.ends_with(&format!(" 6 {}", file.path())), "{line:?}");
    }
}

fn read_only_roots_get_binds(ctx: &Ctx) {
    let file = HostFile::new(ctx, "host");
    let at = file.path();
    let bundle = file.bundle(ctx).with("/root/readonly", json!(true));
    let bundle = bundle.ops(&[&format!("cat {at}"), &format!("write {at} x")]);
    assert_eq!(ctx.run(&bundle).all(), [json!("host"), errno(libc::EROFS)]);
    assert_eq!((fs::read_to_string(file.inside(&bundle)).unwrap(), record(&bundle)), Default::default());
}

fn others_than_root_get_binds(ctx: &Ctx) {
    // Containers of one bundle on several nodes at a time see their own node's file.
    let file = HostFile::new(ctx, "host");
    let bundle = file.bundle(ctx).with("/annotations/rt.user", json!("caller"));
    let bundle = bundle.ops(&[&format!("cat {}", file.path()), &format!("rm {}", file.path())]);
    assert_eq!(ctx.run(&bundle).all(), [json!("host"), errno(libc::EBUSY)]);
    // A bind that may be written to is one in any case.
    let bundle = file.bundle(ctx).without_mount(file.path());
    let bundle = bundle.mount(file.path(), "bind", file.path(), &["bind"]);
    let bundle = bundle.ops(&[&format!("write {} x", file.path())]);
    assert_eq!(ctx.run(&bundle).all(), [Value::Null]);
    assert_eq!(fs::read_to_string(&file.path).unwrap(), "x");
}
