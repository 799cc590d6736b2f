//! What is done to a config without root (docs/adaptations.md): what one id can express is
//! honoured, the rest is adapted, and every adaptation is noted.

pub use super::user_map::{UserMap, parse_user_map};

use super::{Linux, Spec, annotations, mounts};
use oci_spec::runtime::{LinuxIdMapping, LinuxNamespaceType};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::Result;
use rt_sys::mount::Param;
use rt_sys::ns::{IdMap, IdMaps};
use rt_sys::{bail, err};
use std::path::Path;

/// The user namespace that the container gets, and what was adapted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Adapted {
    /// Maps of the new user namespace; `None` where the config makes no new one.
    pub maps: Option<IdMaps>,
    /// The uid of the process inside.
    pub uid: u32,
    /// The gid of the process inside.
    pub gid: u32,
    /// True where the process keeps the groups of the caller, because setgroups is denied.
    pub keep_groups: bool,
    /// The user namespace is one that exists already.
    pub joined: bool,
    /// Root was asked for in a new user namespace with one id: what it cannot do is answered with success, and what the
    /// user namespace lets it do it may do, unless the config lists capabilities.
    pub emulate_root: bool,
    /// What the config asked for and does not get, one line each.
    pub notes: Vec<String>,
}

/// Decides ids and user namespace of `spec` for `caller`.
#[inline(never)]
pub fn adapt(spec: &Spec, caller: &Caller, asked: Option<UserMap>) -> Result<Adapted> {
    let mut notes = Vec::new();
    let linux = spec.linux().as_ref();
    let user = spec.process().as_ref().map(|p| p.user());
    let one_id = caller.privilege == Privilege::NamespaceRoot
        && is_one_id(&caller.maps.uid)
        && is_one_id(&caller.maps.gid);
    let said = if asked.is_none() { annotations::user_map(spec)? } else { None };
    let mode = match asked.or(said) {
        Some(mode) => mode,
        None if one_id && asks_to_emulate_root() => UserMap::Root,
        None => UserMap::Config,
    };
    let emulate_root = one_id && mode == UserMap::Root;
    let (uid, gid) = match mode {
        UserMap::Caller => (caller.uid, caller.gid),
        UserMap::Root => (0, 0),
        UserMap::Config => user.map_or((0, 0), |u| (u.uid(), u.gid())),
    };
    if linux.is_some_and(|l| l.resources().is_some()) {
        notes.push("linux.resources is not applied: limits are the scheduler's".to_owned());
    }
    if linux.is_some_and(|l| l.cgroups_path().is_some()) {
        notes.push("linux.cgroupsPath is not applied: the container stays in the caller's cgroup".to_owned());
    }
    if linux.is_some_and(|l| l.intel_rdt().is_some()) {
        notes.push("linux.intelRdt is not applied".to_owned());
    }
    let namespace = linux
        .and_then(|l| l.namespaces().as_ref())
        .and_then(|list| list.iter().find(|n| n.typ() == LinuxNamespaceType::User));
    // Root of one id has no groups to choose from. Where an image can have asked, the groups are those of the config.
    let is_images = said.is_some() && annotations::may_be_the_images(spec);
    let keeps_groups = annotations::keeps_groups(spec, caller.privilege == Privilege::NamespaceRoot);
    let keep_groups = keeps_groups || emulate_root && !is_images;
    let joined = namespace.is_some_and(|n| n.path().as_ref().is_some_and(|p| !p.as_os_str().is_empty()));
    if joined {
        return Ok(Adapted { uid, gid, keep_groups, joined, emulate_root, notes, ..Adapted::default() });
    }
    let groups = user.is_some_and(|u| u.additional_gids().as_ref().is_some_and(|g| !g.is_empty()));
    if caller.is_unprivileged() {
        if namespace.is_none() {
            notes.push("a user namespace is added".to_owned());
        }
        if let Some(linux) = linux {
            note_maps("uid", linux.uid_mappings(), uid, &mut notes);
            note_maps("gid", linux.gid_mappings(), gid, &mut notes);
        }
        if groups {
            notes.push("additionalGids are left out: the caller's groups are kept".to_owned());
        }
        let one = |container, host| vec![IdMap { container, host, size: 1 }];
        let maps = IdMaps { uid: one(uid, caller.uid), gid: one(gid, caller.gid) };
        let emulate_root = mode == UserMap::Root;
        return Ok(Adapted { maps: Some(maps), uid, gid, keep_groups: true, joined, emulate_root, notes });
    }
    if namespace.is_none() {
        if caller.privilege == Privilege::NamespaceRoot {
            require_mapped("uid", &caller.maps.uid, uid)?;
            require_mapped("gid", &caller.maps.gid, gid)?;
        }
        return Ok(Adapted { uid, gid, keep_groups, emulate_root, notes, ..Adapted::default() });
    }
    let maps = new_maps(linux, caller, (uid, gid), mode, &mut notes)?;
    let emulate_root = mode == UserMap::Root && is_one_id(&maps.uid) && is_one_id(&maps.gid);
    Ok(Adapted { maps: Some(maps), uid, gid, keep_groups, emulate_root, notes, ..Adapted::default() })
}

