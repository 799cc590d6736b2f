//! Namespaces: new, joined by path, absent; names, sysctls, time offsets, mappings, network devices.

use crate::client::{Caller, RANGE, UID};
use crate::fixture::{Bundle, Ctx, namespace};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

tests! {
    EVERY { new_ones_differ_from_the_hosts }
    ALL { absent_ones_are_the_hosts, joined_by_path, the_callers_own_by_path, hostname_and_domainname, sysctls }
    BOTH {
        old_kernels_are_named,
        time_offsets, offsets_without_a_namespace_fail, duplicate_or_unknown_ones_fail, missing_path_fails,
        hostname_without_uts_fails, path_of_another_kind_fails, joined_with_new_ones, pid_namespace_by_path,
        cgroup_namespace_hides_the_path, init_is_pid_one, sysctl_of_the_host_fails, empty_path_is_a_new_one,
        loopback_of_a_new_network, host_pid_and_fresh_proc, mount_namespace_is_required, dead_path_fails,
        net_devices,
    }
    USER { one_id_is_mapped, own_user_namespace_as_config_says, two_ids_in_the_config, mapping_to_own_id }
    ROOT {
        root_without_cap_sys_admin,
        root_with_a_user_namespace, joined_user_namespace, mapping_of_a_range_as_root,
        net_devices_keep_what_they_had, net_devices_that_were_down_come_up, net_devices_refused,
        own_user_namespace_by_path,
    }
    NESTED { keep_id_leaves_root_unmapped, own_user_namespace_by_path, exhausted_limits_are_named, a_map_of_ids_that_are_not_there }
}

const KINDS: [(&str, &str); 7] = [
    ("pid", "pid"),
    ("network", "net"),
    ("ipc", "ipc"),
    ("uts", "uts"),
    ("mount", "mnt"),
    ("cgroup", "cgroup"),
    ("time", "time"),
];

fn own(name: &str) -> String {
    namespace(std::process::id() as i32, name)
}

fn new_ones_differ_from_the_hosts(ctx: &Ctx) {
    let bundle = KINDS.iter().fold(ctx.bundle(), |bundle, (kind, _)| bundle.namespace(kind, None));
    let all = ctx.run(&bundle.ops(&["ns"])).all();
    for (kind, name) in KINDS {
        assert_ne!(all[0][name], own(name), "{kind}");
    }
    assert_eq!(all[0]["user"] != own("user"), ctx.caller != Caller::Root);
}

fn absent_ones_are_the_hosts(ctx: &Ctx) {
    let bundle = crate::run::in_place(ctx.bundle());
    let bundle = ["ipc", "uts"].iter().fold(bundle, |bundle, kind| bundle.without_namespace(kind));
    let all = ctx.run(&bundle.unset("", "hostname").ops(&["ns"])).all();
    for name in ["pid", "net", "ipc", "uts", "cgroup", "time"] {
        assert_eq!(all[0][name], own(name), "{name}");
    }
}

