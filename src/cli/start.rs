//! `rt start`

use super::parse::Call;
use crate::container;
use crate::error::Result;

/// Releases a created container.
pub fn run(call: &Call) -> Result<u8> {
    container::start(&super::store(call)?, call.id()?)?;
    Ok(0)
}
