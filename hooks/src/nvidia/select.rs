//! Which of the node's GPUs a container gets.

use super::driver::{Driver, Gpu, Mig};
use super::request::Visible;
use crate::kit::bundle::Bundle;
use crate::kit::numbering::{self, renumbered};
use rt_sys::error::Result;
use rt_sys::{bail, err};

/// The GPUs and MIG instances of a container, by their place in [`Driver`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    /// Whole GPUs, in ascending order.
    pub gpus: Vec<usize>,
    /// MIG compute instances, in ascending order.
    pub mig: Vec<usize>,
}

impl Selected {
    fn renumbered(&self, cuda: &[String]) -> Option<Vec<String>> {
        renumbered(cuda, &self.gpus, self.gpus.len() + self.mig.len())
    }

    /// All GPUs that are there, whole or in part.
    pub(crate) fn all_gpus(&self, driver: &Driver) -> Vec<usize> {
        let mut gpus: Vec<usize> = self.mig.iter().map(|n| driver.mig[*n].gpu).collect();
        gpus.extend(&self.gpus);
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }
}

/// The GPUs of the job that this process runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobGpus {
    /// Slurm's list of the job's or the step's GPUs, as the node numbers them.
    pub gpus: Option<Vec<String>>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub cuda: Option<Vec<String>>,
    /// The lists may be meant for another vendor's GPUs.
    pub any_vendor: bool,
}

impl JobGpus {
    /// Reads the job's environment.
    pub(crate) fn of(bundle: &Bundle) -> JobGpus {
        const CUDA: &str = "CUDA_VISIBLE_DEVICES";
        JobGpus {
            gpus: numbering::slurm_gpus(bundle),
            cuda: numbering::job_list(bundle, CUDA),
            any_vendor: numbering::is_for_any_vendor(bundle, CUDA),
        }
    }

    /// The job's part of the node; `None` where the job says nothing.
    fn share(&self, driver: &Driver) -> Result<Option<Selected>> {
        let Some(list) = self.gpus.as_ref().or(self.cuda.as_ref()) else { return Ok(None) };
        match pick(list, driver) {
            Err(_) if self.any_vendor => Ok(None),
            // CUDA ignores an unknown device and all behind it. An error tells the user instead.
            share => share.map(Some),
        }
    }
}

/// The devices that `visible` asks for and that the job has.
pub(crate) fn select(
    visible: &Visible,
    driver: &Driver,
    job: &JobGpus,
    notes: &mut Vec<String>,
) -> Result<Selected> {
    let wanted = match visible {
        Visible::Nothing | Visible::NoDevice | Visible::Cdi(_) => return Ok(Selected::default()),
        Visible::All => everything(driver),
        Visible::These(list) => return pick(list, driver),
    };
    let Some(share) = job.share(driver)? else { return Ok(wanted) };
    let known = |cuda: &[String]| share.renumbered(cuda).is_some_and(|new| new == cuda);
    match &job.cuda {
        Some(cuda) if !cuda.is_empty() && !known(cuda) => {
            let text = cuda.join(",");
            notes.push(format!(
                "CUDA_VISIBLE_DEVICES={text} counts all GPUs of the node, so all are there (as a precreate hook, \
                 this hook would give the job's only, and renumber)"
            ));
            Ok(wanted)
        }
        _ => {
            notes.push(format!("the job has {} of the node's {} GPUs", share.gpus.len(), driver.gpus.len()));
            Ok(share)
        }
    }
}

/// The variables that a precreate hook gives a container whose GPUs have other numbers than on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renumbered {
    /// `CUDA_VISIBLE_DEVICES`, as the container counts.
    pub cuda: String,
    /// `NVIDIA_VISIBLE_DEVICES`, as the node counts.
    pub visible: String,
}