fn mount_namespace_is_required(ctx: &Ctx) {
    // Without one there is no place to make a root: an error, or one is added; never mounts on the host.
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let out = ctx.run(&ctx.bundle().without_namespace("mount").ops(&["ns"]));
    if out.code == 0 {
        assert_ne!(out.line(0)["mnt"], own("mnt"));
    } else {
        out.failed(&["mount"]);
    }
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

fn joined_by_path(ctx: &Ctx) {
    // A pod: the second container joins the first one's network, IPC, UTS (and user) namespace.
    let first = ctx.started(&ctx.bundle().namespace("network", None).ops(&["pause"]));
    let path = |name: &str| format!("/proc/{}/ns/{name}", first.pid);
    let mut bundle = ctx.bundle().unset("", "hostname");
    for (kind, name) in [("network", "net"), ("ipc", "ipc"), ("uts", "uts")] {
        bundle = bundle.namespace(kind, Some(&path(name)));
    }
    if ctx.caller == Caller::User {
        bundle = bundle.namespace("user", Some(&path("user")));
        bundle = bundle.unset("/linux", "uidMappings").unset("/linux", "gidMappings");
    }
    let all = ctx.run(&bundle.ops(&["ns", "names"])).all();
    for name in ["net", "ipc", "uts"] {
        assert_eq!(all[0][name], namespace(first.pid, name), "{name}");
    }
    assert_ne!(all[0]["mnt"], namespace(first.pid, "mnt"));
    assert_ne!(all[0]["pid"], namespace(first.pid, "pid"));
    assert_eq!(all[1][0], "probe", "the first one's host name");
}

fn the_callers_own_by_path(ctx: &Ctx) {
    // What containerd's CRI plugin writes for a pod on the node's network. In a user namespace nobody may join
    // these, and nobody needs to.
    let mut bundle = ctx.bundle().unset("", "hostname");
    for (kind, file) in [("uts", "uts"), ("ipc", "ipc"), ("network", "net")] {
        bundle = bundle.namespace(kind, Some(&format!("/proc/self/ns/{file}")));
    }
    let container = ctx.started(&bundle.ops(&["ns", "pause"]));
    let (first, second) = (container.line(0), container.exec(&["ns"]).line(0));
    for file in ["uts", "ipc", "net"] {
        let own = namespace(std::process::id() as i32, file);
        assert_eq!((&first[file], &second[file]), (&json!(own), &json!(own)), "{file}");
    }
}

fn joined_with_new_ones(ctx: &Ctx) {
    // Host network given by path, everything else new: what `podman --network ns:/path` sends.
    if ctx.caller == Caller::User {
        // One's own network namespace belongs to the host's user namespace: the kernel refuses.
        let bundle = ctx.bundle().namespace("network", Some("/proc/self/ns/net"));
        let out = ctx.run(&bundle.ops(&["ns"]));
        if out.code != 0 {
            return out.failed(&["net"]);
        }
        return assert_eq!(out.line(0)["net"], own("net"));
    }
    let path = format!("/proc/{}/ns/net", std::process::id());
    let all = ctx.run(&ctx.bundle().namespace("network", Some(&path)).ops(&["ns"])).all();
    assert_eq!(all[0]["net"], own("net"));
    assert_ne!(all[0]["ipc"], own("ipc"));
}

fn pid_namespace_by_path(ctx: &Ctx) {
    let first = ctx.started(&ctx.bundle().ops(&["pause"]));
    let mut bundle = ctx.bundle().namespace("pid", Some(&format!("/proc/{}/ns/pid", first.pid)));
    if ctx.caller == Caller::User {
        bundle = bundle.namespace("user", Some(&format!("/proc/{}/ns/user", first.pid)));
        bundle = bundle.unset("/linux", "uidMappings").unset("/linux", "gidMappings");
    }
    let second = ctx.started(&bundle.ops(&["ns", "ps", "pause"]));
    assert_eq!(second.line(0)["pid"], namespace(first.pid, "pid"));
    let ps = second.line(1);
    assert_eq!((ps[0].clone(), ps.as_array().unwrap().len()), (json!(1), 2), "both containers: {ps}");
    // kill --all of the second leaves the first alone.
    ctx.rt(["kill", "--all", &second.id, "KILL"]).silent();
    second.reap();
    assert_eq!(first.status(), "running");
}

fn init_is_pid_one(ctx: &Ctx) {
    let all = ctx.run(&ctx.bundle().ops(&["pid"])).all();
    assert_eq!(all[0], json!({ "pid": 1, "ppid": 0 }));
}

fn empty_path_is_a_new_one(ctx: &Ctx) {
    let all = ctx.run(&ctx.bundle().namespace("ipc", Some("")).ops(&["ns"])).all();
    assert_ne!(all[0]["ipc"], own("ipc"));
}

fn missing_path_fails(ctx: &Ctx) {
    for kind in ["network", "pid", "ipc", "user"] {
        let bundle = ctx.bundle().namespace(kind, Some("/not/there"));
        ctx.run(&bundle).failed(&["/not/there"]);
    }
}

fn dead_path_fails(ctx: &Ctx) {
    let file = ctx.file("no-namespace", "x");
    let bundle = ctx.bundle().namespace("ipc", Some(file.to_str().unwrap()));
    ctx.run(&bundle).failed(&["no-namespace"]);
}

fn path_of_another_kind_fails(ctx: &Ctx) {
    let path = "/proc/self/ns/uts";
    let bundle = ctx.bundle().namespace("ipc", Some(path));
    ctx.run(&bundle).failed(&["ipc"]);
}

fn duplicate_or_unknown_ones_fail(ctx: &Ctx) {
    let bundle = ctx.bundle().push("/linux/namespaces", json!({ "type": "ipc" }));
    ctx.run(&bundle).failed(&["ipc"]);
    let bundle = ctx.bundle().push("/linux/namespaces", json!({ "type": "nonsense" }));
    ctx.run(&bundle).failed(&["nonsense"]);
}

fn hostname_and_domainname(ctx: &Ctx) {
    let bundle =
        ctx.bundle().with("/hostname", json!("node-1.cluster")).with("/domainname", json!("nis.example"));
    let all = ctx.run(&bundle.ops(&["names"])).all();
    assert_eq!(all[0], json!(["node-1.cluster", "nis.example"]));
    assert_ne!(crate::sys::names().unwrap().0, "node-1.cluster");
}

fn hostname_without_uts_fails(ctx: &Ctx) {
    // It would be the host's.
    let before = crate::sys::names().unwrap();
    let out = ctx.run(&ctx.bundle().without_namespace("uts").with("/hostname", json!("stolen")));
    out.failed(&["hostname"]);
    assert_eq!(crate::sys::names().unwrap(), before);
}

fn sysctls(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("network", None)
        .with(
            "/linux/sysctl",
            json!({ "net.ipv4.ip_unprivileged_port_start": "80", "kernel.msgmax": "4096",
            "net/ipv4/ping_group_range": "0 0" }),
        )
        .ops(&[
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
            "cat /proc/sys/kernel/msgmax",
            "cat /proc/sys/net/ipv4/ping_group_range",
        ]);
    let out = ctx.run(&bundle);
    assert_eq!(out.all(), [json!("80\n"), json!("4096\n"), json!("0\t0\n")], "{out:?}");
}

fn sysctl_of_the_host_fails(ctx: &Ctx) {
    // Without the namespace that would hold it, a sysctl would be the host's.
    let read = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    let before = read();
    let flipped = if before.trim() == "0" { "1" } else { "0" };
    let bundle = ctx.bundle().with("/linux/sysctl", json!({ "net.ipv4.ip_forward": flipped }));
    ctx.run(&bundle).failed(&["net.ipv4.ip_forward"]);
    let bundle = ctx.bundle().with("/linux/sysctl", json!({ "kernel.panic": "7" }));
    ctx.run(&bundle).failed(&["kernel.panic"]);
    let bundle = ctx.bundle().with("/linux/sysctl", json!({ "../../../etc/passwd": "x" }));
    ctx.run(&bundle).failed(&[]);
    let bundle =
        ctx.bundle().namespace("network", None).with("/linux/sysctl", json!({ "net.not.there": "1" }));
    ctx.run(&bundle).failed(&["not", "there"]);
    assert_eq!(read(), before);
}

fn time_offsets(ctx: &Ctx) {
    let offsets = json!({ "monotonic": { "secs": 100_000, "nanosecs": 0 }, "boottime": { "secs": 200_000 } });
    let bundle = ctx.bundle().namespace("time", None).with("/linux/timeOffsets", offsets);
    let before =
        (crate::sys::clock(libc::CLOCK_MONOTONIC).unwrap(), crate::sys::clock(libc::CLOCK_BOOTTIME).unwrap());
    let monotonic = format!("clock {}", libc::CLOCK_MONOTONIC);
    let boottime = format!("clock {}", libc::CLOCK_BOOTTIME);
    let container = ctx.started(&bundle.ops(&[&monotonic, &boottime, "pause"]));
    let close = |value: Value, expected: i64| {
        let value = value.as_i64().unwrap();
        assert!((expected..expected + 60).contains(&value), "{value} is not about {expected}");
    };
    close(container.line(0), before.0 + 100_000);
    close(container.line(1), before.1 + 200_000);
    // exec sees the same clocks.
    close(container.exec(&[&monotonic]).all().remove(0), before.0 + 100_000);
}

fn offsets_without_a_namespace_fail(ctx: &Ctx) {
    let offsets = json!({ "monotonic": { "secs": 100 } });
    ctx.run(&ctx.bundle().with("/linux/timeOffsets", offsets)).failed(&["time"]);
}

fn cgroup_namespace_hides_the_path(ctx: &Ctx) {
    let all = ctx.run(&ctx.bundle().namespace("cgroup", None).ops(&["cat /proc/self/cgroup"])).all();
    for line in all[0].as_str().unwrap().lines() {
        assert!(line.ends_with(":/"), "{line}");
    }
}

fn loopback_of_a_new_network(ctx: &Ctx) {
    // runc and crun bring lo up; nothing else is there.
    let bundle = ctx.bundle().namespace("network", None).mount("/sys", "sysfs", "sysfs", &["ro"]);
    let all = ctx.run(&bundle.ops(&["ls /sys/class/net", "cat /sys/class/net/lo/flags"])).all();
    assert!(all[0].as_array().unwrap().contains(&json!("lo")), "{all:?}");
    let flags = u32::from_str_radix(all[1].as_str().unwrap().trim().trim_start_matches("0x"), 16).unwrap();
    assert_eq!(flags & 1, 1, "lo is up");
}

fn host_pid_and_fresh_proc(ctx: &Ctx) {
    // A fresh proc with the host's pid namespace: the kernel refuses it to users, who get the host's.
    let bundle = ctx.bundle().without_namespace("pid").ops(&["stat /proc/self/exe", "pid", "ps"]);
    let out = ctx.run(&bundle);
    let all = out.all();
    assert_eq!(all[0]["kind"], "file", "{out:?}");
    assert!(all[2].as_array().unwrap().contains(&all[1]["pid"]));
}

fn one_id_is_mapped(ctx: &Ctx) {
    let all = ctx
        .run(&ctx.bundle().ops(&[
            "cat /proc/self/uid_map",
            "cat /proc/self/gid_map",
            "cat /proc/self/setgroups",
            "setgroups 0",
            "id",
        ]))
        .all();
    let (uid, gid) = ctx.caller.host_ids();
    let map = |value: &Value| -> Vec<u32> {
        value.as_str().unwrap().split_whitespace().map(|w| w.parse().unwrap()).collect()
    };
    assert_eq!((map(&all[0]), map(&all[1])), (vec![0, uid, 1], vec![0, gid, 1]));
    assert_eq!(all[2], "deny\n");
    assert_eq!(all[3], crate::fixture::errno(libc::EPERM));
    assert_eq!(all[4]["uid"], json!([0, 0, 0]));
}

fn own_user_namespace_as_config_says(ctx: &Ctx) {
    // The config's one id, whatever it is, is the caller.
    let (uid, gid) = ctx.caller.host_ids();
    let bundle = ctx
        .bundle()
        .with("/linux/uidMappings", json!([{ "containerID": 1234, "hostID": uid, "size": 1 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 4321, "hostID": gid, "size": 1 }]))
        .with("/process/user", json!({ "uid": 1234, "gid": 4321 }));
    let data = ctx.mkdir("data");
    let bundle = bundle.mount("/mnt", "bind", data.to_str().unwrap(), &["bind"]);
    let all = ctx.run(&bundle.ops(&["id", "write /mnt/x y", "stat /mnt/x"])).all();
    assert_eq!((&all[0]["uid"], &all[0]["gid"]), (&json!([1234, 1234, 1234]), &json!([4321, 4321, 4321])));
    assert_eq!((&all[2]["uid"], &all[2]["gid"]), (&json!(1234), &json!(4321)));
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(data.join("x")).unwrap().uid(), uid);
}

