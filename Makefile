# Everything a contributor runs. `make` alone lists the targets.

CARGO ?= cargo
# The Redisson versions that the interop tests run against, the newest and an older one; the demo takes the first.
REDISSON ?= 4.7.0 3.27.0
# The others, which `make interop-all` lets take the older one's place.
REDISSON_BETWEEN := 3.37.0 3.44.0 3.52.0
# INTEROP=skip leaves Java out: nothing of it is installed, built or run.
INTEROP ?=
# VALKEY=skip leaves the run on Valkey out: no Valkey is looked for, fetched or run.
VALKEY ?=
# How often `make soak` runs the integration tests, how long each of their histories lasts, and which of them: part of
# their names, such as `histories::fair`; all, if it is empty.
ROUNDS ?= 10
HISTORY_SECONDS ?= 60
ONLY ?=

# UPDATE=1 has `make bench-check` write its figures instead of comparing with them.
UPDATE ?=

# How often `make topologies` and `make failovers` let masters die.
TOPOLOGY_ROUNDS ?= 3
# Of the contract's kinds, those that `make test` runs on a cluster.
ON_A_CLUSTER := contract::reentrant:: contract::fair:: contract::read::

# Tests at a time in `make test`: they wait more than they work, and more than twice the cores would make leases short.
TEST_THREADS ?= 4

export INTEROP

JAVA := $(if $(filter skip,$(INTEROP)),,java)
ON_VALKEY := $(if $(filter skip,$(VALKEY)),,valkey)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test lint unit it valkey interop without-tls doc bench-peers bench-compare bench-shares bench-check soak peers interop-all on-a-cluster topologies failovers

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  INTEROP=skip  leaves Java out (test, demo)"
	@echo "  VALKEY=skip   leaves the run on Valkey out (test)"

setup: ## Installs what is missing: redis-server, a JDK, Maven
	@tools/setup.sh --need rust --need cc --need redis $(JAVA:%=--want %)

demo: setup ## A Java and a Rust service contend for one lock (two Rust processes without Java)
	@if [ -z "$(JAVA)" ]; then echo "demo: INTEROP=skip: without Java"; \
	elif ! tools/setup.sh --check --want java >/dev/null; then echo "demo: no JDK 17 or no Maven: without Java"; \
	elif ! tools/build-peer.sh $(firstword $(REDISSON)); then echo "demo: the Java service could not be built (see above): without Java"; fi
	@$(CARGO) run --quiet --example demo

test: ## Everything that must pass: formatting, lints, docs, all tests
	@tools/setup.sh --need rust --need cc --need redis $(JAVA:%=--need %) --want valgrind || \
		{ echo "make test: stopped, see above; if only Java is missing, INTEROP=skip leaves its tests out"; exit 1; }
	@$(if $(ON_VALKEY),tools/get-valkey.sh >/dev/null)
	@$(MAKE) --no-print-directory lint doc peers
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --features rustls $(if $(JAVA),,--lib --bins --examples --test it)
	@$(MAKE) --no-print-directory on-a-cluster $(ON_VALKEY) without-tls
	@tools/bench-check.sh --if-possible
	@$(if $(JAVA),,echo "make test: INTEROP=skip: passed WITHOUT the tests against Java")
	@$(if $(ON_VALKEY),,echo "make test: VALKEY=skip: passed WITHOUT the run on Valkey")

lint: ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --all-targets --features rustls -- -D warnings

unit: ## Unit and property tests: no server needed
	$(CARGO) test --lib --features rustls

it: ## Integration tests on a redis-server that they start
	$(CARGO) test --test it --features rustls

# All but the long tests of faults, which are about the client, not about the server. The rest waits more than it works:
# more threads than cores. It names what it leaves out, not what it runs, so that a new module runs here too.
valkey: ## Integration tests, but the long ones of faults, on Valkey 8 (fetched if need be)
	@server=$$(tools/get-valkey.sh) && set -x && REDIS_SERVER="$$server" $(CARGO) test --test it --features rustls -- \
		--test-threads=4 --skip hazards::

