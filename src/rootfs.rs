//! rootfs.