fn mapping_to_own_id(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/user", json!({ "uid": 0, "gid": 0 })).ops(&["id"]);
    let out = ctx.run_with(&bundle, &["--user-map", "caller"]);
    let (uid, gid) = ctx.caller.host_ids();
    assert_eq!((&out.line(0)["uid"][0], &out.line(0)["gid"][0]), (&json!(uid), &json!(gid)), "{out:?}");
}

fn two_ids_in_the_config(ctx: &Ctx) {
    // Subuids that the caller has not: the one that the process's user is in is kept.
    let (uid, gid) = ctx.caller.host_ids();
    let bundle = ctx
        .bundle()
        .with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": uid, "size": 1 }, { "containerID": 1, "hostID": 100_000, "size": 65_536 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 0, "hostID": gid, "size": 1 }, { "containerID": 1, "hostID": 100_000, "size": 65_536 }]));
    let all = ctx.run(&bundle.ops(&["id", "cat /proc/self/uid_map"])).all();
    assert_eq!(all[0]["uid"][0], 0);
    assert_eq!(all[1].as_str().unwrap().lines().count(), 1, "{}", all[1]);
}

fn root_with_a_user_namespace(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": UID, "size": 1 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 0, "hostID": UID, "size": 1 }]));
    let container = ctx.started(&bundle.ops(&["id", "stat /proc/self/status", "pause"]));
    assert_eq!(container.line(0)["uid"], json!([0, 0, 0]));
    use std::os::unix::fs::MetadataExt;
    let owner = fs::metadata(format!("/proc/{}/root/proc", container.pid));
    assert!(owner.is_ok());
    let status = fs::read_to_string(format!("/proc/{}/status", container.pid)).unwrap();
    assert!(status.contains(&format!("Uid:\t{UID}\t{UID}")), "{status}");
    let _ = owner.map(|m| m.uid());
    container.end();
}

