//! Numbers of devices in a job's environment. They must fit the devices that the container has.

use super::bundle::Bundle;

/// The words of a list separated by commas, without those that stand for no device.
pub(crate) fn words(list: &str) -> Vec<String> {
    let words = list.split(',').map(str::trim).filter(|w| !w.is_empty());
    words.filter(|w| !matches!(*w, "void" | "none" | "NoDevFiles")).map(str::to_owned).collect()
}

/// The GPUs of the job, as the node numbers them: Slurm's list, which no cgroup changes.
pub(crate) fn slurm_gpus(bundle: &Bundle) -> Option<Vec<String>> {
    bundle.job("SLURM_STEP_GPUS").or_else(|| bundle.job("SLURM_JOB_GPUS")).map(words)
}

/// The words of a job's variable. In a job of Slurm the variable can be in the caller's environment. Without Slurm only
/// the container's environment counts, because the caller's may be about something else.
pub(crate) fn job_list(bundle: &Bundle, name: &str) -> Option<Vec<String>> {
    let in_slurm = bundle.job("SLURM_JOB_ID").is_some();
    let value = if in_slurm { bundle.job(name) } else { bundle.env(name) };
    value.map(words)
}

/// True where the job's variable `name` says nothing about one vendor's GPUs. Slurm sets the variables of all vendors to
/// the same value if gres.conf does not say whose GPUs they are.
pub(crate) fn is_for_any_vendor(bundle: &Bundle, name: &str) -> bool {
    const NAMES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
    let value = bundle.job(name);
    value.is_some() && NAMES.into_iter().any(|other| other != name && bundle.job(other) == value)
}

/// The numbers of `list` as a container must have them that gets only the devices `share` of the node, and `count`
/// devices in all. `None` where the list names a device outside the share.
///
/// Slurm numbers either the node's devices or, if it confines devices by cgroup, the job's. Numbers below `count` are
/// taken for the job's. Names (UUIDs) mean the same everywhere. The part of a word behind a dot stays.
pub(crate) fn renumbered(list: &[String], share: &[usize], count: usize) -> Option<Vec<String>> {
    let parts = list.iter().map(|word| {
        let (number, rest) = word.split_at(word.find('.').unwrap_or(word.len()));
        Some((number.parse::<usize>().ok()?, rest))
    });
    let Some(parts) = parts.collect::<Option<Vec<_>>>() else { return Some(list.to_vec()) };
    if parts.iter().all(|(number, _)| *number < count) {
        return Some(list.to_vec());
    }
    let place = |number: usize| share.iter().position(|device| *device == number);
    parts.into_iter().map(|(number, rest)| Some(format!("{}{rest}", place(number)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_share() {
        let new =
            |list: &str, share: &[usize]| renumbered(&words(list), share, share.len()).map(|n| n.join(","));
        assert_eq!(new("0,1", &[2, 3]).as_deref(), Some("0,1"));
        assert_eq!(new("3,2", &[2, 3]).as_deref(), Some("1,0"));
        assert_eq!(new("3.1,2", &[2, 3]).as_deref(), Some("1.1,0"));
        assert_eq!(new("GPU-7", &[2]).as_deref(), Some("GPU-7"));
        assert_eq!(new("7", &[2]), None);
        assert_eq!(words(" 1, ,none,x"), ["1", "x"]);
    }
}
