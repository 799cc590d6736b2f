//! /dev/dri: the nodes of a GPU, by its PCI address.

use crate::kit::edits::Edits;
use crate::kit::tree::Tree;

/// Adds the DRM nodes of the GPU with the PCI address `pci`, and the links in by-path that name it by this address.
pub(crate) fn add(edits: &mut Edits, pci: &str, host: &Tree) {
    for node in host.list(format!("/sys/bus/pci/devices/{pci}/drm")) {
        let kind = match &node {
            n if n.starts_with("card") => "card",
            n if n.starts_with("renderD") => "render",
            _ => continue,
        };
        let path = format!("/dev/dri/{node}");
        if !host.has(&path) {
            continue;
        }
        edits.device(path);
        let link = format!("/dev/dri/by-path/pci-{pci}-{kind}");
        if host.has(&link) {
            edits.link(link, format!("../{node}"));
        }
    }
}