fn mapping_of_a_range_as_root(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]))
        .with("/process/user", json!({ "uid": 1000, "gid": 1000, "additionalGids": [5, 6] }))
        .ops(&["id", "cat /proc/self/uid_map"]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[0], json!({ "uid": [1000, 1000, 1000], "gid": [1000, 1000, 1000], "groups": [5, 6] }));
    let map: Vec<_> = all[1].as_str().unwrap().split_whitespace().map(String::from).collect();
    assert_eq!(map, ["0", &RANGE.1.to_string(), &RANGE.2.to_string()]);
}

fn joined_user_namespace(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]));
    let first = ctx.started(&bundle.ops(&["pause"]));
    let bundle = ctx.bundle().namespace("user", Some(&format!("/proc/{}/ns/user", first.pid)));
    let all = ctx.run(&bundle.ops(&["ns", "id"])).all();
    assert_eq!(all[0]["user"], namespace(first.pid, "user"));
    assert_eq!(all[1]["uid"], json!([0, 0, 0]));
    first.end();
}

fn own_user_namespace_by_path(ctx: &Ctx) {
    // podman's `--userns container:x`, where x has the user namespace that podman is in: setns(2) refuses that.
    let client = if ctx.caller == Caller::Root { std::process::id() as i32 } else { ctx.client_pid() };
    let bundle = ctx.bundle().namespace("user", Some(&format!("/proc/{client}/ns/user")));
    let container = ctx.started(&bundle.ops(&["ns", "id", "pause"]));
    assert_eq!(container.line(0)["user"], namespace(client, "user"));
    assert_eq!(container.line(1)["uid"], json!([0, 0, 0]));
    assert_eq!(container.exec(&["ns"]).line(0)["user"], namespace(client, "user"));
    container.end();
}

