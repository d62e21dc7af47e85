# What people type. `make demo` and `make test` do all set-up themselves; see README.md.
PREFIX ?= /usr/local
DESTDIR ?=
.PHONY: install install-files demo test test-long vm vm-slice test-packages test-arm bench bench-tables bench-dpdk build build-dist setup setup-test fmt lint \
    loom publish-check miri sanitize fuzz soak examples pages deny help deb rpm image package-files newer-deb test-boot cargo-deb \
    cargo-generate-rpm fleet fleet-demo

CARGO ?= cargo
PROGRAM = target/release/artery
BENCH = target/release/artery-bench
DIST_BENCH = target/dist/artery-bench

help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup: ## Installs the tools that demo and test use, where they are missing and we may.
	@scripts/setup

setup-test:
	@scripts/setup test

build: ## Builds the program and its benchmarks, optimised.
	$(CARGO) build --release --locked -p artery -p artery-lab

build-dist: ## Builds the program and its benchmarks as packages and benchmarks have them: fat LTO, one unit.
	$(CARGO) build --profile dist --locked -p artery -p artery-lab

install: install-files ## Installs what `make build` has built, manual pages, completions, systemd units, examples: PREFIX, DESTDIR.
	install -Dm755 $(PROGRAM) $(BENCH) -t $(DESTDIR)$(PREFIX)/bin

