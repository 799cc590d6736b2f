//! Numbers of devices in a job's environment, which must fit the devices that the container has.

use super::bundle::Bundle;

/// The parts of a list separated by commas; none for what means nothing.
pub(crate) fn words(list: &str) -> Vec<String> {
    let words = list.split(',').map(str::trim).filter(|w| !w.is_empty());
    words.filter(|w| !matches!(*w, "void" | "none" | "NoDevFiles")).map(str::to_owned).collect()
}

/// The GPUs of the job, as the node numbers them: Slurm's list, which no cgroup changes.
pub(crate) fn slurm_gpus(bundle: &Bundle) -> Option<Vec<String>> {
    bundle.job("SLURM_STEP_GPUS").or_else(|| bundle.job("SLURM_JOB_GPUS")).map(words)
}

/// The value of a job's variable. Within Slurm it may stand in the caller's environment; without, only the
/// container's own environment speaks of this container.
pub(crate) fn job_list(bundle: &Bundle, name: &str) -> Option<Vec<String>> {
    let in_slurm = bundle.job("SLURM_JOB_ID").is_some();
    let value = if in_slurm { bundle.job(name) } else { bundle.env(name) };
    value.map(words)
}

/// True where the job's variable `name` is no word about one vendor's GPUs: Slurm sets those of all vendors beside each
/// other where it has not been told what the GPUs are.
pub(crate) fn is_for_any_vendor(bundle: &Bundle, name: &str) -> bool {
    const NAMES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
    let value = bundle.job(name);
    value.is_some() && NAMES.into_iter().any(|other| other != name && bundle.job(other) == value)
}

/// `list` as it must be where of the node's devices only `share` is there, and `count` devices in all; `None`
/// where it names something else.
///
/// Slurm counts either the node's devices or, where it confines devices by cgroup, the job's. Numbers that fit
/// the second are taken as such. Names (UUIDs) mean the same everywhere. A part behind a dot stays.
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
