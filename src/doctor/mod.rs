//! `rt doctor`: what keeps containers from starting on this host, and the remedy of each. Where something can be tried, it
//! is tried.

mod checkpoint;
mod devices;
mod images;
mod kernel;
mod places;
mod site;
mod start;

use crate::store::Store;
use serde::Serialize;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// As it should be.
    Ok,
    /// Containers start, but something that some of them need is missing.
    Note,
    /// Containers cannot start.
    Problem,
}

/// What was looked at, and what came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub text: String,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, text: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, text: text.into(), remedy: None }
    }

    fn note(name: &'static str, text: impl Into<String>) -> Check {
        Check { status: Status::Note, ..Check::ok(name, text) }
    }

    fn problem(name: &'static str, text: impl Into<String>) -> Check {
        Check { status: Status::Problem, ..Check::ok(name, text) }
    }

    fn remedy(self, remedy: impl Into<String>) -> Check {
        Check { remedy: Some(remedy.into()), ..self }
    }
}

/// Looks at everything. `store` is where the states of containers are kept, `root` the flag that names it.
pub(crate) fn examine(store: rt_sys::error::Result<Store>, root: Option<&std::path::Path>) -> Vec<Check> {
    let mut all = kernel::checks();
    all.extend(start::checks(store, root));
    all.extend(places::checks(root));
    all.extend(devices::checks());
    all.extend(site::checks());
    all.extend(checkpoint::checks());
    all.extend(images::checks());
    all
}

/// A file's text; empty where there is none or it cannot be read.
fn text_of(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The program of this name beside `rt`, or in PATH.
fn program(name: &str) -> Option<std::path::PathBuf> {
    rt_sys::start::companions(name).ok()?.into_iter().find(|path| is_program(path))
}

fn is_program(path: &std::path::Path) -> bool {
    rt_sys::look::is_file(path).is_ok_and(|is| is)
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
