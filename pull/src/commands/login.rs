//! `rt login` and `rt logout`.

use super::{connect_options, operand, tell};
use oci_content::interrupt::Interrupt;
use oci_registry::credentials::{self, CredentialFiles, Credentials};
use oci_registry::reference::Reference;
use oci_registry::registries_conf::Registries;
use oci_registry::registry::Registry;
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::print;
use rt_sys::error::{Context, Result};
use rt_sys::tty::Silence;
use rt_sys::{bail, err};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::path::PathBuf;

/// `rt login [REGISTRY]`: asks, tries, and keeps what worked.
pub(super) fn login(call: &Call) -> Result<u8> {
    let registry = registry_name(call)?;
    let interrupt = Interrupt::install();
    let asks = call.flags.text(&PASSWORD)?.is_none() && !call.flags.has(&PASSWORD_STDIN);
    if asks && !rt_sys::tty::stdin_is_terminal() {
        return Err(err!(
            "log in to {registry}: standard input is no terminal, on which a password could be typed"
        )
        .hint("--username NAME --password-stdin"));
    }
    let user = match call.flags.text(&USERNAME)? {
        Some(user) => user.to_owned(),
        None => {
            tell("user name: ");
            read_line(&interrupt)?
        }
    };
    let password = match (call.flags.text(&PASSWORD)?, call.flags.has(&PASSWORD_STDIN)) {
        (Some(password), _) => password.to_owned(),
        (None, true) => read_line(&interrupt)?,
        (None, false) => {
            tell("password: ");
            let silence = Silence::new()?;
            let password = read_line(&interrupt);
            drop(silence);
            tell("\n");
            password?
        }
    };
    let credentials = Credentials::Password { user: user.clone(), password };
    let mut connect = connect_options(&call.flags)?;
    connect.insecure |= Registries::from_environment()?.is_insecure(&registry);
    connect.credentials = Some(credentials.clone());
    // A reference has a repository. No repository is asked for here, only the API's root, and no mirror gets the password.
    let reference: Reference = format!("{registry}/x").parse()?;
    Registry::new(&reference, &Registries::default(), connect, &interrupt)?
        .check_login()
        .map_err(|e| e.context(format!("log in to {registry} as {user}")))?;
    let path = file(call)?;
    credentials::store(&path, &registry, Some(&credentials))?;
    print(format!("logged in to {registry} (kept in {})\n", path.display()))
}

/// `rt logout [REGISTRY]`.
pub(super) fn logout(call: &Call) -> Result<u8> {
    let registry = registry_name(call)?;
    let path = file(call)?;
    if !credentials::store(&path, &registry, None)? {
        bail!("not logged in to {registry} by {}", path.display());
    }
    print(format!("logged out of {registry}\n"))
}

fn registry_name(call: &Call) -> Result<String> {
    if call.operands.is_empty() {
        return Ok("docker.io".to_owned());
    }
    let name = operand(call, 0)?;
    let host = name.trim_start_matches("https://").trim_end_matches('/');
    let reference: Reference = format!("{host}/x").parse()?;
    // `quay/x` is a repository of Docker Hub, where `rt login quay` must not send a password.
    if reference.registry.as_str() == "docker.io" && !host.contains("docker") {
        bail!("{name}: not a registry's host name");
    }
    Ok(reference.registry)
}

fn file(call: &Call) -> Result<PathBuf> {
    if let Some(path) = call.flags.path(&AUTHFILE) {
        return Ok(path);
    }
    let files = CredentialFiles::from_environment()?;
    let path = files.login_file();
    let path = path.ok_or_else(|| err!("no home directory to keep credentials in (use --authfile)"))?;
    if files.named.is_empty() {
        credentials::require_own(path)?;
    }
    Ok(path.to_owned())
}

/// The next line of standard input. It is waited for in pieces, because a read goes on after a signal, and read by bytes,
/// so that none is kept that belongs to the line after it.
fn read_line(interrupt: &Interrupt) -> Result<String> {
    let stdin = std::io::stdin();
    let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        interrupt.check()?;
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => continue,
            ready => ready.context(|| "wait for standard input")?,
        };
        match rustix::io::read(&stdin, &mut byte).context(|| "read standard input")? {
            0 => break,
            _ if byte == *b"\n" => break,
            _ => line.push(byte[0]),
        }
    }
    let line = String::from_utf8(line).map_err(|_| err!("standard input: a line that is not UTF-8"))?;
    Ok(line.trim_end_matches('\r').to_owned())
}
