//! Remarks on work that goes on, such as that a request is made again.

use std::sync::Mutex;

use rt_sys::log::one_line;

/// Remarks that wait for who draws; none where nobody draws, and the log has them.
static NOTES: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Makes a remark. Who draws bars over what is on a terminal shows it as a line of its own ([`take`]); otherwise it is a line
/// of the log.
pub fn note(text: &str) {
    match &mut *NOTES.lock().unwrap_or_else(|e| e.into_inner()) {
        Some(notes) => notes.push(one_line(text)),
        None => log::info!("{text}"),
    }
}

/// Takes the remarks that were made since the last call. `drawn` says whether somebody draws from now on, and calls again.
pub fn take(drawn: bool) -> Vec<String> {
    let mut notes = NOTES.lock().unwrap_or_else(|e| e.into_inner());
    std::mem::replace(&mut *notes, drawn.then(Vec::new)).unwrap_or_default()
}
