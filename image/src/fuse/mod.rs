//! The FUSE server: the kernel's protocol, and squashfs images served by it.

mod abi;
mod server;

pub(crate) use server::{Owner, Server, ask_again};
