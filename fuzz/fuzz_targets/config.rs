//! Any config.json either is refused with a line of text or is loaded, checked and adapted without a panic,
//! is read as oci-spec reads it where that reads it, and is the same when it was written and read again.
//!
//! ```sh
//! mkdir -p fuzz/corpus/config
//! RUSTC_BOOTSTRAP=1 cargo fuzz run -s none config fuzz/corpus/config fuzz/seeds/config -- -max_total_time=300
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use rt_spec::{Config, check, mounts, rootless};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::ns::{IdMap, IdMaps};

fuzz_target!(|input: &[u8]| {
    // serde_json does not look into what it passes over; JSON is UTF-8 (RFC 8259 section 8.1).
    let theirs = std::str::from_utf8(input).map(serde_json::from_str::<oci_spec::runtime::Spec>);
    let theirs = theirs.ok().and_then(Result::ok);
    // Derived readers take an array of an object's values for the object, in the order of the fields. Where the fields are
    // not those of oci-spec, what is read is another config.
    let json: serde_json::Value = serde_json::from_slice(input).unwrap_or_default();
    let theirs = theirs.filter(|_| json.is_object() && !json["process"].is_array() && !json["linux"].is_array());
    let Ok(config) = Config::parse(input.to_vec()) else { return };
    let written = serde_json::to_vec(&config.spec).expect("what was read can be written");
    if let Some(mut theirs) = theirs {
        // What is not of Linux, or not of the specification.
        theirs.set_uid_mappings(None).set_gid_mappings(None).set_vm(None);
        theirs.set_windows(None).set_solaris(None).set_zos(None);
        if let Some(process) = theirs.process_mut() {
            process.set_command_line(None);
        }
        assert_eq!(serde_json::from_slice::<oci_spec::runtime::Spec>(&written).unwrap(), theirs);
    }
    let again = Config::parse(written).expect("what was written loads again");
    assert_eq!(again.spec, config.spec);
    assert!(again.warnings.is_empty(), "{:?} came back", again.warnings);
    let whole = || vec![IdMap { container: 0, host: 0, size: u32::MAX }];
    let one = || vec![IdMap { container: 0, host: 1000, size: 1 }];
    for (privilege, uid, map) in
        [(Privilege::Unprivileged, 1000, vec![]), (Privilege::NamespaceRoot, 0, one()), (Privilege::Root, 0, whole())]
    {
        let caller = Caller { privilege, uid, gid: uid, maps: IdMaps { uid: map.clone(), gid: map } };
        if check(&config.spec, &caller).is_err() {
            continue;
        }
        let Ok(adapted) = rootless::adapt(&config.spec, &caller, None) else { continue };
        if privilege == Privilege::Unprivileged && !adapted.joined {
            let maps = adapted.maps.as_ref().expect("an unprivileged caller gets a user namespace");
            assert_eq!((maps.uid.len(), maps.uid[0].host, maps.uid[0].size), (1, uid, 1));
            assert!(IdMaps::has(&maps.uid, adapted.uid) && IdMaps::has(&maps.gid, adapted.gid));
        }
        let inside = adapted.maps.as_ref().unwrap_or(&caller.maps);
        for mount in config.spec.mounts().iter().flatten() {
            let mut options = mounts::parse(mount.options().iter().flatten().map(String::as_str));
            assert_eq!(options.attr.set & options.attr.clear & !rt_sys::mount::ATTR_ATIME, 0);
            rootless::drop_unmapped(&mut options, inside, "/".as_ref(), &mut Vec::new());
        }
    }
});
