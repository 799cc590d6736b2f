//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use crate::auth;
use crate::reference::Reference;
use crate::registries_conf::Registries;

/// A name that parses is clean, and parses again to the same.
pub fn reference(text: &str) {
    if let Ok(reference) = text.parse::<Reference>() {
        assert!(!reference.repository.split('/').any(|part| matches!(part, "" | "." | "..")));
        let user = reference.user.clone();
        let again: Reference = reference.to_string().parse().expect("a printed name parses");
        assert_eq!(Reference { user, ..again }, reference);
    }
}

/// Neither a header nor a token server's answer makes the parser panic.
pub fn challenge(text: &str) {
    let _ = auth::parse(text);
    let _ = auth::unbase64(text);
    let _ = auth::Token::parse(text.as_bytes());
}

/// What registries.conf says of an image: mirrors first and the registry itself at the end, each with a host and a
/// repository. The order of its tables means nothing, and a file that is read twice says the same. The first line names an
/// image.
pub fn registries(text: &str) {
    let (name, text) = text.split_once('\n').unwrap_or(("debian", text));
    let Ok(registries) = Registries::parse(text) else { return };
    let mut turned = registries.clone();
    turned.turn();
    let mut twice = registries.clone();
    twice.add(registries.clone());
    let digest = format!("a.b.corp/x@sha256:{}", "a".repeat(64));
    for name in [name, "debian", "quay.io/x/y:1", "a.b.corp/x", &digest] {
        let Ok(reference) = name.parse::<Reference>() else { continue };
        let endpoints = registries.endpoints(&reference).ok();
        if registries.has_one_table_each() {
            assert_eq!(turned.endpoints(&reference).ok(), endpoints, "{name}: in another order");
            assert_eq!(twice.endpoints(&reference).ok(), endpoints, "{name}: read twice");
        }
        let Some(endpoints) = endpoints else { continue };
        let (own, mirrors) = endpoints.split_last().expect("a place to ask");
        assert!(!own.mirror && mirrors.iter().all(|endpoint| endpoint.mirror), "{endpoints:?}");
        for endpoint in &endpoints {
            assert!(!endpoint.host.is_empty() && !endpoint.repository.is_empty(), "{name}: {endpoint:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        super::reference("docker://debian:12");
        super::challenge("Bearer realm=\"x\"");
        super::registries(
            "a.b.corp/x\n[[registry]]\nlocation='b.corp'\n[[registry]]\nprefix='*.corp'\nlocation='c'",
        );
    }
}
