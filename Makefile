# make          static binaries in build/
# make MACHINE=aarch64   the same for another machine, in build-aarch64/ (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
# make install  binaries, man pages, completions, AppArmor's profile where it is needed, and files for Slurm, podman and
#               others in PREFIX/share/rt (PREFIX, DESTDIR); make install-hooks: and hooks in /etc/rt/hooks.d
# make uninstall  removes all of it again (PREFIX, DESTDIR)
# make dist     dist/: a tarball, a deb and an rpm for each of MACHINES, x86_64 and aarch64 by default
# make release  release/: the same of both MACHINES built twice and compared, with an SBOM and checksums; CHECK=0: without make check
# make spank    Slurm's plugin in spank/build/; make install-spank and uninstall-spank: in PREFIX/lib/slurm
# make demo     a container of the host's own userland, as a plain user
# make demo-hooks  the hooks for GPUs and RDMA on a stand-in node
# make check    format, lints, unit tests, black-box tests as the current user: two minutes after a build
# make test     everything that CI checks; as root it installs what the tests use
# make test-slurm  newer versions of Slurm, several nodes, MPI: integration/slurm/results.tsv (root, 30 minutes)
# make test-kernels  kernels 5.10 to 7.x, aarch64, AppArmor, SELinux, in QEMU: integration/kernels/results.tsv (root, hours)
# make test-gpu  a node with a GPU of NVIDIA's: integration/gpu/RESULTS.md; `make gpu-kit` makes what it needs there
# make test-faults  makes each system call of rt fail, and looks at what comes of it: integration/faults.sh
# make test-containerfiles  buildah's 187 conformance cases by rt build: integration/containerfiles/expected.tsv (root, 10 minutes)
# make bench    benches/RESULTS.md: rt beside crun, runc, bubblewrap and the floor
# make fuzz     every fuzz target for SECONDS
# make coverage what the black-box tests reach: target/coverage/report (llvm-profdata and llvm-cov of rustc's LLVM)

PREFIX ?= /usr/local
DESTDIR ?=
MACHINES ?= x86_64 aarch64
SECONDS ?= 60
CHECK ?= 1
CARGO ?= cargo

.PHONY: all dist release spank install-spank uninstall-spank install install-hooks uninstall demo demo-hooks check test test-slurm \
	test-kernels test-faults test-containerfiles test-gpu gpu-kit bench bench-hooks bench-syscalls fuzz coverage clean build/rt

all: build/rt

build/rt:
	@packaging/build $(MACHINE)

# What `make` has built is installed as it is: root, who installs, often has no cargo. Uninstalling needs no build.
INSTALL = [ -x build/rt ] || packaging/build; tree=$$(mktemp -d); trap 'rm -rf "$$tree"' EXIT; \
	packaging/stage "$$tree" && PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" MANIFEST="$(MANIFEST)" "$$tree/install.sh"

install:
	@$(INSTALL)

# With the definitions of the hooks, for every container on this machine.
install-hooks:
	@$(INSTALL) --hooks

uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" packaging/install.sh --uninstall

dist:
	@set -e; for machine in $(MACHINES); do packaging/dist "$$machine"; done

demo: build/rt
	@demo/run build/rt

demo-hooks: build/rt
	@demo/hooks build

# The whole is built first: tests/it runs the hooks, which `cargo test --test it` does not build.
check:
	@packaging/toolchain tests >/dev/null
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) build --locked --workspace
	$(CARGO) test --locked --workspace --quiet --lib --test cli --test tidy --test pages --test hooks --test seccomp
	$(CARGO) test --locked --quiet --test it -- --quiet --as current

test:
	@integration/all

test-slurm: build/rt
	@integration/packages mmdebstrap busybox-static iproute2
	@integration/slurm/newer build/rt

test-kernels:
	@integration/kernels/all

# All that test-gpu takes to a node without a network, a compiler or Rust: build/ and integration/work/gpu.
gpu-kit: build/rt
	@integration/gpu/kit integration/work/gpu

test-faults: build/rt
	@integration/faults.sh build/rt --all

test-containerfiles: build/rt
	@integration/containerfiles/all build/rt

test-gpu:
	@[ -x build/rt ] || $(MAKE) build/rt
	@integration/gpu.sh build/rt --write

bench: build/rt
	@if [ "$$(id -u)" = 0 ]; then integration/packages && contrib/order --check; fi
	benches/run --rt build/rt --write

bench-hooks: build/rt
	@benches/hooks build

bench-syscalls: build/rt
	@benches/syscalls build/rt

# cargo-fuzz asks for a nightly compiler; RUSTC_BOOTSTRAP makes the stable one do.
fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	@fuzz/seed
	@set -e; for target in fuzz/fuzz_targets/*.rs; do \
		name=$$(basename $$target .rs); \
		echo "fuzz: $$name, $(SECONDS) s"; \
		mkdir -p fuzz/corpus/$$name fuzz/seeds/$$name; \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$name fuzz/corpus/$$name fuzz/seeds/$$name -- -max_total_time=$(SECONDS); \
	done

coverage:
	@contrib/coverage

release:
	@MACHINES="$(MACHINES)" CHECK="$(CHECK)" packaging/release

# Slurm's plugin. It is no program, and not static: spank/Makefile has it.
spank:
	@$(MAKE) -C spank

install-spank uninstall-spank:
	@$(MAKE) -C spank $(@:-spank=) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)"

clean:
	$(CARGO) clean
	rm -rf build build-* dist spank/build integration/work
