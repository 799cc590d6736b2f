//! The symbols that Slurm looks up: what the plugin is, and a function for each stage of a step (spank(7)).

#![allow(unsafe_code, reason = "this is the border to Slurm, which is C")]
#![allow(non_upper_case_globals, reason = "Slurm gives the names")]

use crate::ffi::{self, Handle, Spank, Words};
use crate::plugin;
use libc::{c_char, c_int, c_long, c_uint};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// The name that `_SLURM_SPANK_OPTION_rt_container_image` and its kin have in them.
#[unsafe(no_mangle)]
pub(crate) static plugin_name: [u8; 3] = *b"rt\0";
/// The kind of plugin.
#[unsafe(no_mangle)]
pub(crate) static plugin_type: [u8; 6] = *b"spank\0";
/// The version of Slurm that the plugin is for. Slurm compares major and minor with its own, and refuses another one; so
/// the plugin asks who has loaded it, before that comparison.
#[unsafe(no_mangle)]
pub(crate) static plugin_version: AtomicU32 = AtomicU32::new(0);
/// The plugin's own version.
#[unsafe(no_mangle)]
pub(crate) static spank_plugin_version: c_uint = 1;

// SAFETY: .init_array is a list of functions that take what this one ignores, and that return nothing.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = at_loading;

extern "C" fn at_loading() {
    let _ = catch_unwind(|| {
        let Some(number) = ffi::api_number() else { return };
        plugin_version.store(release(number), Ordering::Relaxed);
    });
}

/// SLURM_VERSION_NUMBER of the release whose library has this API number: 38 is 22.05, 39 is 23.02. From 40 (23.11) on
/// there is one in May and one in November.
fn release(api: c_long) -> u32 {
    let (major, minor) = match u32::try_from(api >> 16) {
        Ok(38) => (22, 5),
        Ok(39) => (23, 2),
        Ok(n @ 40..) => (23 + (n - 39) / 2, if n % 2 == 0 { 11 } else { 5 }),
        _ => (0, 0),
    };
    major << 16 | minor << 8
}

/// A panic ends here. Slurm's processes go on, and the step fails.
fn guarded(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let _ = catch_unwind(|| ffi::error("internal error; see the log of slurmd, or stderr of srun"));
        -1
    })
}

/// Entries of the plugin, in the order of a step's life. Each gets the step and the words of plugstack.conf.
macro_rules! entries {
    ($($symbol:ident => $function:path;)*) => { $(
        #[doc = concat!("See spank(7); what it does is in [`", stringify!($function), "`].")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $symbol(handle: Handle, count: c_int, words: Words) -> c_int {
            guarded(|| {
                // SAFETY: Slurm gives `count` strings, which live longer than this call, and a handle for it.
                let (spank, words) = unsafe { (Spank::new(handle, option_given), ffi::strings(words, count)) };
                $function(&spank, &words)
            })
        }
    )* };
}

entries! {
    slurm_spank_init => plugin::init;
    slurm_spank_init_post_opt => plugin::options_are_read;
    slurm_spank_local_user_init => plugin::before_launch;
    slurm_spank_user_init => plugin::prepare;
    slurm_spank_task_init => plugin::task;
    slurm_spank_task_exit => plugin::task_exit;
    slurm_spank_exit => plugin::exit;
    slurm_spank_job_epilog => plugin::job_epilog;
}

extern "C" fn option_given(index: c_int, argument: *const c_char, remote: c_int) -> c_int {
    guarded(|| {
        let argument = if argument.is_null() {
            &[][..]
        } else {
            // SAFETY: Slurm gives a string, or null where the option takes none.
            unsafe { CStr::from_ptr(argument) }.to_bytes()
        };
        plugin::option(usize::try_from(index).unwrap_or(usize::MAX), argument, remote != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_numbers_name_releases() {
        for (api, major, minor) in [
            (38, 22, 5),
            (39, 23, 2),
            (40, 23, 11),
            (41, 24, 5),
            (42, 24, 11),
            (43, 25, 5),
            (44, 25, 11),
            (45, 26, 5),
        ] {
            assert_eq!(release(api << 16), major << 16 | minor << 8, "{api}");
        }
        assert_eq!(release(37 << 16), 0);
        assert_eq!(release(-1), 0);
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(guarded(|| panic!("caught")), -1);
        assert_eq!(guarded(|| 7), 7);
    }
}
