//! rt-hook-mpi: who asks, which libraries replace which, and every reason to refuse.

use crate::gpu::bundle;
use crate::standin::{self, Library, StandIn};
use rt_hooks::kit::edits::Edits;
use rt_hooks::kit::tree::Tree;
use std::sync::atomic::{AtomicU32, Ordering};

const LIB: &str = "/usr/lib/x86_64-linux-gnu";
const WORLD: (&str, Option<u64>) = ("ompi_mpi_comm_world", Some(512));
const GLIBC: [(&str, [&str; 1]); 1] = [("libc.so.6", ["GLIBC_2.34"])];

struct Node {
    host: StandIn,
    root: StandIn,
    program: &'static str,
}

/// A node without MPI, and a root with a program that takes nothing.
fn node() -> Node {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = |kind: &str| std::env::temp_dir().join(format!("rt-mpi-{kind}-{}-{n}", std::process::id()));
    let node =
        Node { host: StandIn::new(dir("host")), root: StandIn::new(dir("root")), program: "/bin/hello" };
    standin::glibc_root(&node.root);
    standin::glibc_root(&node.host);
    node
}

/// MPI's own library of Open MPI: all symbols that it must have, and `more`.
fn open_mpi(more: &[&'static str]) -> Library {
    let functions = ["MPI_Init", "PMPI_Init"].iter().chain(more).map(|name| (*name, None));
    Library {
        needed: vec!["libopen-pal.so.40", "libc.so.6"],
        symbols: functions.chain([WORLD]).collect(),
        requires: GLIBC.map(|(library, versions)| (library, versions.to_vec())).to_vec(),
        takes: vec!["opal_init"],
        ..Library::named("libmpi.so.40")
    }
}

/// Open MPI with its plugins and settings in `prefix`, as its own `make install` has it.
fn install_open_mpi(tree: &StandIn, lib: &str, version: &str, mpi: &Library) {
    tree.library(&format!("{lib}/libmpi.so.{version}"), mpi);
    let pal = Library { symbols: vec![("opal_init", None)], ..Library::named("libopen-pal.so.40") };
    tree.library(&format!("{lib}/libopen-pal.so.{version}"), &pal);
    let plugin = Library { needed: vec!["libopen-pal.so.40", "libfast.so.1"], ..Library::default() };
    tree.file(&format!("{lib}/openmpi/mca_btl_fast.so"), plugin.bytes());
}

fn mpich(soname: &'static str, more: &[&'static str]) -> Library {
    let functions = ["MPI_Init", "PMPI_Init"].iter().chain(more).map(|name| (*name, None));
    Library {
        needed: vec!["libc.so.6"],
        symbols: functions.collect(),
        requires: GLIBC.map(|(library, versions)| (library, versions.to_vec())).to_vec(),
        ..Library::named(soname)
    }
}

