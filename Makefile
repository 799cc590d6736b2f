# make          static binaries in build/
# make install  binaries, man pages, completions, AppArmor's profile where it is needed (PREFIX, DESTDIR)
# make demo     a container of the host's own userland, as a plain user
# make demo-hooks  the hooks for GPUs and RDMA on a stand-in node
# make check    format, lints, unit tests, black-box tests as the current user: two minutes after a build
# make test     everything that CI checks; as root it installs what the tests use
# make test-slurm  newer versions of Slurm, several nodes, MPI: integration/slurm/RESULTS.md (root, 20 minutes)
# make bench    benches/RESULTS.md: rt beside crun, runc, bubblewrap and the floor
# make fuzz     every fuzz target for SECONDS

PREFIX ?= /usr/local
DESTDIR ?=
SECONDS ?= 60
CARGO ?= cargo

MACHINE := $(shell uname -m)
MUSL := $(MACHINE)-unknown-linux-musl
# Is the musl target there, or can it be had? Else glibc, linked statically.
TARGET = $(shell ls -d "$$(rustc --print sysroot)/lib/rustlib/$(MUSL)" >/dev/null 2>&1 || \
	rustup target add $(MUSL) >/dev/null 2>&1; \
	ls -d "$$(rustc --print sysroot)/lib/rustlib/$(MUSL)" >/dev/null 2>&1 && echo $(MUSL) || \
	echo $(MACHINE)-unknown-linux-gnu)
# At a fixed address: a static-pie of this size spends 0.15 ms of each start on relocations.
FLAGS := -C target-feature=+crt-static -C relocation-model=static

.PHONY: all install install-apparmor install-hooks uninstall demo demo-hooks check test test-slurm bench bench-hooks bench-syscalls fuzz clean build/rt

all: build/rt

# What rt-pull has in C is compiled for musl by musl-gcc, or else by the host's compiler, whose headers will do.
build/rt:
	@target=$(TARGET); set -e; mkdir -p build; \
	case $$target in *-musl) command -v musl-gcc >/dev/null || { \
		export CC_$$(echo $$target | tr - _)=cc CFLAGS_$$(echo $$target | tr - _)=-U_FORTIFY_SOURCE; } ;; esac; \
	RUSTFLAGS="$(FLAGS)" $(CARGO) build --release --locked --workspace --target $$target --bins; \
	for bin in "$${CARGO_TARGET_DIR:-target}"/$$target/release/*; do \
		case $${bin##*/} in *.*) continue ;; esac; \
		if [ -f "$$bin" ] && [ -x "$$bin" ]; then \
			name=build/$${bin##*/}; strip -o "$$name.new" "$$bin"; mv "$$name.new" "$$name"; \
		fi; \
	done; \
	ls -l build

# The man pages and completions come from the binary itself, which has the one description of its flags.
# What `make` has built is installed as it is: root, who installs, often has no cargo.
install: install-apparmor
	@[ -x build/rt ] || $(MAKE) build/rt
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/share/man/man1" \
		"$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	install -m 755 build/* "$(DESTDIR)$(PREFIX)/bin"
	build/rt generate man "$(DESTDIR)$(PREFIX)/share/man/man1"
	build/rt generate bash "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	build/rt generate zsh "$(DESTDIR)$(PREFIX)/share/zsh/site-functions"
	build/rt generate fish "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"

# Ubuntu's AppArmor lets only programs with a profile use user namespaces. Before AppArmor 4 there is no such rule.
install-apparmor:
	if [ -n "$(DESTDIR)" ] || [ -e /etc/apparmor.d/abi/4.0 ]; then \
		profile="$(DESTDIR)/etc/apparmor.d/rt"; install -d "$${profile%/*}"; \
		case "$(PREFIX)" in \
		/usr | /usr/local) cat contrib/apparmor/rt ;; \
		*) sed 's|/usr/{,local/}bin|$(PREFIX)/bin|' contrib/apparmor/rt ;; \
		esac >"$$profile"; \
		[ -n "$(DESTDIR)" ] || apparmor_parser -r "$$profile" || \
			echo "load the profile by: apparmor_parser -r $$profile" >&2; \
	fi

# The definitions of the hooks, for every container on this machine.
install-hooks:
	install -d "$(DESTDIR)/etc/rt/hooks.d"
	for hook in gpu mpi rdma; do \
		sed 's|/usr/local|$(PREFIX)|' hooks/rt-hook-$$hook.json >"$(DESTDIR)/etc/rt/hooks.d/rt-hook-$$hook.json"; \
	done

uninstall:
	rm -f $(foreach bin,rt rt-pull rt-image rt-hook-gpu rt-hook-mpi rt-hook-rdma,"$(DESTDIR)$(PREFIX)/bin/$(bin)") \
		"$(DESTDIR)$(PREFIX)"/share/man/man1/rt.1 "$(DESTDIR)$(PREFIX)"/share/man/man1/rt-*.1 \
		"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/rt" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rt" \
		"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rt.fish" "$(DESTDIR)/etc/apparmor.d/rt"

demo: build/rt
	@demo/run build/rt

demo-hooks: build/rt
	@demo/hooks build

# The whole is built first: tests/it runs the hooks, which `cargo test --test it` does not build.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) build --locked --workspace
	$(CARGO) test --locked --workspace --quiet --lib --test cli --test tidy --test hooks --test seccomp
	$(CARGO) test --locked --quiet --test it -- --quiet --as current

test:
	@integration/all

test-slurm: build/rt
	@integration/packages mmdebstrap busybox-static iproute2
	@integration/slurm/newer build/rt

bench: build/rt
	@if [ "$$(id -u)" = 0 ]; then integration/packages; fi
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

clean:
	$(CARGO) clean
	rm -rf build integration/work
