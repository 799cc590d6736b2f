//! `rt pause`

use super::parse::Call;
use crate::container;
use crate::error::Result;

/// Stops the processes of a container.
pub fn run(call: &Call) -> Result<u8> {
    let named = super::find(call)?;
    container::pause(&named.store, &named.id)?;
    Ok(0)
}