# What is installed besides programs. Units and /etc/artery/README name the folders of PREFIX.
SHARE = $(DESTDIR)$(PREFIX)/share
UNITS = artery-adopt@.service artery-router@.service artery-up.service
install-files:
	$(PROGRAM) man $(SHARE)/man/man1
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(PROGRAM) completions bash > $(SHARE)/bash-completion/completions/artery
	$(PROGRAM) completions zsh > $(SHARE)/zsh/site-functions/_artery
	$(PROGRAM) completions fish > $(SHARE)/fish/vendor_completions.d/artery.fish
	install -d $(SHARE)/doc/artery/examples $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)/etc/artery
	cp -r conf/* packaging/examples/* $(SHARE)/doc/artery/examples
	for unit in $(UNITS); do \
	    sed 's#/usr/local/bin/#$(PREFIX)/bin/#' packaging/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; done
	sed 's#/usr/share/#$(PREFIX)/share/#' packaging/etc-artery-README > $(DESTDIR)/etc/artery/README

# Packages. Their tools are installed below target/tools where the machine has none.
PACKAGE = target/package
PACKAGE_PROFILE = dist
PACKAGE_PROGRAM = target/$(PACKAGE_PROFILE)/artery
TOOLS_PATH = PATH="$$PATH:$(CURDIR)/target/tools/bin"
CARGO_DEB = $(TOOLS_PATH) $(CARGO) deb -q -p artery --no-build --profile $(PACKAGE_PROFILE) --locked
deb: package-files cargo-deb ## Makes a Debian package in target/debian.
	rm -rf target/debian
	$(CARGO_DEB)

rpm: package-files cargo-generate-rpm ## Makes an RPM package in target/generate-rpm.
	rm -rf target/generate-rpm
	$(TOOLS_PATH) $(CARGO) generate-rpm -p programs/artery --profile $(PACKAGE_PROFILE)
	@ls target/generate-rpm/*.rpm

cargo-deb cargo-generate-rpm:
	@$(TOOLS_PATH) command -v $@ >/dev/null || $(CARGO) install --locked --root target/tools $@@$($@-version)
cargo-deb-version = 3.8.0
cargo-generate-rpm-version = 0.21.1

test-packages: newer-deb deb rpm ## Tests both packages; as root in a Debian root of its own: installed, upgraded, purged.
	scripts/test-packages target/debian/artery_*.deb $(NEWER_DEB) target/generate-rpm/artery-*.rpm

test-boot: newer-deb deb ## Tests the Debian package in a machine that boots (QEMU): installed, booted again, upgraded, purged.
	scripts/test-boot target/debian/artery_*.deb $(NEWER_DEB)

# The same as a newer version, to upgrade to. It comes before `deb`, since cargo-deb removes packages that it made earlier.
NEWER_DEB = $(PACKAGE)/newer.deb
newer-deb: package-files cargo-deb
	$(CARGO_DEB) --deb-version 999-1 --output $(NEWER_DEB)

image: deb ## Makes an OCI archive in target/image: the program, and the libraries that it needs.
	scripts/image target/debian/artery_*.deb target/image/artery.oci.tar

package-files:
	$(CARGO) build --profile $(PACKAGE_PROFILE) --locked -p artery
	rm -rf $(PACKAGE)
	install -d $(PACKAGE)/usr/bin
	strip -o $(PACKAGE)/usr/bin/artery $(PACKAGE_PROGRAM)
	$(MAKE) --no-print-directory install-files PROGRAM=$(PACKAGE_PROGRAM) DESTDIR=$(PACKAGE) PREFIX=/usr
	gzip -9n $(PACKAGE)/usr/share/man/man1/*
	scripts/third-party > $(PACKAGE)/usr/share/doc/artery/third-party.txt
	find $(PACKAGE) -type f -path '*/usr/share/*' -exec chmod 644 {} +

demo: setup ## Shows a router at work: on a pcap file, and as root between two hosts.
	$(CARGO) build --release --locked -p artery
	@scripts/demo $(PROGRAM)

# Tests in network namespaces wait for two thirds of their time, so that more run at once than there are processors.
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: export PATH := $(PATH):$(CURDIR)/target/tools/bin
test: setup-test lint ## Runs every check that a change must pass.
	$(CARGO) test --workspace --locked
	@mkdir -p target && scripts/demo target/debug/artery > target/demo.log || { cat target/demo.log; exit 1; }
	$(MAKE) --no-print-directory loom deny
	@scripts/skipped

test-long: setup build ## Tests tables with many more random cases, follows a full feed of BGP, runs all cases, looks for undefined behaviour.
	ARTERY_LONG=1 $(CARGO) test --release --locked -p artery-lpm -p artery-l3 -p artery-l2 -p artery-flow
	ARTERY_LONG=1 $(CARGO) test --release --locked -p artery-lab --test e2e -- adopt_bgp::feed adopt_differential adopt_rule_sets faults cases
	$(MAKE) --no-print-directory examples
	scripts/sanitize

# What the rows are tried with: the programs that `make test` has built (built alone they would have other features, and all be
# built once more), and the unit tests of artery-adopt, which have the kernel's verifier take every program.
VM_BUILD = $(CARGO) test --workspace --locked --no-run
ADOPT_TESTS = sed -n '/"name":"artery_adopt"/s/.*"test":true.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
VM = ARTERY_ADOPT_TESTS=$$($(VM_BUILD) --message-format=json | $(ADOPT_TESTS)) target/debug/artery-bench vm matrix

vm: ## Boots stock kernels in virtual machines and tries what runs there, for hours; ROWS='6.12/e1000e …' is a part of it.
	@scripts/setup vm
	$(VM_BUILD)
	$(VM) $(ROWS)

vm-slice: ## The part of it that CI runs, on two kernels.
	@scripts/setup vm
	$(VM_BUILD)
	$(VM) --slice

test-arm: ## Tests the crates for every processor as programs for ARM, by QEMU, where they can be built.
	@scripts/test-arm

lint: ## Formatting, long lines, examples that nothing compiles, circles of files, the lock file of fuzz, warnings, links.
	find core tables elements programs lab fuzz examples fleet -name target -prune -o -name '*.rs' -print | xargs rustfmt --edition 2024 --check
	scripts/columns
	scripts/examples
	scripts/structure circles --max 3
	$(CARGO) update --workspace --locked --quiet --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

# With the versions that Artery is built with.
examples: ## Tests the example that is a crate outside the workspace.
	cp Cargo.lock examples/element/Cargo.lock
	$(CARGO) test --manifest-path examples/element/Cargo.toml

# artery-lpm, and what it stands on.
PUBLISHED = -p artery-rcu -p artery-wire -p artery-storage -p artery-lpm
publish-check: ## Packs and builds the crates for crates.io as it would, and uploads nothing.
	$(CARGO) publish --dry-run --locked $(PUBLISHED)

loom: ## Tries every order of events in the publication of values.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test -p artery-rcu --release --test loom

deny: ## Licences, sources and known vulnerabilities of dependencies, where cargo-deny is installed.
	@scripts/deny

miri: ## Undefined behaviour in rcu and packet, by Miri; needs a nightly toolchain.
	scripts/sanitize miri

sanitize: ## Undefined behaviour by Miri and sanitizers (threads, addresses); needs a nightly toolchain.
	scripts/sanitize

fuzz: ## A minute of every fuzz target; needs a nightly toolchain and cargo-fuzz.
	scripts/fuzz

soak: build ## Runs every product for an hour between hosts, as root, under good and hostile traffic; QUICK=1 for ten minutes.
	$(BENCH) soak $(if $(QUICK),--quick) $(if $(SECONDS_EACH),--seconds $(SECONDS_EACH))

pages: build ## Writes the element pages anew.
	$(PROGRAM) elements --markdown docs/elements

bench: build-dist ## Measures the engine; docs/benchmarks.md has the commands of all other figures.
	$(DIST_BENCH) engine

bench-tables: build-dist ## Measures routing tables, and repeats the experiment of 2016; TABLE=FILE takes a table of yours.
	$(DIST_BENCH) fib $(if $(TABLE),--table $(TABLE))
	$(DIST_BENCH) papers art2016 $(if $(TABLE),--table $(TABLE))

# A workspace of its own: its engines are hundreds of crates, and the router needs none of them.
fleet: ## Builds artery-fleet, which mirrors exceptions of flows between machines (docs/fleet.md), and tests it.
	@scripts/setup fleet
	$(CARGO) build --locked -p artery
	$(CARGO) test --locked --manifest-path fleet/Cargo.toml -p artery-fleet
	$(CARGO) build --release --locked --manifest-path fleet/Cargo.toml -p artery-fleet

fleet-demo: ## Shows three balancers, one of which dies and comes back, and one leaves, with and without artery-fleet (docs/fleet.md), as root.
	@scripts/setup fleet
	$(CARGO) build --release --locked -p artery
	$(CARGO) build --release --locked --manifest-path fleet/Cargo.toml -p artery-fleet -p artery-fleet-demo
	ulimit -n $$(ulimit -Hn) && fleet/target/release/artery-fleet-demo $(ARGUMENTS)

bench-dpdk: build-dist ## Measures routing tables beside those of DPDK, where libdpdk is installed.
	@pkg-config --exists libdpdk || { echo "libdpdk is missing (Debian: apt install libdpdk-dev)"; exit 1; }
	$(CC) -O3 -march=native -o target/dist/rte_fib lab/bench/c/rte_fib.c $$(pkg-config --cflags --libs libdpdk)
	$(DIST_BENCH) fib --dpdk target/dist/rte_fib