fn keep_id_leaves_root_unmapped(ctx: &Ctx) {
    // podman 5.8 --userns=keep-id with no subuids: exactly one line, and it is not root's.
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", json!([{ "containerID": 1101, "hostID": 0, "size": 1 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 1101, "hostID": 0, "size": 1 }]))
        .with("/process/user", json!({ "uid": 1101, "gid": 1101 }));
    // Its default sysctls name group 0, which does not exist then.
    let bundle = bundle
        .namespace("network", None)
        .with("/linux/sysctl", json!({ "net.ipv4.ping_group_range": "0 0" }))
        .ops(&["id", "pause"]);
    let container = ctx.started(&bundle);
    assert_eq!(container.line(0)["uid"], json!([1101, 1101, 1101]));
    assert_eq!(container.exec(&["id"]).all()[0]["uid"], json!([1101, 1101, 1101]));
    container.end();
}

fn net_devices(ctx: &Ctx) {
    // Moving a device needs one: absent it is a clear error, and nothing was made.
    let bundle = devices(ctx.bundle(), json!({ "not-there0": { "name": "eth0" } }));
    let wanted = if ctx.caller == Caller::Root { "\"not-there0\": no such device" } else { "\"not-there0\"" };
    ctx.run(&bundle).failed(&["network device", wanted]);
}