/// The maps of a new user namespace of a caller who is root of one, as the config has them or one id needs them. The
/// program's ids in it are `(uid, gid)`.
fn new_maps(
    linux: Option<&Linux>,
    caller: &Caller,
    (uid, gid): (u32, u32),
    mode: UserMap,
    notes: &mut Vec<String>,
) -> Result<IdMaps> {
    let convert = |maps: &Option<Vec<LinuxIdMapping>>, container: u32, host: u32| -> Vec<IdMap> {
        match maps.as_deref() {
            None | Some([]) => vec![IdMap { container, host, size: 1 }],
            Some(maps) => maps
                .iter()
                .map(|m| IdMap { container: m.container_id(), host: m.host_id(), size: m.size() })
                .collect(),
        }
    };
    let linux = linux.map(|l| (l.uid_mappings(), l.gid_mappings()));
    let none = (&None, &None);
    let (uids, gids) = linux.unwrap_or(none);
    let mut maps = IdMaps { uid: convert(uids, uid, caller.uid), gid: convert(gids, gid, caller.gid) };
    let own_ids = caller.privilege == Privilege::NamespaceRoot && mode != UserMap::Config;
    for (what, list, id, own, host) in [
        ("uid", &mut maps.uid, uid, &caller.maps.uid, caller.uid),
        ("gid", &mut maps.gid, gid, &caller.maps.gid, caller.gid),
    ] {
        let one = vec![IdMap { container: id, host, size: 1 }];
        // The one id that a config maps is that of whoever wrote it, as of whoever pulled a bundle. Where the caller is
        // asked for, it is another's here: that id may exist in the caller's user namespace and be somebody else's.
        if own_ids && is_one_id(list) {
            *list = one;
            continue;
        }
        let is_foreign = matches!(list[..], [IdMap { host, size: 1, .. }] if !IdMaps::has(own, host));
        if IdMaps::has(list, id) && !(is_foreign && is_one_id(own)) {
            continue;
        }
        if !is_one_id(own) {
            bail!("process {what} {id} is not mapped in the container's user namespace");
        }
        // Where the caller has one id, no other can be meant.
        *list = one;
        notes.push(format!("{what} mappings are reduced to {what} {id}, which is the caller"));
    }
    require_host_ids("uid", &maps.uid, &caller.maps.uid)?;
    require_host_ids("gid", &maps.gid, &caller.maps.gid)?;
    Ok(maps)
}

/// True where the variable asks for `rt.user: root`. It is for somebody who calls a client, such as podman: clients pass
/// variables on, and have no place for annotations of what they build.
fn asks_to_emulate_root() -> bool {
    std::env::var_os("RT_EMULATE_ROOT").is_some_and(|value| value == "1")
}

fn is_one_id(maps: &[IdMap]) -> bool {
    matches!(maps, [IdMap { size: 1, .. }])
}

/// Checks that the ids that a map names outside are in the caller's user namespace, those of each line in one range of it
/// (user_namespaces(7)). The kernel would only say EPERM.
fn require_host_ids(what: &str, maps: &[IdMap], own: &[IdMap]) -> Result<()> {
    for map in maps {
        let range = own.iter().find(|own| IdMaps::has(&[**own], map.host));
        // In 64 bits: a range may end with the last id, and the id after it does not fit into 32.
        let end = |first: u32, size: u32| u64::from(first) + u64::from(size);
        let there = range.map_or(map.host.into(), |range| end(range.container, range.size));
        if there < end(map.host, map.size) {
            return Err(err!(
                "config.json: linux.{what}Mappings: {what} {there}, of {} at hostID {}, does not exist in this user \
                 namespace",
                map.size,
                map.host
            )
            .hint(format!("its ids are {}", ranges(own))));
        }
    }
    Ok(())
}