# They wait most of the time: more of them at once than there are cores.
RUN_INTEROP := $(CARGO) test --test interop --features rustls -- --test-threads=6

interop: peers ## Conformance tests with a running Java Redisson
	@$(if $(JAVA),set -x; $(RUN_INTEROP),echo "interop: INTEROP=skip: left out, every test against Java")

interop-all: interop ## Conformance tests with all versions of Redisson that are looked after
	@$(if $(JAVA),tools/build-peer.sh $(REDISSON_BETWEEN),echo "interop-all: INTEROP=skip: not built")
	@for version in $(if $(JAVA),$(REDISSON_BETWEEN)); do \
		echo "interop-all: Redisson $$version"; \
		OLDER_REDISSON=$$version $(RUN_INTEROP) older_redisson || exit 1; \
	done

# What a build without TLS says to a rediss:// URL. The first line fails if the filter matches no test.
without-tls:
	@$(CARGO) test --quiet --lib --test it --no-default-features without_tls -- --list | grep ': test$$' >/dev/null
	$(CARGO) test --lib --test it --no-default-features without_tls

peers:
	@$(if $(JAVA),tools/build-peer.sh $(REDISSON),echo "peers: INTEROP=skip: not built")

doc: ## The API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --features rustls

# Peers in other languages that cannot be built are left out, and said to be: target/bench-peers.log.
bench-peers:
	@mkdir -p target
	@tools/build-bench-peers.sh | tee target/bench-peers.log
	$(CARGO) build --release -p compare --features rslock

bench-compare: ## This crate beside raw clients and the locks of other languages (BENCH_QUICK=1: 6 minutes, not 30)
	@tools/setup.sh --need rust --need cc --need redis --want java
	@$(MAKE) --no-print-directory bench-peers
	$(CARGO) run --release -p compare --features rslock

bench-shares: ## Shares of a contended lock per process: this crate, Redisson, both (BENCH_QUICK=1: 3 minutes, not 8)
	@tools/setup.sh --need rust --need cc --need redis --want java
	@tools/build-bench-peers.sh redisson
	$(CARGO) build --release -p compare --features rslock
	$(CARGO) run --release -p compare --features rslock -- --shares

bench-check: ## Instructions of lock, renewal and wake-up against the committed figures (UPDATE=1 writes them)
	@tools/setup.sh --need rust --need cc --need redis --need valgrind
	tools/bench-check.sh $(if $(UPDATE),--update)

# A cluster of real processes, and a kind of each sort: what a set-up changes is the way to the server, not the lock.
on-a-cluster: ## The contract of some kinds on a cluster
	TOPOLOGY=cluster RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --test it --features rustls -- $(ON_A_CLUSTER)

# Bounded: about half an hour on two cores.
topologies: peers ## The contract of all kinds on a cluster and behind sentinels, and failovers TOPOLOGY_ROUNDS times
	TOPOLOGY=cluster RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --test it --features rustls -- contract::
	TOPOLOGY=sentinel RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --test it --features rustls -- contract::
	TOPOLOGY_ROUNDS=$(TOPOLOGY_ROUNDS) $(CARGO) test --test it --features rustls -- --test-threads=2 cluster:: sentinel:: durability::
	@$(MAKE) --no-print-directory failovers

failovers: peers ## Failovers beside Java, TOPOLOGY_ROUNDS of each sort, with their times
	@$(if $(JAVA),TOPOLOGY_ROUNDS=$(TOPOLOGY_ROUNDS) $(CARGO) test --test interop --features rustls -- \
		--test-threads=1 --nocapture losses,echo "failovers: INTEROP=skip: not run")

soak: ## The integration tests, ROUNDS times, with long histories; stops at the first failure
	@$(CARGO) test --test it --features rustls --no-run
	@for round in $$(seq $(ROUNDS)); do \
		echo "soak: round $$round of $(ROUNDS)"; \
		HISTORY_SECONDS=$(HISTORY_SECONDS) $(CARGO) test --quiet --test it --features rustls -- $(ONLY) || exit 1; \
	done