fn net_devices_keep_what_they_had(ctx: &Ctx) {
    for (name, mapped) in [("rttest0", false), ("rttest1", true)] {
        make_device(name);
        ip(&["link", "set", name, "address", "02:00:00:00:00:07", "mtu", "1400"]);
        ip(&["addr", "add", "10.9.8.7/24", "dev", name, "label", &format!("{name}:a")]);
        ip(&["addr", "add", "10.9.9.1", "peer", "10.9.9.2/31", "dev", name]);
        ip(&["addr", "add", "fd00::7/64", "dev", name]);
        ip(&["link", "set", name, "up"]);
        // Neither permanent nor global: these stay behind.
        ip(&["addr", "add", "10.9.7.7/24", "dev", name, "valid_lft", "900", "preferred_lft", "900"]);
        ip(&["addr", "add", "169.254.1.1/16", "scope", "link", "dev", name]);
        let mut bundle = devices(ctx.bundle(), json!({ name: { "name": "moved0" } }));
        if mapped {
            let range = json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]);
            bundle = bundle.namespace("user", None);
            bundle = bundle.with("/linux/uidMappings", range.clone()).with("/linux/gidMappings", range);
        }
        let container = ctx.started(&bundle.ops(&["ns", "pause"]));
        assert_eq!(container.line(0)["net"], namespace(container.pid, "net"));
        assert!(!has_device(name), "{name} is still outside");
        let moved = &inside(container.pid, "moved0")[0];
        assert_eq!(moved["address"], "02:00:00:00:00:07");
        assert_eq!(moved["mtu"], 1400);
        assert!(moved["flags"].as_array().unwrap().contains(&json!("UP")), "{moved}");
        let addresses: Vec<_> = moved["addr_info"].as_array().unwrap().iter().collect();
        let find = |local: &str| addresses.iter().find(|a| a["local"] == local);
        let v4 = find("10.9.8.7").unwrap_or_else(|| panic!("{moved}"));
        assert_eq!((&v4["prefixlen"], &v4["label"]), (&json!(24), &json!("moved0:a")), "{v4}");
        let peer = find("10.9.9.1").unwrap_or_else(|| panic!("{moved}"));
        assert_eq!((&peer["prefixlen"], &peer["address"]), (&json!(31), &json!("10.9.9.2")), "{peer}");
        assert_eq!(peer["label"], "moved0");
        let v6 = find("fd00::7").unwrap_or_else(|| panic!("{moved}"));
        assert_eq!((&v6["prefixlen"], &v6["scope"]), (&json!(64), &json!("global")), "{v6}");
        assert_eq!((find("10.9.7.7"), find("169.254.1.1")), (None, None), "{moved}");
        container.end();
    }
}

fn net_devices_that_were_down_come_up(ctx: &Ctx) {
    make_device("rttest0");
    let bundle = devices(ctx.bundle(), json!({ "rttest0": { "name": "eth%d" } }));
    let container = ctx.started(&bundle.ops(&["ns", "pause"]));
    let moved = &inside(container.pid, "eth0")[0];
    assert!(moved["flags"].as_array().unwrap().contains(&json!("UP")), "{moved}");
    container.end();
}

fn net_devices_refused(ctx: &Ctx) {
    make_device("rttest0");
    let long = "a".repeat(16);
    for (name, wanted, texts) in [
        ("rttest0", "lo", ["\"lo\"", "already"]),
        ("rttest0", long.as_str(), [long.as_str(), "longer than 15"]),
        ("rttest0", "a/b", ["\"a/b\"", "cannot be"]),
        ("lo", "lo1", ["move it into the container as \"lo1\"", "invalid argument"]),
    ] {
        let out = ctx.run(&devices(ctx.bundle(), json!({ name: { "name": wanted } })));
        out.failed(&[&format!("network device \"{name}\": ")]);
        out.failed(&texts);
        assert!(has_device(name), "{name} was moved all the same");
    }
}

fn devices(bundle: Bundle, devices: Value) -> Bundle {
    bundle.namespace("network", None).with("/linux/netDevices", devices)
}

