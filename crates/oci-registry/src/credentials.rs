//! Who the user is at a registry: docker's and podman's files, credential helpers, enroot's netrc.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use super::auth::{base64, unbase64};
use super::own_file;
use rt_sys::caller::{self, own_dir};
use rt_sys::disk;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use rt_sys::output;
use rt_sys::unique;

/// How a user proves who he is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password or access token.
        password: String,
    },
    /// An OAuth2 refresh token (docker's "identity token").
    IdentityToken(String),
}

impl Credentials {
    /// From `user:password`.
    pub fn from_pair(pair: &str) -> Option<Credentials> {
        let (user, password) = pair.split_once(':')?;
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }
}

/// The files in which credentials are looked for; a value, so that tests can say where.
#[derive(Debug, Clone, Default)]
pub struct CredentialFiles {
    /// Files in docker's format that the caller has named, whoever wrote them. They come first.
    pub named: Vec<PathBuf>,
    /// Files in docker's format that are the caller's or root's; the first that knows the registry wins.
    pub docker: Vec<PathBuf>,
    /// Files in netrc's format.
    pub netrc: Vec<PathBuf>,
}

impl CredentialFiles {
    /// The places of containers-auth.json(5), docker and enroot, in that order.
    ///
    /// # Errors
    /// The kernel does not say to root whose a directory is.
    pub fn from_environment() -> Result<CredentialFiles> {
        let (home, config) = (own_dir("HOME")?, caller::own_config_home()?);
        let mut docker = Vec::new();
        match own_dir("XDG_RUNTIME_DIR")? {
            Some(dir) => docker.push(dir.join("containers/auth.json")),
            None => docker.push(format!("/run/containers/{}/auth.json", disk::caller().uid).into()),
        }
        docker.extend(config.as_ref().map(|dir| dir.join("containers/auth.json")));
        docker.extend(
            caller::path("DOCKER_CONFIG").or(home.map(|h| h.join(".docker"))).map(|d| d.join("config.json")),
        );
        let enroot = caller::path("ENROOT_CONFIG_PATH").or(config.map(|dir| dir.join("enroot")));
        Ok(CredentialFiles {
            named: caller::path("REGISTRY_AUTH_FILE").into_iter().collect(),
            docker,
            netrc: enroot.map(|dir| dir.join(".credentials")).into_iter().collect(),
        })
    }

