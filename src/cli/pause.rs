//! `rt pause`

use super::Call;
use crate::container;
use rt_sys::error::Result;

/// Stops the processes of a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let named = super::find(call)?;
    container::pause(&named.store, &named.id)?;
    Ok(0)
}
