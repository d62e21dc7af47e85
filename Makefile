# What people type. `make demo` and `make test` do all set-up themselves; see README.md.
PREFIX ?= /usr/local
DESTDIR ?=
.PHONY: install demo test test-long vm vm-slice bench bench-tables bench-dpdk build setup fmt lint loom miri fuzz pages deny help

CARGO ?= cargo
PROGRAM = target/release/artery
BENCH = target/release/artery-bench

help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup: ## Installs the tools that demo and test use, where they are missing and we may.
	@scripts/setup

build: ## Builds the program and its benchmarks, optimised.
	$(CARGO) build --release --locked -p artery -p artery-lab

install: ## Installs the program and its benchmarks, manual pages, completions and systemd unit, which `make build` must have built: PREFIX, DESTDIR.
	install -Dm755 $(PROGRAM) $(BENCH) -t $(DESTDIR)$(PREFIX)/bin
	$(PROGRAM) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(PROGRAM) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/artery
	$(PROGRAM) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_artery
	$(PROGRAM) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/artery.fish
	sed 's#/usr/local/bin/#$(PREFIX)/bin/#' packaging/artery-adopt@.service \
	    > $(DESTDIR)$(PREFIX)/lib/systemd/system/artery-adopt@.service

demo: setup build ## Shows a router at work: on a pcap file, and as root between two hosts.
	$(BENCH) demo

test: setup lint ## Runs every check that a change must pass.
	$(CARGO) test --workspace --locked
	$(MAKE) --no-print-directory loom deny
	@scripts/skipped

test-long: setup build ## Tests the routing tables with many more random cases, and follows a full feed of BGP; takes minutes.
	ARTERY_LONG=1 $(CARGO) test --release --locked -p artery-table
	ARTERY_LONG=1 $(CARGO) test --release --locked -p artery-lab --test adopt_bgp feed

# What the rows are tried with; the unit tests of artery-adopt have the kernel's verifier take every program.
VM = ARTERY_ADOPT_TESTS=$$($(CARGO) test -p artery-adopt --lib --no-run --locked --message-format=json \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1) target/debug/artery-bench vm matrix

vm: ## Boots stock kernels in virtual machines and tries what runs there, for hours; ROWS='6.12/e1000e …' is a part of it.
	@scripts/setup vm
	$(CARGO) build --locked -p artery -p artery-lab
	$(VM) $(ROWS)

vm-slice: ## The part of it that CI runs, on two kernels.
	@scripts/setup vm
	$(CARGO) build --locked -p artery -p artery-lab
	$(VM) --slice

lint: ## Formatting, warnings, and links in the documentation.
	find crates fuzz -name target -prune -o -name '*.rs' -print | xargs rustfmt --edition 2024 --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

loom: ## Tries every order of events in the publication of values.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test -p artery-rcu --release --test loom

deny: ## Licences and sources of dependencies, where cargo-deny is installed.
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check licenses bans sources; \
	else echo "skipped: licence check: cargo-deny is not installed (cargo install cargo-deny)"; fi

miri: ## Undefined behaviour in crates that hold unsafe code; needs a nightly toolchain with miri.
	MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-disable-isolation" $(CARGO) +nightly miri test -p artery-rcu -p artery-packet

fuzz: ## A minute of every fuzz target; needs a nightly toolchain and cargo-fuzz.
	cd fuzz && for target in $$($(CARGO) fuzz list); do $(CARGO) +nightly fuzz run $$target -- -max_total_time=60 || exit 1; done

pages: build ## Writes the element pages anew.
	$(PROGRAM) elements --markdown docs/elements

bench: build ## Measures the engine; docs/benchmarks.md has the commands of all other figures.
	$(BENCH) engine

bench-tables: build ## Measures routing tables, and repeats the experiment of 2016; TABLE=FILE takes a table of yours.
	$(BENCH) fib $(if $(TABLE),--table $(TABLE))
	$(BENCH) seed0 $(if $(TABLE),--table $(TABLE))

bench-dpdk: build ## Measures routing tables beside those of DPDK, where libdpdk is installed.
	@pkg-config --exists libdpdk || { echo "libdpdk is missing (Debian: apt install libdpdk-dev)"; exit 1; }
	$(CC) -O3 -march=native -o target/release/rte_fib crates/lab/c/rte_fib.c $$(pkg-config --cflags --libs libdpdk)
	$(BENCH) fib --dpdk target/release/rte_fib
