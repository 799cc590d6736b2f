//! The hooks' decisions: every variable and its combinations, against stand-in nodes.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

mod gpu;
mod mpi;
mod rdma;
mod reads;
mod standin;
mod table;
mod writers;
