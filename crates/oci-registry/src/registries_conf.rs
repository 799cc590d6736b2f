//! containers-registries.conf(5) in both versions, and containers-certs.d(5): mirrors, blocked and
//! insecure registries, own CAs and client certificates.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::own_file;
use super::reference::Reference;
use rt_sys::caller::{self, own_dir};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, look};

/// Where the files of the system are.
const SYSTEM: &str = "/etc/containers";

/// What is configured.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Registries {
    #[serde(default)]
    registry: Vec<RegistryTable>,
    /// Version 1.
    #[serde(default)]
    registries: VersionOne,
}

/// Version 1 has lists of hosts.
#[derive(Debug, Clone, Default, Deserialize)]
struct VersionOne {
    #[serde(default)]
    insecure: HostList,
    #[serde(default)]
    block: HostList,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct HostList {
    #[serde(default)]
    registries: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RegistryTable {
    prefix: Option<String>,
    location: Option<String>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<MirrorTable>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MirrorTable {
    location: String,
    #[serde(default)]
    insecure: bool,
    pull_from_mirror: Option<String>,
}

/// A place to ask for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host and port.
    pub host: String,
    /// The repository there.
    pub repository: String,
    /// Certificates are not checked, and HTTP is tried.
    pub insecure: bool,
    /// Not the registry itself.
    pub mirror: bool,
}

/// The files of `registries.conf.d`, in their order.
fn drop_ins(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = look::entries(dir.join("registries.conf.d"))?;
    all.retain(|path| path.extension().is_some_and(|e| e == "conf"));
    Ok(all)
}

impl Registries {
    /// Reads what the user or else the system has, with its drop-in files.
    pub fn from_environment() -> Result<Registries> {
        if let Some(path) = caller::path("CONTAINERS_REGISTRIES_CONF") {
            return Registries::read(&path);
        }
        let user = caller::own_config_home()?.map(|dir| dir.join("containers"));
        let mut all = Registries::default();
        let main = |dir: &Path| dir.join("registries.conf");
        match user.as_deref().map(|dir| Registries::read_own(&main(dir))).transpose()?.flatten() {
            Some(own) => all = own,
            None if look::is_file(main(Path::new(SYSTEM)))? => {
                all = Registries::read(&main(Path::new(SYSTEM)))?
            }
            None => {}
        }
        for path in drop_ins(Path::new(SYSTEM))? {
            all.add(Registries::read(&path)?);
        }
        for path in user.as_deref().map_or(Ok(Vec::new()), drop_ins)? {
            all.add(Registries::read_own(&path)?.unwrap_or_default());
        }
        Ok(all)
    }

    fn read(path: &Path) -> Result<Registries> {
        let text = fs::read_to_string(path).map_err(|e| err!("read {}: {e}", path.display()))?;
        Registries::parse(&text).map_err(|e| e.context(path.display()))
    }

    /// A file of the user's; none where it is not there, or somebody else can have written it.
    fn read_own(path: &Path) -> Result<Option<Registries>> {
        let Some(bytes) = own_file::read(path)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|e| err!("{}: {e}", path.display()))?;
        Registries::parse(&text).map(Some).map_err(|e| e.context(path.display()))
    }

    /// Reads one file.
    pub fn parse(text: &str) -> Result<Registries> {
        let mut file: Registries = toml::from_str(text).map_err(|e| err!("{}", e.message()))?;
        let VersionOne { insecure, block } = std::mem::take(&mut file.registries);
        let hosts: BTreeSet<&String> = insecure.registries.iter().chain(&block.registries).collect();
        file.registry.extend(hosts.into_iter().map(|host| RegistryTable {
            location: Some(host.clone()),
            insecure: insecure.registries.contains(host),
            blocked: block.registries.contains(host),
            ..RegistryTable::default()
        }));
        Ok(file)
    }

    /// The tables in the opposite order.
    pub fn turn(&mut self) {
        self.registry.reverse();
    }

    /// True where no prefix has two tables.
    pub fn has_one_table_each(&self) -> bool {
        let prefixes: BTreeSet<&str> = self.registry.iter().map(RegistryTable::prefix).collect();
        prefixes.len() == self.registry.len()
    }

    /// A later file's entry for a prefix replaces an earlier one's.
    pub fn add(&mut self, later: Registries) {
        for registry in later.registry {
            self.registry.retain(|known| known.prefix() != registry.prefix());
            self.registry.push(registry);
        }
    }

    /// Whether the registry `host` itself is asked without a check of its certificate, or over HTTP: what a login needs to know,
    /// which names no repository. What leads to another place says nothing about `host`.
    pub fn is_insecure(&self, host: &str) -> bool {
        let matching = self.registry.iter().filter(|registry| registry.matches(host).is_some());
        matching.max_by_key(|registry| registry.exactness()).is_some_and(|registry| {
            registry.insecure && registry.location.as_deref().is_none_or(|at| at == host)
        })
    }

    /// Where to ask for `reference`, in order.
    ///
    /// # Errors
    /// Where the site blocks it.
    pub fn endpoints(&self, reference: &Reference) -> Result<Vec<Endpoint>> {
        let name = format!("{}/{}", reference.registry, reference.repository);
        let matching = self.registry.iter().filter_map(|r| r.matches(&name).map(|length| (length, r)));
        let Some((length, registry)) = matching.max_by_key(|(_, registry)| registry.exactness()) else {
            return Ok(vec![endpoint(&name, false, false)?]);
        };
        if registry.blocked {
            bail!("{name}: blocked by registries.conf on this system");
        }
        let by_digest = reference.digest.is_some();
        let rest = &name[length..];
        let mut endpoints = registry
            .mirror
            .iter()
            .filter(|mirror| match mirror.pull_from_mirror.as_deref() {
                Some("digest-only") => by_digest,
                Some("tag-only") => !by_digest,
                _ => by_digest || !registry.mirror_by_digest_only,
            })
            .map(|mirror| {
                endpoint(&format!("{}{rest}", mirror.location.trim_end_matches('/')), mirror.insecure, true)
            })
            .collect::<Result<Vec<Endpoint>>>()?;
        let own = match &registry.location {
            Some(location) => format!("{}{rest}", location.trim_end_matches('/')),
            None => name.clone(),
        };
        endpoints.push(endpoint(&own, registry.insecure, false)?);
        Ok(endpoints)
    }
}

impl RegistryTable {
    fn prefix(&self) -> &str {
        self.prefix.as_deref().or(self.location.as_deref()).unwrap_or_default()
    }

