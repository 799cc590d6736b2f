//! The hooks' decisions: every variable and its combinations, against stand-in nodes.

mod gpu;
mod rdma;
mod reads;
mod standin;
mod table;
mod writers;