    /// The credentials for `registry` and, where a file is that exact, `repository`.
    pub fn find(&self, registry: &str, repository: &str) -> Result<Option<Credentials>> {
        let named = self.named.iter().map(|path| (path, own_file::read_any(path)));
        let docker = self.docker.iter().map(|path| (path, own_file::read(path)));
        for (path, text) in named.chain(docker) {
            let Some(file) = parse_json(path, text?)? else { continue };
            let found = from_docker(&file, registry, repository);
            if let Some(found) = found.context(|| format!("credentials in {}", path.display()))? {
                return Ok(Some(found));
            }
        }
        for path in &self.netrc {
            let Some(text) = own_file::read(path)? else { continue };
            if let Some(found) = from_netrc(&String::from_utf8_lossy(&text), registry) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The file that a login writes: the first named by the environment, else podman's lasting one.
    pub fn login_file(&self) -> Option<&Path> {
        let lasting = || self.docker.get(1.min(self.docker.len().saturating_sub(1)));
        self.named.first().or_else(lasting).map(PathBuf::as_path)
    }
}

fn parse_json(path: &Path, bytes: Option<Vec<u8>>) -> Result<Option<Value>> {
    match bytes {
        Some(bytes) if !bytes.is_empty() => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| err!("credentials in {}: {e}", path.display())),
        _ => Ok(None),
    }
}

/// The keys under which files know a registry, most exact first.
fn keys(registry: &str, repository: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut path = format!("{registry}/{repository}");
    while path.len() > registry.len() {
        keys.push(path.clone());
        path.truncate(path.rfind('/').unwrap_or(0));
    }
    keys.push(registry.to_owned());
    if registry == "docker.io" {
        for name in ["https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io"] {
            keys.push(name.to_owned());
        }
    }
    keys
}

/// Old docker clients wrote URLs as keys.
fn plain_key(key: &str) -> &str {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2")
}

fn from_docker(file: &Value, registry: &str, repository: &str) -> Result<Option<Credentials>> {
    let keys = keys(registry, repository);
    for key in &keys {
        if let Some(helper) = file["credHelpers"][key.as_str()].as_str()
            && let Some(found) = ask_helper(helper, key)?
        {
            return Ok(Some(found));
        }
    }
    let empty = Map::new();
    let entries = file["auths"].as_object().unwrap_or(&empty);
    for key in &keys {
        let entry = entries.get(key).or_else(|| {
            entries.iter().find(|(name, _)| plain_key(name) == plain_key(key)).map(|(_, entry)| entry)
        });
        if let Some(found) = entry.and_then(from_entry) {
            return Ok(Some(found));
        }
    }
    if let Some(helper) = file["credsStore"].as_str() {
        let server = if registry == "docker.io" { "https://index.docker.io/v1/" } else { registry };
        return ask_helper(helper, server);
    }
    Ok(None)
}

fn from_entry(entry: &Value) -> Option<Credentials> {
    if let Some(token) = entry["identitytoken"].as_str().filter(|t| !t.is_empty()) {
        return Some(Credentials::IdentityToken(token.to_owned()));
    }
    if let Some(auth) = entry["auth"].as_str().filter(|a| !a.is_empty()) {
        let pair = String::from_utf8(unbase64(auth)?).ok()?;
        return Credentials::from_pair(pair.trim_end_matches('\0'));
    }
    let (user, password) = (entry["username"].as_str()?, entry["password"].as_str()?);
    Some(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
}

/// docker-credential-helpers' protocol: `get`, the server on standard input, JSON on output.
fn ask_helper(helper: &str, server: &str) -> Result<Option<Credentials>> {
    if helper.is_empty() || helper.contains('/') {
        return Ok(None);
    }
    let program = format!("docker-credential-{helper}");
    let doing = || format!("run {program} get");
    let mut command = Command::new(&program);
    command.arg("get").stderr(Stdio::null());
    rt_sys::process::give_callers_umask(&mut command);
    // A helper that exits without reading says by its exit status whether that is an error.
    let (status, printed) = output::stdout_of(&mut command, Some(server.as_bytes())).context(doing)?;
    if !status.success() {
        return Ok(None);
    }
    let answer: Value = serde_json::from_slice(&printed).map_err(|e| err!("{program}: {e}"))?;
    let (user, secret) = (answer["Username"].as_str(), answer["Secret"].as_str());
    Ok(match (user, secret) {
        (Some("<token>"), Some(secret)) => Some(Credentials::IdentityToken(secret.to_owned())),
        (Some(user), Some(secret)) => {
            Some(Credentials::Password { user: user.to_owned(), password: secret.to_owned() })
        }
        _ => None,
    })
}

/// enroot's file: netrc(5), with `$(command)` as a value. `$oauthtoken` is a user name like another.
fn from_netrc(text: &str, registry: &str) -> Option<Credentials> {
    let mut words = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let mut rest = line.trim();
        while !rest.is_empty() {
            // `$(command)` may contain blanks, and ends at its parenthesis.
            let end = match rest.starts_with("$(") {
                true => rest.find(')').map_or(rest.len(), |at| at + 1),
                false => rest.find(char::is_whitespace).unwrap_or(rest.len()),
            };
            words.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
    }
    let mut hosts = vec![registry];
    if registry == "docker.io" {
        hosts.extend(["auth.docker.io", "registry-1.docker.io", "index.docker.io"]);
    }
    let (mut matched, mut user, mut password) = (false, None, None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if matched && password.is_some() {
                    break;
                }
                matched = word == "default" || words.next().is_some_and(|host| hosts.contains(&host));
                (user, password) = (None, None);
            }
            "login" if matched => user = words.next(),
            "password" if matched => password = words.next(),
            _ => {}
        }
    }
    let password = password.filter(|_| matched)?;
    let password = match password.strip_prefix("$(").and_then(|p| p.strip_suffix(')')) {
        // To execute what the file says is safe: nobody else can have written it, as a start file of the shell.
        Some(command) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).stderr(Stdio::null());
            rt_sys::process::give_callers_umask(&mut shell);
            let (_, printed) = output::stdout_of(&mut shell, None).ok()?;
            String::from_utf8(printed).ok()?.trim_end().to_owned()
        }
        None => password.to_owned(),
    };
    Some(Credentials::Password { user: user.unwrap_or_default().to_owned(), password })
}

/// Fails for a file that a login would write where others than root and the caller can write it or put something in its place: what
/// is in it stays, and would count from then on.
///
/// # Errors
/// Also where the kernel does not say.
pub fn require_own(path: &Path) -> Result<()> {
    own_file::require(path)
}

