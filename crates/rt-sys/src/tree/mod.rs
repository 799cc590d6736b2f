//! Directory trees that may be hostile, copied and removed.

mod copy;
mod remove;

pub use self::copy::{Manner, copy};
pub use self::remove::{remove, remove_contents, remove_path};