/// The new values of the variables; `None` where they stay as they are.
pub(crate) fn renumber(visible: &Visible, driver: &Driver, job: &JobGpus) -> Result<Option<Renumbered>> {
    let (Visible::All, Some(cuda)) = (visible, &job.cuda) else { return Ok(None) };
    let Some(share) = job.share(driver)? else { return Ok(None) };
    // In the container only the job's GPUs are there, and CUDA counts from 0 what it finds.
    let new = share.renumbered(cuda).filter(|new| new != cuda);
    let devices: Vec<String> = share.gpus.iter().map(usize::to_string).collect();
    Ok(new.map(|new| Renumbered { cuda: new.join(","), visible: devices.join(",") }))
}

fn everything(driver: &Driver) -> Selected {
    // CUDA cannot use a GPU in MIG mode as a whole.
    let whole = |gpu: &usize| !driver.mig.iter().any(|m| m.gpu == *gpu);
    Selected { gpus: (0..driver.gpus.len()).filter(whole).collect(), mig: (0..driver.mig.len()).collect() }
}

/// The devices that `list` names.
pub(crate) fn pick(list: &[String], driver: &Driver) -> Result<Selected> {
    let mut selected = Selected::default();
    for word in list {
        if let Some(mig) = find_mig(word, driver)? {
            selected.mig.extend(mig);
        } else {
            let gpu = find_gpu(word, &driver.gpus)?;
            // A GPU in MIG mode can be used only by its instances.
            let instances = (0..driver.mig.len()).filter(|n| driver.mig[*n].gpu == gpu);
            let before = selected.mig.len();
            selected.mig.extend(instances);
            if selected.mig.len() == before {
                selected.gpus.push(gpu);
            }
        }
    }
    selected.gpus.sort_unstable();
    selected.gpus.dedup();
    selected.mig.sort_unstable();
    selected.mig.dedup();
    Ok(selected)
}

fn find_gpu(word: &str, gpus: &[Gpu]) -> Result<usize> {
    if let Ok(index) = word.parse::<usize>() {
        return if index < gpus.len() {
            Ok(index)
        } else {
            bail!("no GPU {index}: this node has {} (nvidia-smi -L lists them)", gpus.len())
        };
    }
    if word.starts_with("GPU-") {
        let found: Vec<usize> = (0..gpus.len()).filter(|n| gpus[*n].uuid.starts_with(word)).collect();
        return match found[..] {
            [one] => Ok(one),
            [] if gpus.iter().any(|g| g.uuid.contains('?') || g.uuid.is_empty()) => {
                bail!(
                    "GPU {word}: some GPUs have not told their UUID since boot (run nvidia-smi once, or \
                       start nvidia-persistenced)"
                )
            }
            [] => bail!("no GPU {word} on this node (nvidia-smi -L lists them)"),
            _ => bail!("GPU {word} is not unique"),
        };
    }
    let same = |gpu: &Gpu| gpu.pci.eq_ignore_ascii_case(word) || gpu.pci.trim_start_matches("0000:") == word;
    gpus.iter().position(same).ok_or_else(|| {
        err!("no GPU {word:?} on this node (an index, GPU-UUID, PCI address, GPU:MIG index or MIG-GPU-UUID/GI/CI)")
    })
}

