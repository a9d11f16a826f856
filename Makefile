# zonda: `make demo` shows it, `make test` tests it. Everything else is a shorthand for a cargo command.

# Seeds for the simulator: a minute of them in `make test`, chosen by the commit, so that each commit tests others.
COMMIT_SEED := $(shell git rev-parse --short=7 HEAD 2>/dev/null | sed 's/^/0x/' || echo 0x1)
SIM_SEEDS ?= 3000
# Seconds that each fuzzer runs in `make test`, and on its own.
FUZZ_SECONDS ?= 20
# Rounds of kill -9 under load.
KILL_ROUNDS ?= 100

.PHONY: help setup demo test lab sim fuzz kill guest bench doc clean

help:
	@echo "make demo    build zonda and take a short tour of a drive (report in out/demo/report.html)"
	@echo "make test    format, lints, levels, tests (some in a Linux guest), a minute of simulation, 20 seconds of each fuzzer"
	@echo "make lab     every published measurement repeated and compared, pages in out/lab/index.html (a few minutes)"
	@echo "make sim     2,000 simulated worlds (SIM_SEEDS=N for another number)"
	@echo "make guest   the tests in a Linux guest alone"
	@echo "make kill    100 rounds of kill -9 under verified load (KILL_ROUNDS=N)"
	@echo "make fuzz    ten minutes of each fuzzer (FUZZ_SECONDS=N)"
	@echo "make bench   how fast zonda runs on this machine"
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
	@echo "== $(FUZZ_SECONDS) s of each fuzzer"
	@scripts/fuzz --seconds $(FUZZ_SECONDS) || [ $$? -eq 77 ]
	@echo "== all fine"

lab: setup
	@cargo build --release --quiet --package zonda-cli
	@target/release/zonda lab run --all

sim: SIM_SEEDS = 2000
sim: setup
	cargo run --release --quiet --package zonda-cli -- sim --seeds $(SIM_SEEDS) --shrink

guest: setup
	cargo build --release --quiet --package zonda-cli
	cargo test --release --package zonda-full-stack -- --nocapture

kill: setup
	cargo build --release --quiet --package zonda-cli
	cargo run --release --quiet --package zonda-kill -- --rounds $(KILL_ROUNDS)

fuzz: FUZZ_SECONDS = 600
fuzz: setup
	scripts/fuzz --seconds $(FUZZ_SECONDS)

bench: setup
	cargo run --release --quiet --package zonda-bench

doc: setup
	cargo doc --release --workspace --no-deps

clean:
	cargo clean
	rm -rf out
