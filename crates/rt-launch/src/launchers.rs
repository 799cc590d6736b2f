//! The launchers that `rt run` knows a rank of, and whose variables hooks are told.

/// A launcher of several ranks.
#[derive(Debug)]
pub struct Launcher {
    /// What people call it.
    pub name: &'static str,
    /// Variables of which it gives each rank at least one.
    pub rank: &'static [&'static str],
}

/// One row for each.
pub const LAUNCHERS: [Launcher; 3] = [
    Launcher { name: "mpirun of Open MPI", rank: &["OMPI_COMM_WORLD_SIZE"] },
    Launcher { name: "PMI, of MPICH's mpiexec and of Slurm", rank: &["PMI_RANK", "PMI_SIZE"] },
    Launcher { name: "PMIx", rank: &["PMIX_RANK"] },
];

/// Beginnings of the names of variables by which launchers say what a task has of the node. Our hooks are told them.
pub const HOOK_PREFIXES: [&str; 1] = ["SLURM_"];
