//! Directory trees that may be hostile, copied and removed.

mod copy;
mod remove;

pub use self::copy::{Manner, copy, copy_attributes, copy_content, next_data, remove_access_lists};
pub use self::remove::{remove, remove_contents, remove_path};
