//! OCI hooks (config.md "POSIX-platform Hooks").

mod run;

pub use run::{Stage, run_all, run_one};
