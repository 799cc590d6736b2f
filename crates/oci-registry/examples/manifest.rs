//! Prints the manifest or index of an image in a registry: `manifest IMAGE`.

#![expect(clippy::print_stdout, reason = "it is what the example answers")]

use std::error::Error;
use std::io;

use oci_content::interrupt::Interrupt;
use oci_registry::credentials::CredentialFiles;
use oci_registry::reference::Reference;
use oci_registry::registries_conf::Registries;
use oci_registry::registry::{ConnectOptions, Registry};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or_else(|| io::Error::other("needs IMAGE"))?;
    let reference: Reference = image.parse()?;
    let credential_files = CredentialFiles::from_environment()?;
    let connect = ConnectOptions { credential_files, ..ConnectOptions::default() };
    let registry =
        Registry::new(&reference, &Registries::from_environment()?, connect, &Interrupt::install())?;
    let (_, manifest) = registry.manifest(reference.manifest_name())?;
    println!("{}", String::from_utf8(manifest)?);
    Ok(())
}