impl Node {
    fn of(&self, variables: &str) -> Result<Edits, String> {
        let (host, root) = (Tree::open(&self.host.dir).unwrap(), Tree::open(&self.root.dir).unwrap());
        let mut bundle = bundle(variables);
        bundle.args = vec![self.program.to_owned()];
        rt_hooks::mpi::edits(&bundle, &host, &root).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn ok(&self, variables: &str) -> Edits {
        self.of(variables).unwrap_or_else(|e| panic!("{variables}: {e}"))
    }

    #[track_caller]
    fn fails(&self, variables: &str, expected: &str) {
        let error = self.of(variables).expect_err(variables);
        assert!(error.contains(expected), "{variables}: {error}");
    }

    /// A program of the container that is linked to `needed`.
    fn program(&self, needed: &[&'static str], takes: &[&'static str], copies: &[(&'static str, u64)]) {
        let needed = needed.iter().chain(&["libc.so.6"]).copied().collect();
        let program =
            Library { needed, takes: takes.to_vec(), copies: copies.to_vec(), ..Library::default() };
        self.root.file(self.program, program.bytes());
    }
}

/// Open MPI on both sides, the host's with a function more, and a program.
fn both_open_mpi() -> Node {
    let node = node();
    install_open_mpi(&node.host, LIB, "40.30.4", &open_mpi(&["MPI_Bcast", "MPI_Newer"]));
    install_open_mpi(&node.root, LIB, "40.30.0", &open_mpi(&["MPI_Bcast"]));
    node.root.remove(&format!("{LIB}/openmpi/mca_btl_fast.so"));
    node.program(&["libmpi.so.40"], &["MPI_Init", "MPI_Bcast"], &[("ompi_mpi_comm_world", 512)]);
    node
}

/// What is bound where, without the library directories in front.
fn bound(edits: &Edits) -> Vec<String> {
    let short = |path: &std::path::Path| {
        path.display().to_string().replace(LIB, "LIB").replace("/run/rt/mpi/lib", "OWN")
    };
    edits.binds.iter().map(|b| format!("{} {}", short(&b.source), short(&b.path))).collect()
}

#[test]
fn nothing_is_done_unasked() {
    let node = both_open_mpi();
    for variables in ["", "RT_MPI=", "RT_MPI=image", "RT_MPI=host|RT_MPI=image"] {
        assert_eq!(node.ok(variables), Edits::default(), "{variables}");
    }
    assert!(!node.ok("RT_MPI=host").is_empty() && !node.ok("RT_MPI=image|RT_MPI=host").is_empty());
    node.fails("RT_MPI=hots", "MPI \"hots\" is neither host nor image");
    let (host, root) = (Tree::open(&node.host.dir).unwrap(), Tree::open(&node.root.dir).unwrap());
    let mut asks = bundle("");
    asks.annotations.insert("rt.mpi".to_owned(), "host".to_owned());
    asks.args = vec![node.program.to_owned()];
    assert!(!rt_hooks::mpi::edits(&asks, &host, &root).unwrap().is_empty());
}

#[test]
fn open_mpi_comes_with_plugins_and_settings() {
    let node = both_open_mpi();
    node.host.file("/etc/openmpi/openmpi-mca-params.conf", "btl = fast\n");
    node.host.library(&format!("{LIB}/libfast.so.1.0"), &Library::named("libfast.so.1"));
    let edits = node.ok("RT_MPI=host");
    assert_eq!(
        bound(&edits),
        [
            "LIB/libfast.so.1.0 OWN/libfast.so.1",
            "LIB/libmpi.so.40.30.4 OWN/libmpi.so.40",
            "LIB/libopen-pal.so.40.30.4 OWN/libopen-pal.so.40",
            "LIB/libmpi.so.40.30.4 LIB/libmpi.so.40.30.0",
            "LIB/libopen-pal.so.40.30.4 LIB/libopen-pal.so.40.30.0",
            "LIB/openmpi LIB/openmpi",
            "/etc/openmpi /etc/openmpi",
        ]
    );
    let names: Vec<&str> = edits.libraries.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["libfast.so.1", "libmpi.so.40", "libopen-pal.so.40"]);
    assert!(edits.files.iter().any(|file| file.path.ends_with("ld.so.cache")));
    assert!(
        edits.notes[0].contains("libmpi.so.40.30.4 (the image's is libmpi.so.40.30.0)"),
        "{:?}",
        edits.notes
    );
    // What the host itself does without.
    node.host.remove(&format!("{LIB}/libfast.so.1")).remove(&format!("{LIB}/libfast.so.1.0"));
    assert!(!bound(&node.ok("RT_MPI=host")).iter().any(|b| b.contains("libfast")));
}

#[test]
fn every_place_of_the_image_is_covered() {
    let node = both_open_mpi();
    for place in ["/usr/local/lib", "/opt/openmpi/lib", "/opt/openmpi/4.1.4/lib64"] {
        install_open_mpi(&node.root, place, "40.30.0", &open_mpi(&["MPI_Bcast"]));
    }
    let edits = bound(&node.ok("RT_MPI=host"));
    for place in ["/usr/local/lib", "/opt/openmpi/lib", "/opt/openmpi/4.1.4/lib64"] {
        let expected = format!("LIB/libmpi.so.40.30.4 {place}/libmpi.so.40.30.0");
        assert!(edits.contains(&expected), "{expected}: {edits:?}");
    }
    // Only where the program is told to look.
    let odd = "/srv/odd";
    install_open_mpi(&node.root, odd, "40.30.0", &open_mpi(&["MPI_Bcast"]));
    let expected = format!("LIB/libmpi.so.40.30.4 {odd}/libmpi.so.40.30.0");
    assert!(!bound(&node.ok("RT_MPI=host")).contains(&expected));
    assert!(bound(&node.ok("RT_MPI=host LD_LIBRARY_PATH=/srv/odd")).contains(&expected));
    let program = Library {
        needed: vec!["libmpi.so.40"],
        takes: vec!["MPI_Init"],
        runpath: Some("$ORIGIN/../srv/odd"),
        ..Library::default()
    };
    node.root.file(node.program, program.bytes());
    assert!(bound(&node.ok("RT_MPI=host")).contains(&expected));
}

#[test]
fn mpich_goes_by_either_name() {
    for (image, host) in [("libmpich.so.12", "libmpi.so.12"), ("libmpi.so.12", "libmpich.so.12")] {
        let node = node();
        node.root.library(&format!("{LIB}/{image}.2"), &mpich(image, &[]));
        node.host.library(&format!("{LIB}/{host}.3"), &mpich(host, &[]));
        let fortran = Library {
            needed: vec![host],
            symbols: vec![("mpi_init_", None)],
            ..Library::named("libmpifort.so.12")
        };
        node.host.library(&format!("{LIB}/libmpifort.so.12.3"), &fortran);
        let fortran = Library {
            needed: vec![image],
            symbols: vec![("mpi_init_", None)],
            ..Library::named("libmpichfort.so.12")
        };
        node.root.library(&format!("{LIB}/libmpichfort.so.12.2"), &fortran);
        node.program(&[image, "libmpichfort.so.12"], &["MPI_Init", "mpi_init_"], &[]);
        let edits = bound(&node.ok("RT_MPI=host"));
        for expected in [
            format!("LIB/{host}.3 OWN/{image}"),
            format!("LIB/{host}.3 OWN/{host}"),
            format!("LIB/{host}.3 LIB/{image}.2"),
            "LIB/libmpifort.so.12.3 OWN/libmpichfort.so.12".to_owned(),
        ] {
            assert!(edits.contains(&expected), "{expected}: {edits:?}");
        }
    }
}

#[test]
fn other_interfaces_are_refused() {
    let node = node();
    node.fails("RT_MPI=host", "the image has no shared MPI library");
    install_open_mpi(&node.root, LIB, "40.30.0", &open_mpi(&[]));
    node.fails("RT_MPI=host", "the host has none (RT_MPI_LIBRARY=DIR says where it is)");
    node.host.library(&format!("{LIB}/libmpich.so.12.2"), &mpich("libmpich.so.12", &[]));
    let other = "the image has Open MPI (libmpi.so.40), and the host has MPICH (libmpich.so.12): another binary interface";
    node.fails("RT_MPI=host", other);
    // By its symbols, whatever its name says.
    node.host.library(&format!("{LIB}/libmpi.so.40.1"), &mpich("libmpi.so.40", &[]));
    node.fails("RT_MPI=host", "another binary interface");
    // Another number.
    let two = Library { soname: Some("libmpi.so.20"), ..open_mpi(&[]) };
    node.host.remove(&format!("{LIB}/libmpi.so.40")).library(&format!("{LIB}/libmpi.so.20.1"), &two);
    node.fails("RT_MPI=host", "Open MPI (libmpi.so.20)");
    // Another C library.
    let musl = self::node();
    musl.root.remove("/lib64").file("/lib/ld-musl-x86_64.so.1", "");
    if cfg!(target_arch = "x86_64") {
        musl.fails("RT_MPI=host", "the image's C library is musl");
    }
}

#[test]
fn a_program_shows_what_it_takes() {
    let node = both_open_mpi();
    install_open_mpi(&node.root, LIB, "40.40.7", &open_mpi(&["MPI_Bcast", "MPI_Newest"]));
    node.ok("RT_MPI=host");
    node.program(&["libmpi.so.40"], &["MPI_Newest"], &[]);
    node.fails(
        "RT_MPI=host",
        "/bin/hello needs MPI_Newest, which the host's libmpi.so.40.30.4 (the image's is libmpi.so.40.",
    );
    // Also where only another file of the image's, to which the program may be linked by its path, has it.
    let twice = both_open_mpi();
    install_open_mpi(&twice.root, "/opt/new/lib", "40.40.7", &open_mpi(&["MPI_Bcast", "MPI_Newest"]));
    twice.program(&["libmpi.so.40"], &["MPI_Newest"], &[]);
    twice.fails("RT_MPI=host", "/bin/hello needs MPI_Newest");
    // What its libraries take counts as well.
    let solver = Library {
        needed: vec!["libmpi.so.40"],
        takes: vec!["MPI_Newest"],
        ..Library::named("libsolver.so.1")
    };
    node.root.library(&format!("{LIB}/libsolver.so.1.0"), &solver);
    node.program(&["libsolver.so.1"], &[], &[]);
    node.fails("RT_MPI=host", "libsolver.so.1 needs MPI_Newest");
    // A copy of data must have the size of the data.
    node.program(&["libmpi.so.40"], &["MPI_Init"], &[("ompi_mpi_comm_world", 1024)]);
    node.fails(
        "RT_MPI=host",
        "/bin/hello has 1024 bytes for ompi_mpi_comm_world, which has 512 in the host's",
    );
}

#[test]
fn a_script_shows_nothing() {
    let node = both_open_mpi();
    node.root.file("/bin/script", "#!/bin/sh\n");
    let node = Node { program: "/bin/script", ..node };
    // The host's has all that the image's has.
    node.ok("RT_MPI=host");
    // Two libraries of a release may have data of one name in two sizes.
    for tree in [&node.host, &node.root] {
        let fortran = Library {
            needed: vec!["libmpi.so.40"],
            symbols: vec![("mpi_init_", None), (WORLD.0, Some(8))],
            ..Library::named("libmpi_mpifh.so.40")
        };
        tree.library(&format!("{LIB}/libmpi_mpifh.so.40.30.0"), &fortran);
    }
    node.ok("RT_MPI=host");
    install_open_mpi(&node.root, LIB, "40.40.7", &open_mpi(&["MPI_Bcast", "MPI_Newest"]));
    node.root.remove(&format!("{LIB}/libmpi.so.40.30.0"));
    node.fails("RT_MPI=host", "lacks MPI_Newest; /bin/script does not show whether that matters");
    node.ok("RT_MPI=host RT_MPI_PROGRAMS=/bin/hello");
    node.fails(
        "RT_MPI=host RT_MPI_PROGRAMS=/bin/nothing",
        "RT_MPI_PROGRAMS: the container has no file /bin/nothing",
    );
    // A second MPI of the image, for which the host has none.
    let node = Node { program: "/bin/script", ..both_open_mpi() };
    node.root.file("/bin/script", "#!/bin/sh\n");
    node.root.library(&format!("{LIB}/libmpich.so.12.2"), &mpich("libmpich.so.12", &[]));
    node.fails("RT_MPI=host", "the image has MPICH (libmpich.so.12), too");
    let node = Node { program: "/bin/hello", ..node };
    node.ok("RT_MPI=host");
    node.program(&["libmpich.so.12"], &["MPI_Init"], &[]);
    node.fails("RT_MPI=host", "/bin/hello needs libmpich.so.12 of MPICH, and the host has none of that ABI");
}

#[test]
fn bindings_without_a_counterpart() {
    let node = both_open_mpi();
    let cxx = Library { needed: vec!["libmpi.so.40"], ..Library::named("libmpi_cxx.so.40") };
    node.root.library(&format!("{LIB}/libmpi_cxx.so.40.30.1"), &cxx);
    node.ok("RT_MPI=host");
    node.program(&["libmpi_cxx.so.40", "libmpi.so.40"], &["MPI_Init"], &[]);
    node.fails("RT_MPI=host", "/bin/hello needs libmpi_cxx.so.40, and the host's MPI has no such library");
    // Parts that make no promise to programs must be of one release.
    let rte = Library { needed: vec!["libopen-pal.so.40"], ..Library::named("libopen-rte.so.40") };
    node.root.library(&format!("{LIB}/libopen-rte.so.40.30.1"), &rte);
    node.program(&["libmpi.so.40", "libopen-rte.so.40"], &["MPI_Init"], &[]);
    node.fails("RT_MPI=host", "/bin/hello needs libopen-rte.so.40, and the host's MPI has no such library");
}

#[test]
fn dependencies_fit_or_come_along_or_refuse() {
    let node = both_open_mpi();
    let mpi = |needs: &'static str, glibc: &'static str| Library {
        needed: vec!["libopen-pal.so.40", "libfabric.so.1", "libc.so.6"],
        takes: vec![needs],
        requires: vec![("libc.so.6", vec![glibc])],
        ..open_mpi(&["MPI_Bcast"])
    };
    let fabric = |symbols: &[&'static str]| Library {
        symbols: symbols.iter().map(|name| (*name, None)).collect(),
        ..Library::named("libfabric.so.1")
    };
    let host = |library: &Library| {
        node.host.library(&format!("{LIB}/libmpi.so.40.30.4"), library);
    };
    host(&mpi("fi_new", "GLIBC_2.34"));
    node.fails("RT_MPI=host", "neither container nor host has libfabric.so.1, which libmpi.so.40 needs");
    node.host.library(&format!("{LIB}/libfabric.so.1.27"), &fabric(&["fi_old", "fi_new"]));
    let brought = |edits: &Edits| bound(edits).iter().any(|b| b.ends_with("OWN/libfabric.so.1"));
    assert!(brought(&node.ok("RT_MPI=host")), "it is missing");
    // The container's has what is needed, and may be the newer one.
    node.root.library(&format!("{LIB}/libfabric.so.1.30"), &fabric(&["fi_old", "fi_new", "fi_newest"]));
    assert!(!brought(&node.ok("RT_MPI=host")), "the container's does");
    node.root.library(&format!("{LIB}/libfabric.so.1.30"), &fabric(&["fi_old"]));
    assert!(brought(&node.ok("RT_MPI=host")), "the container's is older");
    // Neither has all.
    node.root.library(&format!("{LIB}/libfabric.so.1.30"), &fabric(&["fi_old", "fi_other"]));
    node.fails(
        "RT_MPI=host",
        "libmpi.so.40 needs fi_new, which the container's libfabric.so.1 lacks, and the container's libfabric.so.1 has \
         fi_other, and the host's has not",
    );
    node.root.library(&format!("{LIB}/libfabric.so.1.30"), &fabric(&["fi_old", "fi_new"]));
    host(&mpi("fi_new", "GLIBC_2.38"));
    node.fails(
        "RT_MPI=host",
        "libmpi.so.40 needs GLIBC_2.38 of libc.so.6, and the container's has GLIBC_2.34",
    );
}

#[test]
fn the_caller_says_which_host_library() {
    let node = both_open_mpi();
    let from = |edits: &Edits| {
        let own = edits.binds.iter().find(|b| b.path.ends_with("mpi/lib/libmpi.so.40")).unwrap();
        own.source.parent().unwrap().display().to_string()
    };
    for place in ["/opt/site/lib", "/opt/module/lib", "/opt/home/lib"] {
        install_open_mpi(&node.host, place, "40.30.9", &open_mpi(&["MPI_Bcast"]));
    }
    for (caller, expected) in [
        ("", LIB),
        ("RT_MPI_LIBRARY=/opt/site/lib", "/opt/site/lib"),
        ("RT_MPI_LIBRARY=/opt/site/lib/libmpi.so.40", "/opt/site/lib"),
        ("LD_LIBRARY_PATH=/nothing:/opt/module/lib", "/opt/module/lib"),
        ("MPI_HOME=/opt/home", "/opt/home/lib"),
        ("LD_LIBRARY_PATH=/opt/module/lib MPI_HOME=/opt/home", "/opt/module/lib"),
        ("RT_MPI_LIBRARY=/opt/site/lib LD_LIBRARY_PATH=/opt/module/lib", "/opt/site/lib"),
    ] {
        assert_eq!(from(&node.ok(&format!("RT_MPI=host|{caller}"))), expected, "{caller}");
        // The image's own variables name nothing of the host.
        assert_eq!(from(&node.ok(&format!("RT_MPI=host {caller}"))), LIB, "{caller}");
    }
    // What is beside the library belongs to it, and no other of the host's.
    let edits = node.ok("RT_MPI=host|RT_MPI_LIBRARY=/opt/site/lib/libmpi.so.40");
    let pal = edits.binds.iter().find(|b| b.path.ends_with("mpi/lib/libopen-pal.so.40")).unwrap();
    assert_eq!(pal.source.to_str(), Some("/opt/site/lib/libopen-pal.so.40.30.9"));
    assert!(edits.binds.iter().any(|b| b.source.ends_with("opt/site/lib/openmpi")));
    node.fails(
        "RT_MPI=host|RT_MPI_LIBRARY=/etc",
        "RT_MPI_LIBRARY=/etc: no MPI library of this machine is there",
    );
    node.fails("RT_MPI=host|RT_MPI_LIBRARY=lib", "RT_MPI_LIBRARY=lib: not an absolute path");
    // A module of another MPI is what the caller has chosen, whatever the system has.
    node.host.library("/opt/mpich/lib/libmpi.so.12.2", &mpich("libmpi.so.12", &[]));
    node.fails(
        "RT_MPI=host|LD_LIBRARY_PATH=/opt/mpich/lib",
        "another binary interface (LD_LIBRARY_PATH names /opt/mpich/lib)",
    );
}

/// An image whose programs are linked to thousands of libraries, each of which is searched for in thousands of directories.
#[test]
fn endless_searches_are_refused() {
    let node = both_open_mpi();
    let dirs = ["/a"; 1360].join(":").leak();
    let mut programs = Vec::new();
    for n in 0..4 {
        let name = |m: usize| -> &'static str { format!("lib{n}x{m}.so").leak() };
        let program =
            Library { needed: (0..4000).map(name).collect(), runpath: Some(dirs), ..Library::default() };
        node.root.file(&format!("/p{n}"), program.bytes());
        programs.push(format!("/p{n}"));
    }
    let start = std::time::Instant::now();
    node.fails(
        &format!("RT_MPI=host RT_MPI_PROGRAMS={}", programs.join(":")),
        "makes the hook look for too much",
    );
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

/// An image with many names of MPI, each of which is searched for in a long ld.so.cache.
#[test]
fn long_caches_are_paid_for() {
    let node = both_open_mpi();
    let mut cache = ld_so_cache::Cache::default();
    cache.entries.resize(200_000, ld_so_cache::CacheEntry::new("libfiller.so.1", "/lib/libfiller.so.1", 0));
    node.root.file("/etc/ld.so.cache", cache.to_bytes());
    add_names(&node, 0..1400);
    node.fails("RT_MPI=host", "makes the hook look for too much");
}

/// An image with more MPIs than anybody installs.
#[test]
fn many_interfaces_are_refused() {
    let node = both_open_mpi();
    add_names(&node, 100..163);
    node.ok("RT_MPI=host");
    add_names(&node, 163..164);
    node.fails("RT_MPI=host", "the image has MPI libraries of 65 interfaces, which is more than 64");
}

/// Names of one library of MPI in the image, by these numbers.
fn add_names(node: &Node, numbers: std::ops::Range<u32>) {
    let name = |number: u32| format!("/opt/many/lib/libmpi.so.{number}");
    for number in numbers.clone() {
        if number == numbers.start {
            node.root.file(&name(number), open_mpi(&[]).bytes());
        } else {
            std::fs::hard_link(node.root.at(&name(numbers.start)), node.root.at(&name(number))).unwrap();
        }
    }
}

/// What is no file in the place of a library or of the cache is not waited for, and links lead nowhere out of the image.
#[test]
fn pipes_devices_and_links_are_no_libraries() {
    let node = both_open_mpi();
    let path = |name: &str| node.root.dir.join(name.trim_start_matches('/'));
    let pipe = |name: &str| {
        let done = std::process::Command::new("mkfifo").arg(path(name)).status().unwrap();
        assert!(done.success());
    };
    std::fs::create_dir_all(path("/opt/x/lib")).unwrap();
    std::fs::create_dir_all(path("/etc")).unwrap();
    pipe("/opt/x/lib/libmpi.so.40");
    pipe("/etc/ld.so.cache");
    pipe(&format!("{LIB}/libpipe.so"));
    std::os::unix::fs::symlink("libloop.so", path(&format!("{LIB}/libloop.so"))).unwrap();
    // Through links and by "..", to a library of the machine that runs the tests.
    std::fs::create_dir_all(path("/opt/out")).unwrap();
    std::os::unix::fs::symlink(node.host.dir.join(&LIB[1..]), path("/opt/out/lib")).unwrap();
    let own = Library { symbols: vec![("MPI_Only_outside", None)], ..Library::named("liboutside.so") };
    node.host.library(&format!("{LIB}/liboutside.so"), &own);
    let up = "$ORIGIN/../../../../../../../../../..";
    let runpath = format!("{up}{}/{LIB}:/opt/out/lib:$ORIGIN/../opt/out/lib", node.host.dir.display()).leak();
    let program = Library {
        needed: vec!["libmpi.so.40", "libpipe.so", "libloop.so", "liboutside.so"],
        takes: vec!["MPI_Init"],
        runpath: Some(runpath),
        ..Library::default()
    };
    node.root.file(node.program, program.bytes());
    let edits = node.ok("RT_MPI=host");
    assert!(!edits.binds.iter().any(|b| b.path.to_str().unwrap().contains("outside")), "{edits:?}");
    assert!(edits.binds.iter().all(|b| !b.path.starts_with("/opt")), "{edits:?}");
}