    /// What of several tables that are for a name counts most: the longest prefix, and one without `*` before one with it,
    /// wherever they stand.
    fn exactness(&self) -> (usize, bool) {
        (self.prefix().len(), !self.prefix().starts_with('*'))
    }

    /// How much of `name` the prefix covers.
    fn matches(&self, name: &str) -> Option<usize> {
        let prefix = self.prefix();
        if let Some(domain) = prefix.strip_prefix('*') {
            let host = name.split('/').next()?;
            return (domain.starts_with('.') && host.ends_with(domain)).then_some(host.len());
        }
        let rest = name.strip_prefix(prefix)?;
        (!prefix.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(prefix.len())
    }
}

fn endpoint(name: &str, insecure: bool, mirror: bool) -> Result<Endpoint> {
    match name.split_once('/') {
        Some((host, repository))
            if !host.is_empty() && !repository.is_empty() && !repository.starts_with('/') =>
        {
            Ok(Endpoint { host: host.to_owned(), repository: repository.to_owned(), insecure, mirror })
        }
        _ => bail!("registries.conf leads to {name:?}, which is not HOST/REPOSITORY"),
    }
}

/// What certs.d has for a host.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// PEM texts of further CAs.
    pub authorities: Vec<Vec<u8>>,
    /// PEM texts of a client's certificate and key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Looks where podman and docker look.
    ///
    /// # Errors
    /// One of the files cannot be read, though it is the caller's to read.
    pub fn for_host(host: &str) -> Result<Certificates> {
        let mut found = Certificates::default();
        for dir in ["/etc/docker/certs.d", "/etc/containers/certs.d"] {
            found.add(&Path::new(dir).join(host), certificate)?;
        }
        if let Some(home) = own_dir("HOME")? {
            found.add(&home.join(".config/containers/certs.d").join(host), own_file::read)?;
        }
        Ok(found)
    }

