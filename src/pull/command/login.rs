//! `rt login` and `rt logout`.

use std::io::{BufRead, Write};

use super::super::cli::Call;
use super::super::credentials::{self, Credentials, Places};
use super::super::disk;
use super::super::interrupt::Interrupt;
use super::super::reference::Reference;
use super::super::registries_conf::Registries;
use super::super::registry::Registry;
use crate::error::{Context, Result};
use crate::{bail, err};

/// `rt login [REGISTRY]`: asks, tries, and keeps what worked.
pub fn login(call: &Call) -> Result<()> {
    let registry = registry_name(call)?;
    let user = match call.value("username") {
        Some(user) => user.to_owned(),
        None => prompt("user name: ", true)?,
    };
    let password = match (call.value("password"), call.has("password-stdin")) {
        (Some(password), _) => password.to_owned(),
        (None, true) => read_line()?,
        (None, false) => prompt("password: ", false)?,
    };
    let credentials = Credentials::Password { user, password };
    let mut access = super::access(call)?;
    access.credentials = Some(credentials.clone());
    // A name is needed to parse; only the registry's root is asked.
    let reference: Reference = format!("{registry}/x").parse()?;
    let interrupt = Interrupt::install();
    Registry::new(&reference, &Registries::default(), access, &interrupt)?
        .check_login()
        .map_err(|e| e.context(format!("log in to {registry}")))?;
    let path = file(call)?;
    credentials::store(&path, &registry, Some(&credentials))?;
    say!("logged in to {registry} (kept in {})\n", path.display());
    Ok(())
}

/// `rt logout [REGISTRY]`.
pub fn logout(call: &Call) -> Result<()> {
    let registry = registry_name(call)?;
    let path = file(call)?;
    if !credentials::store(&path, &registry, None)? {
        bail!("not logged in to {registry} by {}", path.display());
    }
    say!("logged out of {registry}\n");
    Ok(())
}

fn registry_name(call: &Call) -> Result<String> {
    match &call.arguments[..] {
        [] => Ok("docker.io".to_owned()),
        [name] => {
            let host = name.trim_start_matches("https://").trim_end_matches('/');
            let reference: Reference = format!("{host}/x").parse()?;
            match reference.registry.as_str() == "docker.io" && !host.contains("docker") {
                // `rt login quay` would else go to Docker Hub.
                true => bail!("{name}: not a registry's host name"),
                false => Ok(reference.registry),
            }
        }
        _ => bail!("give one registry"),
    }
}

fn file(call: &Call) -> Result<std::path::PathBuf> {
    match call.value("authfile") {
        Some(path) => Ok(path.into()),
        None => Places::from_environment()
            .login_file()
            .map(Into::into)
            .ok_or_else(|| err!("no home directory to keep credentials in (use --authfile)")),
    }
}

fn prompt(text: &str, echo: bool) -> Result<String> {
    tell!("{text}");
    let _ = std::io::stderr().flush();
    if !echo {
        disk::set_echo(false).map_err(|e| e.hint("without a terminal use --password-stdin"))?;
    }
    let line = read_line();
    if !echo {
        disk::set_echo(true)?;
        tell!("\n");
    }
    line
}

fn read_line() -> Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context(|| "read standard input")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
