//! `rt pause`

use super::parse::Call;
use crate::container;
use crate::error::Result;

/// Stops the processes of a container.
pub fn run(call: &Call) -> Result<u8> {
    container::pause(&super::store(call)?, call.id()?)?;
    Ok(0)
}
