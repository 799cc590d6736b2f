//! The launchers that `rt run` knows a rank of, and whose variables hooks are told.

/// For each launcher, variables of which it gives each rank at least one.
pub const LAUNCHERS: [&[&str]; 3] = [
    // mpirun of Open MPI.
    &["OMPI_COMM_WORLD_SIZE"],
    // PMI, of MPICH's mpiexec and of Slurm.
    &["PMI_RANK", "PMI_SIZE"],
    // PMIx.
    &["PMIX_RANK"],
];

/// Beginnings of the names of variables by which launchers say what a task has of the node. Our hooks are told them.
pub const HOOK_PREFIXES: [&str; 1] = ["SLURM_"];