/// The ids inside a user namespace as text, such as `0 1-65536`.
fn ranges(maps: &[IdMap]) -> String {
    let each = maps.iter().map(|map| match map.size {
        1 => map.container.to_string(),
        size => format!("{}-{}", map.container, u64::from(map.container) + u64::from(size) - 1),
    });
    each.collect::<Vec<_>>().join(" ")
}

fn require_mapped(what: &str, maps: &[IdMap], id: u32) -> Result<()> {
    if IdMaps::has(maps, id) {
        return Ok(());
    }
    let only = match maps {
        [IdMap { container, size: 1, .. }] => format!(", which has one id, {container}"),
        _ => String::new(),
    };
    Err(err!("process.user: {what} {id} does not exist in this user namespace{only}").hint(unmapped(what)))
}

/// The remedy for an id that a user namespace does not have.
pub fn unmapped(what: &str) -> String {
    format!(
        "run as 0, map it in a user namespace of the container's own, or ask the administrator for a range in /etc/sub{what}"
    )
}

fn note_maps(what: &str, maps: &Option<Vec<LinuxIdMapping>>, id: u32, notes: &mut Vec<String>) {
    let Some(maps) = maps.as_deref().filter(|m| !m.is_empty()) else { return };
    let inside = maps.iter().any(|m| id >= m.container_id() && id - m.container_id() < m.size());
    if maps.len() > 1 || maps[0].size() != 1 || !inside {
        notes.push(format!("{what} mappings are reduced to {what} {id}, which is the caller"));
    }
}

/// Leaves out `uid=` and `gid=` of ids that do not exist in the namespace with `maps`.
pub fn drop_unmapped(
    options: &mut mounts::Options,
    maps: &IdMaps,
    destination: &Path,
    notes: &mut Vec<String>,
) {
    options.data.retain(|param| {
        let Param::Value(key, value) = param else { return true };
        let list = match key.as_str() {
            "uid" => &maps.uid,
            "gid" => &maps.gid,
            _ => return true,
        };
        let keep = value.parse().is_ok_and(|id| IdMaps::has(list, id));
        if !keep {
            let at = destination.display();
            notes.push(format!("mount {at}: {key}={value} is left out: no such id inside"));
        }
        keep
    });
}