/// Adds (or with none removes) a registry in a file of docker's format, whoever wrote it ([`require_own`]); true if something changed.
pub fn store(path: &Path, registry: &str, credentials: Option<&Credentials>) -> Result<bool> {
    let mut file = parse_json(path, own_file::read_any(path)?)?.unwrap_or_else(|| json!({}));
    let root = file.as_object_mut().ok_or_else(|| err!("{}: not a JSON object", path.display()))?;
    let auths = root.entry("auths").or_insert_with(|| json!({}));
    let auths = auths.as_object_mut().ok_or_else(|| err!("{}: auths is not an object", path.display()))?;
    match credentials {
        None => {
            let before = auths.len();
            let gone = keys(registry, "");
            auths.retain(|key, _| !gone.iter().any(|g| plain_key(g.trim_end_matches('/')) == plain_key(key)));
            if auths.len() == before {
                return Ok(false);
            }
        }
        Some(Credentials::Password { user, password }) => {
            auths.insert(registry.into(), json!({ "auth": base64(format!("{user}:{password}").as_bytes()) }));
        }
        Some(Credentials::IdentityToken(token)) => {
            auths.insert(registry.into(), json!({ "identitytoken": token }));
        }
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .context(|| format!("make {}", dir.display()))?;
    let draft = dir.join(format!(".auth-{}", unique::name()));
    let text = serde_json::to_vec_pretty(&file).map_err(|e| err!("{e}"))?;
    let mut out = fs::File::options().write(true).create_new(true).mode(0o600).open(&draft);
    let written =
        out.as_mut().map_err(|e| std::io::Error::from(e.kind())).and_then(|file| file.write_all(&text));
    let written = written.and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.context(|| format!("write {}", path.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    #[test]
    fn the_most_exact_entry_wins() {
        let file = json!({"auths": {
            "quay.io": {"auth": base64(b"a:1")},
            "quay.io/team": {"auth": base64(b"b:2:3")},
            "https://index.docker.io/v1/": {"auth": base64(b"hub:x")},
            "https://old.example/v2/": {"username": "u", "password": "p"},
            "id.example": {"identitytoken": "t", "auth": base64(b"c:4")},
        }});
        let find = |registry: &str, repository: &str| from_docker(&file, registry, repository).unwrap();
        assert_eq!(find("quay.io", "x/y"), password("a", "1"));
        assert_eq!(find("quay.io", "team/y"), password("b", "2:3"));
        assert_eq!(find("docker.io", "library/debian"), password("hub", "x"));
        assert_eq!(find("old.example", "x"), password("u", "p"));
        assert_eq!(find("id.example", "x"), Some(Credentials::IdentityToken("t".into())));
        assert_eq!(find("none.example", "x"), None);
    }

    #[test]
    fn netrc_of_enroot() {
        let text = "# comment\nmachine nvcr.io login $oauthtoken password abc\n\
            machine auth.docker.io login me password $(echo  secret word)\nmachine x login y\n\
            machine words password $(readlink /proc/self/fd/2)\n";
        assert_eq!(from_netrc(text, "nvcr.io"), password("$oauthtoken", "abc"));
        assert_eq!(from_netrc(text, "docker.io"), password("me", "secret word"));
        assert_eq!(from_netrc(text, "x"), None);
        assert_eq!(from_netrc(text, "other"), None);
        // What the command says may go to root's log.
        assert_eq!(from_netrc(text, "words"), password("", "/dev/null"));
    }

    #[test]
    fn stored_found_and_removed() {
        let dir = std::env::temp_dir().join(format!("oci-registry-{}", unique::name()));
        let path = dir.join("sub/auth.json");
        let places = CredentialFiles { docker: vec![path.clone()], ..CredentialFiles::default() };
        store(&path, "r.example:5000", password("u", "p").as_ref()).unwrap();
        store(&path, "docker.io", password("h", "q").as_ref()).unwrap();
        assert_eq!(places.find("r.example:5000", "x").unwrap(), password("u", "p"));
        assert!(store(&path, "r.example:5000", None).unwrap());
        assert!(!store(&path, "r.example:5000", None).unwrap());
        assert_eq!(places.find("r.example:5000", "x").unwrap(), None);
        assert_eq!(places.find("docker.io", "x").unwrap(), password("h", "q"));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(dir).unwrap();
    }
}
