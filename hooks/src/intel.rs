//! Intel GPUs (Level Zero) and Gaudi accelerators.

use super::drm;
use crate::kit::bundle::Bundle;
use crate::kit::edits::Edits;
use crate::kit::numbering::{is_for_any_vendor, job_list, renumbered, words};
use crate::kit::tree::Tree;
use rt_sys::bail;
use rt_sys::error::{Context, Result};

const MASK: &str = "ZE_AFFINITY_MASK";
/// This hook's own variable, because Level Zero has none that says which devices a container gets.
const DEVICES: &str = "RT_INTEL_DEVICES";
const INTEL: &str = "0x8086";

/// What `bundle` gets of the Intel devices on `host`.
pub(crate) fn edits(bundle: &Bundle, host: &Tree) -> Result<Edits> {
    let mut edits = Edits::default();
    add_gpus(&mut edits, bundle, host)?;
    add_gaudi(&mut edits, bundle, host)?;
    Ok(edits)
}

/// What a precreate hook changes in the environment.
pub(crate) fn renumbered_env(bundle: &Bundle, host: &Tree) -> Result<Vec<String>> {
    let (None, Some(list)) = (bundle.env(DEVICES), job_list(bundle, MASK)) else { return Ok(Vec::new()) };
    let gpus = gpus(host);
    if gpus.is_empty() || bundle.env(MASK).is_none() {
        return Ok(Vec::new());
    }
    let Some(share) = share(bundle, &list, &gpus)? else { return Ok(Vec::new()) };
    let new = renumbered(&list, &share, share.len()).filter(|new| *new != list);
    let devices: Vec<String> = share.iter().map(usize::to_string).collect();
    Ok(new.map_or(Vec::new(), |new| {
        vec![format!("{MASK}={}", new.join(",")), format!("{DEVICES}={}", devices.join(","))]
    }))
}

fn add_gpus(edits: &mut Edits, bundle: &Bundle, host: &Tree) -> Result<()> {
    let asked = bundle.env(DEVICES).map(str::trim);
    let mask = bundle.env(MASK).map(words);
    if asked.is_none() && mask.is_none() || matches!(asked, Some("" | "void" | "none")) {
        return Ok(());
    }
    let gpus = gpus(host);
    if gpus.is_empty() {
        edits.note("no Intel GPU on this node: nothing is added");
        return Ok(());
    }
    let all = || (0..gpus.len()).collect();
    let chosen = match (asked, mask) {
        (Some("all"), _) => all(),
        (Some(list), _) => pick(&words(list), &gpus).context(|| DEVICES)?,
        (None, Some(list)) if !list.is_empty() => match share(bundle, &list, &gpus)? {
            None => all(),
            Some(share) if renumbered(&list, &share, share.len()).is_some_and(|new| new == list) => share,
            Some(_) => {
                edits.note(format!(
                    "{MASK}={} counts all GPUs of the node, so all are there (as a precreate hook, this hook would \
                     give those only, and renumber)",
                    list.join(",")
                ));
                all()
            }
        },
        _ => all(),
    };
    chosen.into_iter().for_each(|n| drm::add(edits, &gpus[n], host));
    Ok(())
}

/// The GPUs that the mask names; `None` where it is meant for another vendor's GPUs.
fn share(bundle: &Bundle, mask: &[String], gpus: &[String]) -> Result<Option<Vec<usize>>> {
    match pick(mask, gpus) {
        Err(_) if is_for_any_vendor(bundle, MASK) => Ok(None),
        share => share.context(|| MASK).map(Some),
    }
}

/// The GPUs that `list` names: by number, as `2` or `2.1` for a part of it, or by PCI address.
fn pick(list: &[String], gpus: &[String]) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for word in list {
        let number = word.split('.').next().unwrap_or_default();
        let found = match number.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < gpus.len()),
            Err(_) => gpus.iter().position(|pci| pci == word),
        };
        let Some(found) = found else { bail!("no Intel GPU {word:?}: this node has {}", gpus.len()) };
        all.push(found);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The PCI addresses of the GPUs in ascending order, in which Level Zero numbers them.
fn gpus(host: &Tree) -> Vec<String> {
    let renders = host.list("/sys/class/drm").into_iter().filter(|name| name.starts_with("renderD"));
    let mut all: Vec<String> = renders
        .filter(|name| host.text(format!("/sys/class/drm/{name}/device/vendor")).as_deref() == Some(INTEL))
        .filter_map(|name| {
            let device = host.real(format!("/sys/class/drm/{name}/device"))?;
            Some(device.file_name()?.to_str()?.to_owned())
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn add_gaudi(edits: &mut Edits, bundle: &Bundle, host: &Tree) -> Result<()> {
    let name = "HABANA_VISIBLE_DEVICES";
    let value = match bundle.env(name).map(str::trim) {
        None | Some("" | "void" | "none") => return Ok(()),
        Some(value) => value,
    };
    // The nodes of the accel class, or those of older drivers: directory, device, control device.
    let forms = [("/dev/accel", "accel", "accel_controlD"), ("/dev", "hl", "hl_controlD")];
    let numbers = |dir: &str, prefix: &str| -> Vec<u32> {
        let names = host.list(dir);
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    };
    let found = forms.into_iter().map(|form| (form, numbers(form.0, form.1))).find(|(_, n)| !n.is_empty());
    let Some(((dir, device, control), present)) = found else {
        edits.note("no Gaudi accelerator on this node: nothing is added");
        return Ok(());
    };
    let chosen: Vec<u32> = if value == "all" {
        present
    } else {
        let mut chosen = Vec::new();
        for word in words(value) {
            match word.parse().ok().filter(|n| present.contains(n)) {
                Some(number) => chosen.push(number),
                None => {
                    bail!("{name}: no accelerator {word:?} among {present:?} of {dir} (hl-smi lists them)")
                }
            }
        }
        chosen
    };
    for number in chosen {
        edits.device(format!("{dir}/{device}{number}"));
        let control = format!("{dir}/{control}{number}");
        if host.has(&control) {
            edits.device(control);
        }
    }
    Ok(())
}
