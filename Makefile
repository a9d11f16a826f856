# zonda: `make demo` runs a demo, `make check` checks a change, `make test` tests everything. See `make help`.

# Seconds that each fuzzer runs.
FUZZ_SECONDS ?= 600
# Seeds of `make sim`.
SIM_SEEDS ?= 2000
# Rounds of kill -9 under load.
KILL_ROUNDS ?= 100
# Rounds of attacks on a volume of each of these levels.
KILL_VOLUME_ROUNDS ?= 25
KILL_LEVELS ?= single raid1 raid5 raid6
# Rounds of servers that take a volume over from each other.
KILL_OWNER_ROUNDS ?= 50
# Rounds of kills of a server of a pool.
KILL_POOL_ROUNDS ?= 100
# Duration of `make soak`.
HOURS ?= 1

.PHONY: help setup demo check test soak lab sim fuzz mutants kill attacks guest bench doc clean

help:
	@echo "make demo    build zonda and take a short tour of a drive (report in out/demo/report.html)"
	@echo "make check   format, lints, and the tests of changed packages (BASE=COMMIT: since COMMIT)"
	@echo "make test    all checks and tests required before a push, with a table of steps"
	@echo "make soak    all long tests with fresh seeds, for HOURS=1; report in out/soak/report.md"
	@echo "make lab     reproduce and compare all published measurements (a few minutes; pages in out/lab/index.html)"
	@echo "make sim     2,000 simulated scenarios (SIM_SEEDS=N for another number)"
	@echo "make guest   the long tests in a Linux guest"
	@echo "make kill    100 rounds of kill -9 under verified load, 25 of attacks on volumes of four levels, 50 of takeovers, 100 with a pool (KILL_ROUNDS=N, KILL_VOLUME_ROUNDS=N, KILL_OWNER_ROUNDS=N, KILL_POOL_ROUNDS=N)"
	@echo "make attacks attacks by unauthenticated clients: latencies of honest clients, memory of the server (10 minutes)"
	@echo "make fuzz    ten minutes of each fuzzer (FUZZ_SECONDS=N)"
	@echo "make mutants 200 random mutants of the pure crates; list those that no test detects"
	@echo "make bench   performance of zonda on this machine"
	@echo "make doc     the API documentation, in target/doc"
	@echo "make clean   remove everything that was built"

# Installs a linker and the pinned Rust toolchain if they are missing.
setup:
	@scripts/setup

demo: setup
	@echo "building zonda (a few minutes the first time)"
	@cargo build --release --package zonda-cli --no-default-features
	@target/release/zonda demo --out out/demo

check: setup
	@cargo xtask changed $(BASE)

test: setup
	@cargo xtask test

soak: setup
	@cargo xtask soak $(HOURS)

lab: setup
	@cargo build --release --quiet --package zonda-cli
	@target/release/zonda lab run --all

sim: setup
	cargo run --release --quiet --package zonda-cli -- sim --seeds $(SIM_SEEDS) --shrink

guest: setup
	cargo build --release --quiet --package zonda-cli
	cargo test --release --package zonda-full-stack -- --nocapture --ignored soak_

kill: setup
	cargo build --release --quiet --package zonda-cli
	cargo run --release --quiet --package zonda-kill -- --rounds $(KILL_ROUNDS)
	set -e; for level in $(KILL_LEVELS); do \
	  cargo run --release --quiet --package zonda-kill -- --volumes --level $$level --rounds $(KILL_VOLUME_ROUNDS); \
	done
	cargo run --release --quiet --package zonda-kill -- --owners --rounds $(KILL_OWNER_ROUNDS)
	cargo run --release --quiet --package zonda-kill -- --pools --rounds $(KILL_POOL_ROUNDS)

attacks: setup
	cargo build --release --quiet --package zonda-cli
	cargo run --release --quiet --package zonda-attacks

fuzz: setup
	scripts/fuzz --seconds $(FUZZ_SECONDS)

mutants: setup
	scripts/mutants --seed $$(date +%s)

bench: setup
	cargo run --release --quiet --package zonda-bench

doc: setup
	cargo doc --release --workspace --no-deps

clean:
	cargo clean
	rm -rf out