    /// Adds those in `dir`, each by `read`.
    fn add(&mut self, dir: &Path, read: fn(&Path) -> Result<Option<Vec<u8>>>) -> Result<()> {
        for path in of_caller(look::entries(dir))?.unwrap_or_default() {
            match path.extension().and_then(|e| e.to_str()) {
                Some("crt") => self.authorities.extend(read(&path)?),
                Some("cert") => {
                    let (text, key) = (read(&path)?, read(&path.with_extension("key"))?);
                    self.client = text.zip(key).or(self.client.take());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The text of a file of certificates; `None` where it is not there, or not for the caller.
pub fn certificate(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path).context(|| format!("read {}", path.display())) {
        Err(e) if e.is(libc::ENOENT) || e.is(libc::EISDIR) => Ok(None),
        text => of_caller(text),
    }
}

/// `None` in the place of EACCES: the certificates of a site's services are for root alone, and without them a registry is
/// trusted less, not more.
fn of_caller<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(e) if e.is(libc::EACCES) => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(conf: &str, reference: &str) -> Result<Vec<String>> {
        let endpoints = Registries::parse(conf)?.endpoints(&reference.parse()?)?;
        Ok(endpoints
            .iter()
            .map(|e| format!("{}/{}{}", e.host, e.repository, if e.insecure { " insecure" } else { "" }))
            .collect())
    }

    const CONF: &str = r#"
        unqualified-search-registries = ["docker.io"]
        [[registry]]
        prefix = "docker.io"
        location = "registry-1.docker.io"
        [[registry.mirror]]
        location = "mirror.site:5000/hub"
        insecure = true
        [[registry.mirror]]
        location = "digests.site"
        pull-from-mirror = "digest-only"
        [[registry]]
        location = "bad.example"
        blocked = true
        [[registry]]
        prefix = "*.corp"
        location = "proxy.corp"
    "#;

    #[test]
    fn mirrors_in_order() {
        assert_eq!(
            places(CONF, "debian:12").unwrap(),
            ["mirror.site:5000/hub/library/debian insecure", "registry-1.docker.io/library/debian"]
        );
        let digest = format!("debian@sha256:{}", "a".repeat(64));
        assert_eq!(places(CONF, &digest).unwrap().len(), 3);
        assert_eq!(places(CONF, "quay.io/x").unwrap(), ["quay.io/x"]);
        assert_eq!(places(CONF, "a.b.corp/x/y").unwrap(), ["proxy.corp/x/y"]);
        assert!(places(CONF, "bad.example/x").unwrap_err().to_string().contains("blocked"));
        assert_eq!(places(CONF, "bad.example.org/x").unwrap(), ["bad.example.org/x"]);
    }

    #[test]
    fn the_longest_prefix_counts_in_any_order() {
        let tables = [
            "[[registry]]\nprefix = '*.corp'\nlocation = 'all.site'\n",
            "[[registry]]\nprefix = '*.b.corp'\nlocation = 'some.site'\n",
            "[[registry]]\nprefix = 'a.b.corp'\nlocation = 'one.site'\n",
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let conf: String = order.map(|n| tables[n]).concat();
            for (name, place) in
                [("a.b.corp/x", "one.site/x"), ("c.b.corp/x", "some.site/x"), ("d.corp/x", "all.site/x")]
            {
                assert_eq!(places(&conf, name).unwrap(), [place], "{conf}");
            }
        }
    }

    #[test]
    fn a_place_has_a_host_and_a_repository() {
        for location in ["", "/", "/x", "http://a.site"] {
            for table in ["", "[[registry.mirror]]"] {
                let conf = format!("[[registry]]\nprefix = 'docker.io'\n{table}\nlocation = '{location}'\n");
                let error = places(&conf, "debian").unwrap_err().to_string();
                assert!(error.contains("not HOST/REPOSITORY"), "{conf}: {error}");
            }
        }
        // The prefix is the whole name, and nothing of it is left for the other host.
        let whole = "[[registry]]\nprefix = 'quay.io/x'\nlocation = 'a.site'\n";
        assert!(places(whole, "quay.io/x").is_err());
        assert_eq!(places(whole, "quay.io/x/y").unwrap(), ["a.site/y"]);
    }

    #[test]
    fn lists_of_version_one() {
        let conf = "[registries.search]\nregistries = ['a.site']\n\
            [registries.insecure]\nregistries = ['b.site:5000', 'c.site']\n\
            [registries.block]\nregistries = ['c.site', 'docker.io']\n";
        assert_eq!(places(conf, "a.site/x").unwrap(), ["a.site/x"]);
        assert_eq!(places(conf, "b.site:5000/x").unwrap(), ["b.site:5000/x insecure"]);
        assert!(places(conf, "c.site/x").is_err() && places(conf, "debian").is_err());
    }

    #[test]
    fn damaged_files_say_so() {
        assert!(Registries::parse("[[registry]\n").is_err());
    }
}
