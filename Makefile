# zonda: `make demo` shows it, `make test` tests it. Everything else is a shorthand for a cargo command.

# Seeds for the simulator: a minute of them in `make test`, chosen by the commit, so that each commit tests others.
COMMIT_SEED := $(shell git rev-parse --short=7 HEAD 2>/dev/null | sed 's/^/0x/' || echo 0x1)
SIM_SEEDS ?= 10000

.PHONY: help setup demo test check sim bench doc clean

help:
	@echo "make demo    build zonda and take a short tour of a drive (report in out/demo/report.html)"
	@echo "make test    format, lints, levels, tests, and a minute of simulation"
	@echo "make sim     2,000 simulated worlds (SIM_SEEDS=N for another number)"
	@echo "make bench   how fast the model runs on this machine"
	@echo "make doc     the API documentation, in target/doc"
	@echo "make clean   remove everything that was built"

# Installs what is missing: a linker and the pinned Rust toolchain.
setup:
	@scripts/setup

demo: setup
	@echo "building zonda (a few minutes the first time)"
	@cargo build --release --package zonda-cli
	@target/release/zonda demo --out out/demo

# Each step says what it is, so that a log shows where it stopped.
test: setup
	@echo "== format"
	cargo fmt --all --check
	@echo "== lints"
	cargo clippy --release --workspace --all-targets -- --deny warnings
	@echo "== levels and rooms"
	cargo xtask check
	@echo "== tests"
	cargo test --release --workspace
	@echo "== documentation"
	RUSTDOCFLAGS="--deny warnings" cargo doc --release --workspace --no-deps --quiet
	@echo "== a minute of simulation, from seed $(COMMIT_SEED)"
	cargo run --release --quiet --package zonda-cli -- sim --first $$(($(COMMIT_SEED))) --seeds $(SIM_SEEDS)
	@echo "== all fine"

sim: SIM_SEEDS = 2000
sim: setup
	cargo run --release --quiet --package zonda-cli -- sim --seeds $(SIM_SEEDS) --shrink

bench: setup
	cargo run --release --quiet --package zonda-bench

doc: setup
	cargo doc --release --workspace --no-deps

clean:
	cargo clean
	rm -rf out
