//! `rt resume`

use super::parse::Call;
use crate::container;
use crate::error::Result;

/// Continues a paused container.
pub fn run(call: &Call) -> Result<u8> {
    container::resume(&super::store(call)?, call.id()?)?;
    Ok(0)
}
