//! An access control list of NFS 4, as a server sends it.
#![no_main]

use rt_sys::nfs4_acl::List;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(list) = List::parse(bytes) {
        // Whom a trusted group keeps out, one that is not trusted keeps out, too.
        assert!(list.lets_others_write(1000, false) || !list.lets_others_write(1000, true));
        list.says_more_than_a_mode();
    }
});
