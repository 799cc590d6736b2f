//! The reference: libseccomp, loaded while the test runs, used as runc uses it.
#![allow(unsafe_code, reason = "calls a C library")]

use oci_seccomp::Instruction;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};

/// libseccomp's functions.
pub struct Library {
    /// Its version.
    pub version: (c_uint, c_uint, c_uint),
    init: unsafe extern "C" fn(u32) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void),
    arch_add: unsafe extern "C" fn(*mut c_void, u32) -> c_int,
    rule_add: unsafe extern "C" fn(*mut c_void, u32, c_int, c_uint, *const Comparison) -> c_int,
    export_bpf: unsafe extern "C" fn(*const c_void, c_int) -> c_int,
    export_pfc: unsafe extern "C" fn(*const c_void, c_int) -> c_int,
    resolve: unsafe extern "C" fn(u32, *const c_char) -> c_int,
    name: unsafe extern "C" fn(u32, c_int) -> *mut c_char,
}

/// `struct scmp_arg_cmp` (seccomp.h).
#[repr(C)]
struct Comparison {
    argument: c_uint,
    operator: c_int,
    a: u64,
    b: u64,
}

/// `struct scmp_version` (seccomp.h).
#[repr(C)]
struct Version {
    major: c_uint,
    minor: c_uint,
    micro: c_uint,
}

impl Library {
    #[expect(clippy::missing_transmute_annotations, reason = "the fields have the types")]
    /// Loads `$RT_LIBSECCOMP`, or the system's library; `None` if there is none.
    pub fn load() -> Option<Library> {
        let path = std::env::var("RT_LIBSECCOMP").unwrap_or_else(|_| "libseccomp.so.2".into());
        let path = CString::new(path).ok()?;
        // SAFETY: `path` is a C string; libseccomp's initializers have no conditions.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: `library` is open and never closed; `name` is a C string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!symbol.is_null(), "libseccomp has no {name:?}");
            symbol
        };
        // SAFETY: seccomp_version(3) returns a pointer to a static value; the other types are the
        // ones that seccomp.h declares for these symbols.
        unsafe {
            let version: extern "C" fn() -> *const Version = std::mem::transmute(symbol(c"seccomp_version"));
            let version = &*version();
            Some(Library {
                version: (version.major, version.minor, version.micro),
                init: std::mem::transmute(symbol(c"seccomp_init")),
                release: std::mem::transmute(symbol(c"seccomp_release")),
                arch_add: std::mem::transmute(symbol(c"seccomp_arch_add")),
                rule_add: std::mem::transmute(symbol(c"seccomp_rule_add_array")),
                export_bpf: std::mem::transmute(symbol(c"seccomp_export_bpf")),
                export_pfc: std::mem::transmute(symbol(c"seccomp_export_pfc")),
                resolve: std::mem::transmute(symbol(c"seccomp_syscall_resolve_name_arch")),
                name: std::mem::transmute(symbol(c"seccomp_syscall_resolve_num_arch")),
            })
        }
    }

    /// The number of a call: negative numbers stand for calls that only other architectures have.
    pub fn number(&self, arch: Arch, name: &str) -> Option<i32> {
        let name = CString::new(name).ok()?;
        // SAFETY: `name` is a C string.
        let number = unsafe { (self.resolve)(arch as u32, name.as_ptr()) };
        (number != -1).then_some(number)
    }

    /// The name of a call.
    pub fn name(&self, arch: Arch, number: i32) -> Option<String> {
        // SAFETY: the result is null or a C string that the caller frees.
        unsafe {
            let name = (self.name)(arch as u32, number);
            if name.is_null() {
                return None;
            }
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            libc::free(name.cast());
            Some(text)
        }
    }

    /// The program for a section, or the errno with which a rule was refused.
    pub fn compile(&self, section: &LinuxSeccomp) -> Result<Vec<Instruction>, i32> {
        let instruction = |raw: &[u8]| Instruction {
            code: u16::from_ne_bytes([raw[0], raw[1]]),
            jt: raw[2],
            jf: raw[3],
            k: u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]),
        };
        let filter = Filter::with_rules(self, section)?;
        Ok(filter.export(self.export_bpf).chunks(8).map(instruction).collect())
    }

    /// The same filter in libseccomp's "pseudo filter code", made from its rules and not from
    /// the program.
    pub fn describe(&self, section: &LinuxSeccomp) -> Result<String, i32> {
        let text = Filter::with_rules(self, section)?.export(self.export_pfc);
        Ok(String::from_utf8(text).expect("libseccomp writes ASCII"))
    }
}

