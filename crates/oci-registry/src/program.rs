//! The program that uses this crate, as registries and its users know it.

/// What a program calls itself, and what it tells its users to do about an error; shown as the hints of errors.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The name in `User-Agent`, and the client id of requests for tokens.
    pub name: &'static str,
    /// The command that stores the credentials for a registry, whose name is added.
    pub login: &'static str,
    /// How to ask a registry without a check of its certificate.
    pub insecure: &'static str,
    /// How to ask a registry over HTTP alone.
    pub plain_http: &'static str,
    /// What to do where a registry's name is not known, which a proxy may have to resolve.
    pub no_such_host: &'static str,
    /// How to allow a slower server ([`LeastRate`](crate::LeastRate)).
    pub least_rate: &'static str,
}

impl Program {
    /// A program without options of its own, whose users log in with docker.
    pub const ANY: Program = Program {
        name: "oci-registry",
        login: "docker login",
        insecure: "set insecure = true for it in registries.conf",
        plain_http: "set insecure = true for it in registries.conf",
        no_such_host: "is the name of the registry right?",
        least_rate: "a least rate of 0 means any",
    };
}

impl Default for Program {
    fn default() -> Program {
        Program::ANY
    }
}
