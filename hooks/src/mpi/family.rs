//! Which library is of which MPI: by its name and its symbols, never by the name alone.

use ld_so_cache::symbols::Symbols;
use std::fmt;

/// A binary interface of MPI. A program that was built for one runs with no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Abi {
    /// MPICH's, since 3.1 also that of Intel MPI, MVAPICH and Cray MPICH (the MPICH ABI compatibility initiative).
    Mpich,
    /// Open MPI's.
    OpenMpi,
    /// That of the MPI standard, since MPI 5.0.
    Standard,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Abi::Mpich => "MPICH",
            Abi::OpenMpi => "Open MPI",
            Abi::Standard => "MPI's standard ABI",
        })
    }
}

/// What a library is for. Libraries of the same ABI and role replace each other, whatever their names.
pub(super) type Role = &'static str;

/// The role of the library that has MPI itself.
pub(super) const C: Role = "C";

/// The libraries that programs are linked to: the name in front of `.so`, the ABI that it tells, and the role.
const STEMS: &[(&str, Option<Abi>, Role)] = &[
    ("libmpi", None, C),
    ("libmpich", Some(Abi::Mpich), C),
    ("libmpifort", Some(Abi::Mpich), "Fortran"),
    ("libmpichfort", Some(Abi::Mpich), "Fortran"),
    ("libmpichf90", Some(Abi::Mpich), "Fortran"),
    ("libmpicxx", Some(Abi::Mpich), "C++"),
    ("libmpichcxx", Some(Abi::Mpich), "C++"),
    ("libmpi_mpifh", Some(Abi::OpenMpi), "mpif.h"),
    ("libmpi_mpifh-gfortran", Some(Abi::OpenMpi), "mpif.h, gfortran"),
    ("libmpi_usempi", Some(Abi::OpenMpi), "use mpi"),
    ("libmpi_usempi_ignore_tkr", Some(Abi::OpenMpi), "use mpi, any kind"),
    ("libmpi_usempi_ignore_tkr-gfortran", Some(Abi::OpenMpi), "use mpi, any kind, gfortran"),
    ("libmpi_usempif08", Some(Abi::OpenMpi), "use mpi_f08"),
    ("libmpi_usempif08-gfortran", Some(Abi::OpenMpi), "use mpi_f08, gfortran"),
    ("libmpi_cxx", Some(Abi::OpenMpi), "C++"),
    ("libmpi_java", Some(Abi::OpenMpi), "Java"),
    ("liboshmem", Some(Abi::OpenMpi), "OpenSHMEM"),
    ("libompitrace", Some(Abi::OpenMpi), "traces"),
    ("libmpi_abi", Some(Abi::Standard), C),
];

/// The beginnings of the names of what belongs to these libraries and is of the same release, without a promise to others.
const INTERNAL: &[&str] =
    &["libopen-pal.so.", "libopen-rte.so.", "libmca_common_", "libprrte.so.", "libmpl.so.", "libopa.so."];

/// The stems of all libraries that programs are linked to.
pub(super) fn stems() -> impl Iterator<Item = &'static str> {
    STEMS.iter().map(|(stem, ..)| *stem)
}

/// A library's name, read: `libmpi.so.40`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// What the name alone tells of the ABI.
    pub abi: Option<Abi>,
    pub role: Role,
    /// The number that programs ask for. Another number is another interface.
    pub number: u32,
}

impl Name {
    /// Reads a SONAME; `None` where it is none of MPI's. Names without a number are for compilers, and those with several
    /// are files.
    pub(super) fn parse(name: &str) -> Option<Name> {
        let (stem, number) = name.split_once(".so.")?;
        let (_, abi, role) = *STEMS.iter().find(|(known, ..)| *known == stem)?;
        Some(Name { abi, role, number: number.parse().ok()? })
    }
}

/// True for a library that programs are not linked to, and that comes with those that they are.
pub(super) fn is_internal(name: &str) -> bool {
    INTERNAL.iter().any(|begin| name.starts_with(begin))
}

/// The ABI of a library that has MPI itself. What its name tells must be true.
pub(super) fn abi_of(name: &Name, symbols: &Symbols) -> Option<Abi> {
    let has = |symbol: &str| symbols.defines.contains_key(symbol);
    let found = match name.abi {
        Some(Abi::Standard) => Abi::Standard,
        // Open MPI's handles are addresses of its data; MPICH's are numbers.
        _ if has("ompi_mpi_comm_world") => Abi::OpenMpi,
        _ => Abi::Mpich,
    };
    (has("MPI_Init") && has("PMPI_Init") && name.abi.is_none_or(|told| told == found)).then_some(found)
}

/// True for a symbol that the MPI standard, or an ABI, has for programs: what any program may take.
pub(super) fn is_public(symbol: &str) -> bool {
    let standard = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let fortran = |rest: &str| rest.ends_with('_') && !rest.ends_with("__") && !rest.contains("f08");
    let handle = |rest: &str| !rest.ends_with("_addr") && !rest.starts_with("cxx");
    symbol.strip_prefix("MPI_").or(symbol.strip_prefix("PMPI_")).is_some_and(standard)
        || symbol.strip_prefix("mpi_").is_some_and(fortran)
        || ["ompi_mpi_comm_", "ompi_mpi_op_", "ompi_mpi_info_", "ompi_mpi_group_"]
            .iter()
            .any(|begin| symbol.strip_prefix(begin).is_some_and(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let mpi = Name::parse("libmpi.so.40").unwrap();
        assert_eq!((mpi.abi, mpi.role, mpi.number), (None, C, 40));
        let fortran = Name::parse("libmpichfort.so.12").unwrap();
        assert_eq!((fortran.abi, fortran.role, fortran.number), (Some(Abi::Mpich), "Fortran", 12));
        for other in ["libmpi.so", "libmpi.so.40.30.4", "libmpi.so.x", "libmpicc.so.1", "libmpi.40"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        assert!(is_internal("libopen-pal.so.40") && is_internal("libmca_common_ucx.so.40"));
        assert!(!is_internal("libmpi.so.40") && !is_internal("libpmix.so.2"));
    }

    #[test]
    fn public_symbols_are_those_of_the_standard() {
        for (symbol, expected) in [
            ("MPI_Init", true),
            ("PMPI_Comm_rank", true),
            ("ompi_mpi_comm_world", true),
            ("mpi_init_", true),
            ("MPIX_Bcast_init", false),
            ("mpi_init__", false),
            ("MPI_INIT", true),
            ("ompi_mpi_op_sum_addr", false),
            ("ompi_coll_base_bcast", false),
            ("opal_init", false),
        ] {
            assert_eq!(is_public(symbol), expected, "{symbol}");
        }
    }
}