/// True where every id exists: the container stays in the initial user namespace.
pub fn all_ids(caller: &Caller, adapted: &Adapted) -> bool {
    caller.privilege == Privilege::Root && adapted.maps.is_none() && !adapted.joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32) -> Caller {
        let privilege = if uid == 0 { Privilege::Root } else { Privilege::Unprivileged };
        Caller { privilege, uid, gid: uid, maps: IdMaps::default() }
    }

    fn spec(json: &str) -> Spec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_root_config_becomes_one_mapping() {
        let spec = spec(
            r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":0,"gid":0,"additionalGids":[10]}},
                "linux":{"resources":{},"namespaces":[{"type":"mount"}]}}"#,
        );
        let adapted = adapt(&spec, &caller(1000), None).unwrap();
        let one = |host| vec![IdMap { container: 0, host, size: 1 }];
        assert_eq!(adapted.maps, Some(IdMaps { uid: one(1000), gid: one(1000) }));
        assert!(adapted.keep_groups);
        assert_eq!(adapted.notes.len(), 3, "{:?}", adapted.notes);
    }

    #[test]
    fn the_process_user_is_the_caller() {
        let json = r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":33,"gid":34}},
            "annotations":{"rt.user":"caller"},"linux":{"namespaces":[{"type":"mount"},{"type":"user"}],
            "uidMappings":[{"containerID":0,"hostID":100000,"size":65536}]}}"#;
        let adapted_config = adapt(&spec(json), &caller(1000), Some(UserMap::Config)).unwrap();
        assert_eq!(adapted_config.maps.unwrap().uid, [IdMap { container: 33, host: 1000, size: 1 }]);
        let adapted_caller = adapt(&spec(json), &caller(1000), None).unwrap();
        assert_eq!((adapted_caller.uid, adapted_caller.gid), (1000, 1000));
        let adapted_root = adapt(&spec(json), &caller(1000), Some(UserMap::Root)).unwrap();
        assert_eq!(adapted_root.uid, 0);
    }

    #[test]
    fn an_id_that_a_namespace_lacks() {
        let one = vec![IdMap { container: 0, host: 1000, size: 1 }];
        let caller = Caller {
            privilege: Privilege::NamespaceRoot,
            uid: 0,
            gid: 0,
            maps: IdMaps { uid: one.clone(), gid: one },
        };
        let adapt = |namespaces: &str, caller: &Caller| {
            let json = r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":33,"gid":0}},
                "linux":{"namespaces":[NAMESPACES],"uidMappings":[{"containerID":0,"hostID":0,"size":1}],
                "gidMappings":[{"containerID":0,"hostID":0,"size":1}]}}"#;
            adapt(&spec(&json.replace("NAMESPACES", namespaces)), caller, None)
        };
        let text = adapt("", &caller).unwrap_err().to_string();
        assert!(text.contains("uid 33 does not exist") && text.contains("one id, 0"), "{text}");
        assert!(text.contains("/etc/subuid"), "{text}");
        // In a new one it can be made to exist.
        let new = adapt(r#"{"type":"user"}"#, &caller).unwrap();
        let maps = new.maps.unwrap();
        assert_eq!(maps.uid, [IdMap { container: 33, host: 0, size: 1 }]);
        assert_eq!(maps.gid, [IdMap { container: 0, host: 0, size: 1 }]);
        assert_eq!(new.notes.len(), 1);
        // With several the config's word stands.
        let range = vec![IdMap { container: 0, host: 1000, size: 30 }];
        let caller = Caller { maps: IdMaps { uid: range.clone(), gid: range }, ..caller };
        assert!(adapt("", &caller).is_err() && adapt(r#"{"type":"user"}"#, &caller).is_err());
    }

    #[test]
    fn a_bundle_of_somebody_else() {
        let namespace_root = |size| {
            let maps = vec![IdMap { container: 0, host: 1000, size }];
            let maps = IdMaps { uid: maps.clone(), gid: maps };
            Caller { privilege: Privilege::NamespaceRoot, uid: 0, gid: 0, maps }
        };
        let json = r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":0,"gid":0}},"linux":{
            "namespaces":[{"type":"user"}],"uidMappings":[{"containerID":0,"hostID":5,"size":1}],
            "gidMappings":[{"containerID":0,"hostID":5,"size":1}]}}"#;
        let own = [IdMap { container: 0, host: 0, size: 1 }];
        for (size, mode, host, notes) in [
            // Of several ids, that of whoever wrote the config is another one than the caller's.
            (30, UserMap::Caller, 0, 0),
            (30, UserMap::Root, 0, 0),
            (30, UserMap::Config, 5, 0),
            (1, UserMap::Caller, 0, 0),
            (1, UserMap::Root, 0, 0),
            (1, UserMap::Config, 0, 2),
        ] {
            let adapted = adapt(&spec(json), &namespace_root(size), Some(mode)).unwrap();
            let maps = adapted.maps.unwrap();
            assert_eq!(maps.uid, [IdMap { host, ..own[0] }], "{size} {mode:?}");
            assert_eq!(maps.uid, maps.gid);
            assert_eq!((adapted.notes.len(), adapted.emulate_root), (notes, mode == UserMap::Root));
        }
    }

    #[test]
    fn a_map_of_ids_that_are_not_there() {
        let map = |container, host, size| IdMap { container, host, size };
        let own = [map(0, 1000, 1), map(1, 100_000, 65536)];
        for (maps, lacking) in [
            (vec![map(0, 0, 1), map(1, 1, 65536)], None),
            (vec![map(0, 1, 10)], None),
            (vec![map(0, 100_000, 65536)], Some("uid 100000,")),
            (vec![map(0, 1, 65537)], Some("uid 65537,")),
            (vec![map(0, 0, 2)], Some("uid 1,")),
            (vec![map(0, u32::MAX - 1, 2)], Some("uid 4294967294,")),
        ] {
            let error = require_host_ids("uid", &maps, &own).err().map(|e| e.to_string());
            let named = match (&error, lacking) {
                (Some(error), Some(lacking)) => {
                    error.contains(lacking) && error.contains("(its ids are 0 1-65536)")
                }
                (None, None) => true,
                _ => false,
            };
            assert!(named, "{maps:?}: {error:?}");
        }
        assert!(require_host_ids("uid", &[map(0, 0, u32::MAX)], &[map(0, 0, u32::MAX)]).is_ok());
    }

    #[test]
    fn unmapped_ids_leave_the_mount_options() {
        let maps = IdMaps { uid: vec![], gid: vec![IdMap { container: 0, host: 1, size: 1 }] };
        let mut options = mounts::parse(["mode=0620", "gid=5", "newinstance"]);
        let mut notes = Vec::new();
        drop_unmapped(&mut options, &maps, Path::new("/dev/pts"), &mut notes);
        assert_eq!(options.data.len(), 2);
        assert_eq!(notes.len(), 1);
    }
}
