//! `rt fork`

use super::table::*;
use super::{Call, Named};
use crate::checkpoint::{self, ForkOptions};
use rt_spec::rootless::parse_user_map;
use rt_sys::error::Result;

/// Makes new containers whose processes are like those of one that runs.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Named { store, id, .. } = super::find_named(call, call.operand(0, "an id")?)?;
    let names = (1..call.operands.len()).map(|n| call.operand(n, "an id").map(str::to_owned));
    let options = ForkOptions {
        names: names.collect::<Result<_>>()?,
        user_map: call.flags.text(&USER_MAP)?.map(parse_user_map).transpose()?,
        layers: call.flags.path(&OVERLAY),
        tcp_close: call.flags.has(&TCP_CLOSE),
    };
    checkpoint::fork(&store, &id, &options)?;
    Ok(0)
}