/// `scmp_filter_ctx`.
struct Filter<'a> {
    library: &'a Library,
    default: u32,
    context: *mut c_void,
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        // SAFETY: `context` is from seccomp_init and not used afterwards.
        unsafe { (self.library.release)(self.context) }
    }
}

impl<'a> Filter<'a> {
    fn new(library: &'a Library, section: &LinuxSeccomp) -> Result<Self, i32> {
        let default = answer(section.default_action(), section.default_errno_ret());
        // SAFETY: any value is allowed.
        let context = unsafe { (library.init)(default) };
        assert!(!context.is_null(), "seccomp_init({default:#x})");
        let filter = Filter { library, default, context };
        for arch in section.architectures().iter().flatten() {
            // SAFETY: `context` is from seccomp_init.
            let errno = -unsafe { (library.arch_add)(context, *arch as u32) };
            if errno != 0 && errno != libc::EEXIST {
                return Err(errno);
            }
        }
        Ok(filter)
    }

    fn with_rules(library: &'a Library, section: &LinuxSeccomp) -> Result<Self, i32> {
        let filter = Filter::new(library, section)?;
        for entry in section.syscalls().iter().flatten() {
            for name in entry.names() {
                filter.add(entry, name)?;
            }
        }
        Ok(filter)
    }

    fn add(&self, entry: &LinuxSyscall, name: &str) -> Result<(), i32> {
        let action = answer(entry.action(), entry.errno_ret());
        if action == self.default {
            return Ok(());
        }
        let Some(number) = self.library.number(Arch::ScmpArchNative, name) else { return Ok(()) };
        let arguments = entry.args().as_deref().unwrap_or_default();
        let comparisons: Vec<_> = arguments.iter().map(comparison).collect();
        let twice = (0..6).any(|index| arguments.iter().filter(|a| a.index() == index).count() > 1);
        let size = if twice { 1 } else { comparisons.len().max(1) };
        let mut rules: Vec<_> = comparisons.chunks(size).collect();
        if rules.is_empty() {
            rules.push(&[]);
        }
        for rule in rules {
            // SAFETY: the pointer and the length are those of one slice.
            let errno = -unsafe {
                (self.library.rule_add)(self.context, action, number, rule.len() as c_uint, rule.as_ptr())
            };
            if errno != 0 {
                return Err(errno);
            }
        }
        Ok(())
    }

    fn export(&self, export: unsafe extern "C" fn(*const c_void, c_int) -> c_int) -> Vec<u8> {
        // SAFETY: the name is a C string; the descriptor is new and owned by the file alone.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"filter".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0, "memfd_create");
            std::fs::File::from_raw_fd(fd)
        };
        // SAFETY: `context` is from seccomp_init.
        let errno = -unsafe { export(self.context, file.as_raw_fd()) };
        assert_eq!(errno, 0, "libseccomp's export");
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }
}

/// A `SCMP_ACT_*` value (seccomp.h), as runc makes it.
pub fn answer(action: LinuxSeccompAction, errno: Option<u32>) -> u32 {
    action.as_u32(errno)
}

fn comparison(argument: &LinuxSeccompArg) -> Comparison {
    use LinuxSeccompOperator::*;
    let operator = match argument.op() {
        ScmpCmpNe => 1,
        ScmpCmpLt => 2,
        ScmpCmpLe => 3,
        ScmpCmpEq => 4,
        ScmpCmpGe => 5,
        ScmpCmpGt => 6,
        ScmpCmpMaskedEq => 7,
    };
    Comparison {
        argument: argument.index() as c_uint,
        operator,
        a: argument.value(),
        b: argument.value_two().unwrap_or_default(),
    }
}
