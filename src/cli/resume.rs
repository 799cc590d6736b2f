//! `rt resume`

use super::Call;
use crate::checkpoint;
use rt_sys::error::Result;

/// Continues a paused container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let named = super::find(call)?;
    checkpoint::resume(&named.store, &named.id)?;
    Ok(0)
}
