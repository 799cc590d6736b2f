//! `rt start`

use super::Call;
use crate::container;
use rt_sys::error::Result;

/// Releases a created container.
pub(super) fn run(call: &Call) -> Result<u8> {
    container::start(&super::store(call)?, call.id()?)?;
    Ok(0)
}
