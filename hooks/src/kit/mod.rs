//! What hooks are written with: they read a container and a node, compute [`edits::Edits`], and apply them.

pub(crate) mod apply;
pub mod bundle;
pub mod edits;
pub(crate) mod fit;
pub mod libraries;
pub(crate) mod numbering;
pub mod tree;