/// `GPU:MIG` by indices, `MIG-GPU-UUID/GI/CI`, or `MIG-UUID`; `None` where `word` names no MIG instance.
fn find_mig(word: &str, driver: &Driver) -> Result<Option<Vec<usize>>> {
    let all = |keep: &dyn Fn(&Mig) -> bool| -> Vec<usize> {
        (0..driver.mig.len()).filter(|n| keep(&driver.mig[*n])).collect()
    };
    if let Some(rest) = word.strip_prefix("MIG-GPU-") {
        let parts: Vec<&str> = rest.split('/').collect();
        let [uuid, gi, ci] = parts[..] else { bail!("{word}: not MIG-GPU-UUID/GI/CI") };
        let gpu = find_gpu(&format!("GPU-{uuid}"), &driver.gpus)?;
        let found = all(&|m| m.gpu == gpu && m.gi.to_string() == gi && m.ci.to_string() == ci);
        return if found.is_empty() { bail!("no MIG instance {word} on this node") } else { Ok(Some(found)) };
    }
    if word.starts_with("MIG-") {
        // The kernel does not show the UUIDs of instances; only NVML knows them.
        return match all(&|_| true)[..] {
            [one] => Ok(Some(vec![one])),
            [] => bail!("no MIG instance on this node, and so no {word}"),
            _ => bail!(
                "{word}: which of the node's MIG instances has this UUID is not to be seen in /proc (name it \
                        as GPU:MIG index, such as 0:1, or as MIG-GPU-UUID/GI/CI)"
            ),
        };
    }
    let Some((gpu, index)) = word.split_once(':') else { return Ok(None) };
    let (Ok(gpu), Ok(index)) = (gpu.parse::<usize>(), index.parse::<usize>()) else { return Ok(None) };
    let of_gpu = all(&|m| m.gpu == gpu);
    match of_gpu.get(index) {
        Some(found) => Ok(Some(vec![*found])),
        None => bail!("no MIG instance {word}: GPU {gpu} has {}", of_gpu.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver() -> Driver {
        let gpu = |n: u32| Gpu {
            pci: format!("0000:0{n}:00.0"),
            uuid: format!("GPU-{n}{n}{n}{n}-abcd"),
            minor: n,
            ..Gpu::default()
        };
        let mig = |gi| Mig { gpu: 3, gi, ci: 0, caps: [gi * 2, gi * 2 + 1] };
        Driver { gpus: (0..4).map(gpu).collect(), mig: vec![mig(1), mig(2)], ..Driver::default() }
    }

    fn list(text: &str) -> Vec<String> {
        numbering::words(text)
    }

    #[test]
    fn devices_are_named_in_many_ways() {
        let selected = |gpus: &[usize], mig: &[usize]| Selected { gpus: gpus.into(), mig: mig.into() };
        for (text, expected) in [
            ("0", selected(&[0], &[])),
            ("2,0,2", selected(&[0, 2], &[])),
            ("GPU-1111", selected(&[1], &[])),
            ("0000:02:00.0", selected(&[2], &[])),
            ("02:00.0", selected(&[2], &[])),
            ("3", selected(&[], &[0, 1])),
            ("3:1", selected(&[], &[1])),
            ("MIG-GPU-3333-abcd/1/0,0", selected(&[0], &[0])),
        ] {
            assert_eq!(pick(&list(text), &driver()).unwrap(), expected, "{text}");
        }
        for wrong in
            ["4", "GPU-9", "GPU-", "3:2", "0:0", "MIG-5", "MIG-GPU-3333/1", "MIG-GPU-3333/7/0", "x", "-1"]
        {
            assert!(pick(&list(wrong), &driver()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_job_gets_its_share_and_numbers_that_fit() {
        let job = |slurm: Option<&str>, cuda: Option<&str>| JobGpus {
            gpus: slurm.map(list),
            cuda: cuda.map(list),
            any_vendor: false,
        };
        let all = everything(&driver());
        for (slurm, cuda, gpus, new) in [
            (None, None, None, None),
            (Some("1,2"), None, Some(vec![1, 2]), None),
            (Some("1,2"), Some("0,1"), Some(vec![1, 2]), None),
            (Some("1,2"), Some("1"), Some(vec![1, 2]), None),
            // counted over the node: only precreate can make it fit
            (Some("1,2"), Some("1,2"), None, Some("0,1")),
            (Some("1,2"), Some("2,1"), None, Some("1,0")),
            (None, Some("2"), None, Some("0")),
            (None, Some("0,1"), Some(vec![0, 1]), None),
            (None, Some("GPU-2222"), Some(vec![2]), None),
        ] {
            let job = job(slurm, cuda);
            let selected = select(&Visible::All, &driver(), &job, &mut Vec::new()).unwrap();
            let expected = gpus.map_or(all.clone(), |gpus| Selected { gpus, mig: vec![] });
            assert_eq!(selected, expected, "{slurm:?} {cuda:?}");
            let renumbered = renumber(&Visible::All, &driver(), &job).unwrap();
            assert_eq!(renumbered.as_ref().map(|new| new.cuda.as_str()), new, "{slurm:?} {cuda:?}");
        }
    }
}