/// A device to move, in a network namespace of this test's own.
fn make_device(name: &str) {
    sys::unshare(libc::CLONE_NEWNET).expect("a network namespace");
    // Not every kernel has both kinds.
    let add = |rest: &[&str]| {
        let out = Command::new("ip").args(["link", "add", name, "type"]).args(rest).output();
        out.is_ok_and(|out| out.status.success())
    };
    if !add(&["veth", "peer", "name", "rtpeer"]) && !add(&["dummy"]) {
        skip!("no ip(8) (iproute2), or a kernel with neither veth nor dummy devices");
    }
}

fn ip(args: &[&str]) {
    let out = Command::new("ip").args(args).output().unwrap();
    assert!(out.status.success(), "ip {args:?}: {out:?}");
}

fn has_device(name: &str) -> bool {
    Command::new("ip").args(["link", "show", "dev", name]).output().unwrap().status.success()
}

/// What ip(8) says about a device in the network namespace of `pid`.
fn inside(pid: i32, name: &str) -> Value {
    let net = format!("--net=/proc/{pid}/ns/net");
    let out =
        Command::new("nsenter").args([&net, "ip", "-json", "addr", "show", "dev", name]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn exhausted_limits_are_named(ctx: &Ctx) {
    // The limits are the client's user namespace's own.
    let limit = |kind: &str, value: u32| {
        let script = format!("echo {value} >/proc/sys/user/max_{kind}_namespaces");
        ctx.command("/bin/sh").args(["-c", &script]).silent();
    };
    let bundle = ctx.bundle();
    for kind in ["uts", "ipc", "mnt"] {
        limit(kind, 0);
        let create = |command: &str| ctx.rt([command, "--bundle"]).arg(&bundle.dir).arg(ctx.id());
        for command in ["run", "create"] {
            create(command)
                .fails(&["no space left on device", &format!("sysctl -w user.max_{kind}_namespaces=15000")]);
        }
        limit(kind, 10000);
    }
    assert_eq!(ctx.run(&bundle.ops(&["exit 0"])).code, 0);
}

fn a_map_of_ids_that_are_not_there(ctx: &Ctx) {
    let ids = json!([{ "containerID": 0, "hostID": 100000, "size": 10 }]);
    let bundle = ctx.bundle().namespace("user", None);
    let bundle = bundle.with("/linux/uidMappings", ids.clone()).with("/linux/gidMappings", ids);
    ctx.run(&bundle)
        .failed(&["linux.uidMappings: uid 100000", "does not exist in this user namespace (its ids are 0)"]);
}

/// As in an ordinary container, where root has no CAP_SYS_ADMIN: what a plain user can do works.
fn root_without_cap_sys_admin(ctx: &Ctx) {
    let rt = |args: &[&str]| {
        let state = ctx.state.to_str().unwrap();
        let command = ctx.command("setpriv").args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
        command.arg(ctx.rt_path()).args(["--root", state]).args(args)
    };
    let bundle = ctx.bundle().ops(&["id", "cat /proc/self/uid_map", "pid"]);
    let out = rt(&["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]).run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
    let all = out.all();
    let map: Vec<&str> = all[1].as_str().unwrap().split_ascii_whitespace().collect();
    assert_eq!(map, ["0", "0", "1"]);
    assert_eq!(all[2]["pid"], 1);
    let bundle = ctx.bundle().ops(&["pause"]);
    let id = ctx.id();
    rt(&["run", "--detach", "--bundle", bundle.dir.to_str().unwrap(), &id]).ok();
    let out = rt(&["exec", &id, "/probe", "say inside"]).run();
    assert_eq!((out.code, out.stdout.as_str()), (0, "\"inside\"\n"), "{out:?}");
    rt(&["delete", "--force", &id]).silent();
}

fn old_kernels_are_named(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("tmpfs", "tmpfs", "/mnt", &["size=nonsense"]);
    let id = ctx.id();
    let (state, dir) = (ctx.state.to_str().unwrap(), bundle.dir.to_str().unwrap());
    // The personality that lets the kernel say it were 2.6.
    let old = ctx.command("setarch").args(["--uname-2.6"]).arg(ctx.rt_path());
    old.args(["--root", state, "run", "--bundle", dir, &id]).fails(&["(rt needs Linux 5.14, this is 2.6)"]);
    let out = ctx.rt(["run", "--bundle", dir, &id]).run();
    assert!(out.code == 1 && !out.stderr.contains("needs Linux"), "{out:?}");
}
