//! `rt resume`

use super::parse::Call;
use crate::container;
use crate::error::Result;

/// Continues a paused container.
pub fn run(call: &Call) -> Result<u8> {
    let named = super::find(call)?;
    container::resume(&named.store, &named.id)?;
    Ok(0)
}
