//! What keeps the libraries of parallel programs from reading another rank's memory, where the kernel does not allow it.
//!
//! A rank sends a large message to another one of the same node by process_vm_readv(2) (cross memory attach) or by
//! /proc/PID/fd. Both need the rights of ptrace(2) over the other process, which a process has in its own user namespace and
//! below. Ranks in containers of their own have namespaces of their own. Most releases of these libraries do not find that
//! out: they hang, or abort in the middle of the program. Through shared memory all of them work.

use crate::launchers::LAUNCHERS;

/// Each variable with its value, for programs that have none of that name.
const VARIABLES: [(&str, &str); 10] = [
    // Open MPI 4 falls back to an emulation by itself, and hangs in it; 5 has the mechanisms in a framework of their own.
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ("OMPI_MCA_smsc", "^cma"),
    // UCX: the transport, and the way by which one process opens the shared memory of another.
    ("UCX_TLS", "^cma"),
    ("UCX_POSIX_USE_PROC_LINK", "n"),
    // The provider shm of libfabric.
    ("FI_SHM_DISABLE_CMA", "1"),
    // MPICH 4, Cray MPICH, MVAPICH2.
    ("MPIR_CVAR_CH4_CMA_ENABLE", "0"),
    ("MPICH_SMP_SINGLE_COPY_MODE", "NONE"),
    ("MV2_SMP_USE_CMA", "0"),
    // Omni-Path's libraries.
    ("PSM2_KASSIST_MODE", "none"),
    ("PSM3_KASSIST_MODE", "none"),
];

/// Adds the variables to the environment of a program that has a launcher, and a user namespace that it shares with no other
/// rank.
pub fn avoid(env: &mut Vec<String>) {
    let name = |variable: &String| variable.split_once('=').map_or(0, |(name, _)| name.len());
    let has = |env: &[String], wanted: &str| env.iter().any(|variable| &variable[..name(variable)] == wanted);
    let value = |wanted: &str| {
        env.iter().find(|variable| &variable[..name(variable)] == wanted).map(|v| v[name(v) + 1..].to_owned())
    };
    // A server of PMIx may say nothing but the rank.
    if !has(env, "PMIX_RANK") && !LAUNCHERS.iter().any(|launcher| launcher.has_started(&value)) {
        return;
    }
    for (variable, value) in VARIABLES {
        if !has(env, variable) {
            env.push(format!("{variable}={value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_get_them_and_what_is_said_counts() {
        let mut alone = vec!["PATH=/bin".to_owned(), "PMI_RANKS=1".to_owned(), "odd".to_owned()];
        let before = alone.clone();
        avoid(&mut alone);
        assert_eq!(alone, before);
        let mut rank = vec!["PMI_RANK=0".to_owned(), "UCX_TLS=tcp".to_owned()];
        avoid(&mut rank);
        assert_eq!(rank.len(), 2 + VARIABLES.len() - 1);
        assert!(rank.contains(&"UCX_TLS=tcp".to_owned()) && !rank.contains(&"UCX_TLS=^cma".to_owned()));
        assert!(rank.contains(&"OMPI_MCA_btl_vader_single_copy_mechanism=none".to_owned()));
    }
}
