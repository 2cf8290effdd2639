# Everything a contributor runs. `make` alone lists the targets.

CARGO ?= cargo
# The Redisson versions that the interop tests run against, the newest and an older one; the demo takes the first.
REDISSON ?= 4.7.0 3.27.0
# The others, which `make interop-all` lets take the older one's place.
REDISSON_BETWEEN := 3.37.0 3.44.0 3.52.0
# INTEROP=skip leaves Java out: nothing of it is installed, built or run.
INTEROP ?=
# VALKEY=skip leaves the run on Valkey out of `make test`: no Valkey is looked for, fetched or run.
VALKEY ?=
# The servers that `make servers` fetches and runs on, beside the machine's own redis-server, which is Redis 7.0 on Debian 12.
SERVERS ?= redis-6.0 redis-6.2 redis-8.0 valkey-8.1 valkey-9.1 redict-7.3
# What runs beside Java on each of them: the newest Redisson. `make servers-all` runs the older one too.
BESIDE_JAVA_ON_SERVERS ?= redisson_4_7_0
# What runs in a database of clusters other than 0, which Valkey 9 has (and Redisson 4.7.0).
IN_A_DATABASE_OF_CLUSTERS := cluster_databases:: cluster::migration:: contract::reentrant:: contract::fair::
# How often `make test-loaded` runs everything, and `make soak` the integration tests. For `make soak`, also how long each of their
# histories lasts, and which of them: part of their names, such as `histories::fair`; all, if it is empty.
ROUNDS ?= 10
HISTORY_SECONDS ?= 60
# How long `make soak` fuzzes each parser.
FUZZ_SECONDS ?= 60
ONLY ?=
# How long `make tokens` runs.
TOKEN_SECONDS ?= 300

# UPDATE=1 has `make bench-check` write its figures instead of comparing with them, `make weight` its table into docs/benchmarks.md, and `make test-all` its length into docs/testing.md.
UPDATE ?=

# How often `make topologies` and `make failovers` let masters die.
TOPOLOGY_ROUNDS ?= 3

# What `make simulate` plays: as many histories from this seed on, or the one of SEED, told line by line.
HISTORIES ?= 20000
FIRST_SEED ?= 1
SEED ?=
# The world of all histories (node, cluster, replicas, model), or that of their seeds. The profile of the one of SEED, or that of the seed.
WORLD ?=
PROFILE ?=

# How many preemptions `make models` allows in an interleaving; as many as each model asks for, if it is empty.
PREEMPTIONS ?=

# How many schedules of each game `make interop-random` plays, from FIRST_SEED on. One of each is told step by step.
SEEDS ?= 200

DIFFERENTIAL_ROUNDS ?= 1000

# Tests at a time: they wait more than they work, but too many make leases short.
TEST_THREADS ?= 8

# The packages with examples in their documentation. `models` has none of its own: it includes files of the crate, and
# cargo runs the examples of a package that is asked for by name, whatever its manifest says.
DOCUMENTED := -p redisson-lock -p redisson-lock-test -p testbed --all-features
# One set of packages and features, and one profile, for lints, documentation and tests: what one builds, the next uses.
PACKAGES := -p models -p histories -p explorer -p rlock $(DOCUMENTED)

# --- What `make test` runs; `make test-all` runs the rest. See docs/testing.md -------------------------------

RUN := tools/run-tests.sh --note 'make test-all runs them'
# On redis-server: everything, but for what differs from another test by the kind of lock or of failure only, and the shard that
# sleeps, for which the simulator has a test without real time.
SKIPPED_ON_REDIS := hazards::read::slow hazards::write::slow hazards::simple::slow \
	histories::multi_mixed histories::fenced histories::spin histories::non_reentrant:: \
	histories::non_reentrant_fair::calm histories::non_reentrant_fair::freezes \
	cluster::migration::write cluster::migration::fenced cluster::migration::spin cluster::migration::simple \
	cluster::upheaval::another_cluster cluster::frozen::p_r5 sentinel::timing
# On a cluster: a kind that has several keys, and one that shares its messages.
ON_A_CLUSTER := contract::fair:: contract::read::
# On Valkey: every script, the rights, servers of another sort than the URL's, and the contract of three kinds.
ON_VALKEY := scripts:: rights:: bad_input::set_ups:: contract::reentrant:: contract::fair:: contract::write::
# Beside the newest Java Redisson: everything on one server but what the fair lock shows too, and a kind each on a cluster
# and behind sentinels. Beside the older one: the data that each step leaves, exclusion, order, and wake-ups both ways.
BESIDE_JAVA := rust_service redisson_4_7_0 --skip non_reentrant_fair \
	topologies::clusters::reentrant_lock topologies::clusters::messages topologies::sentinels::read_lock:: \
	older_redisson::every_step older_redisson::an_unlock older_redisson::excludes older_redisson::all_waiters_enter yaml:: \
	random::compare random::leases random::state

export INTEROP TEST_THREADS

JAVA := $(if $(filter skip,$(INTEROP)),,java)
WITH_VALKEY := $(if $(filter skip,$(VALKEY)),,valkey)

# A recipe line that starts other programs too names this: `make -n` runs each line that names $(MAKE).
SUBMAKE := $(MAKE) --no-print-directory

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-loaded test-all lint lint-text lint-examples lint-rest unit it valkey interop \
	lint-lean without-features doc programs bench-peers \
	output bench-compare bench-shares bench-check bench-gauges bench-permits weight soak tokens peers interop-all interop-random servers servers-all topologies failovers \
	package msrv minimal-versions api deny typos semver \
	compose windows windows-tests other-platforms models explore explore-walks explore-mutants simulate simulate-mutants differential run-small run-interop run-interop-all run-topologies run-failovers

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

# Clippy's compiler builds the tests, so that their build lints them: a check of its own would take 90 s. Cargo keeps what another
# compiler has built apart, so `cargo test` builds this repository's packages once more.
test test-all programs: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
test test-all programs: export CLIPPY_ARGS := -Dwarnings

test: ## What every change must pass, in minutes: lints, docs, and a test of every promise
	@tools/setup.sh --need rust --need cc --need redis $(JAVA:%=--need %) || \
		{ echo "make test: stopped, see above; if only Java is missing, INTEROP=skip leaves its tests out"; exit 1; }
	@$(if $(WITH_VALKEY),tools/get-valkey.sh >/dev/null)
	@mkdir -p target
	@: $(if $(JAVA),Maven waits for the network while cargo works.); \
	$(SUBMAKE) peers >target/peers.log 2>&1 & peers=$$!; \
	$(SUBMAKE) lint-text programs; built=$$?; \
	wait $$peers || { cat target/peers.log; exit 1; }; exit $$built
	@: Tests on servers wait for leases and leave a third of both cores idle: the simulator, the documentation and Java use it.; \
	nice -n 3 $(RUN) sim "in memory" >target/sim.log 2>&1 & sim=$$!; \
	$(SUBMAKE) run-small && { \
	nice -n 3 $(SUBMAKE) doc lint-examples lint-lean >target/doc.log 2>&1 & doc=$$!; \
	set -x; $(RUN) --threads 12 it "on redis-server" $(SKIPPED_ON_REDIS:%=--skip %); } && { \
	$(if $(JAVA),$(RUN) interop "beside Java" $(BESIDE_JAVA) >target/interop.log 2>&1 & interop=$$!;) \
	TOPOLOGY=cluster $(RUN) it "on a cluster" $(ON_A_CLUSTER) && \
	$(if $(WITH_VALKEY),REDIS_SERVER="$$(tools/get-valkey.sh)" $(RUN) it "on Valkey" $(ON_VALKEY),true); }; passed=$$?; \
	set +x; for beside in interop:$$interop sim:$$sim doc:$$doc; do \
		[ "$${beside#*:}" ] || continue; \
		wait $${beside#*:} || { cat target/$${beside%:*}.log; passed=1; }; \
		grep -E '^(run-tests:|test result:)' target/$${beside%:*}.log; \
	done; exit $$passed
	@echo
	@tools/run-tests.sh --left-out
	@echo "left out: other servers, topologies and failovers, further versions of Redisson, the contract without hand-offs in memory," \
		"tests of the library without features, instruction counts (make test-all runs them)"
	@$(if $(JAVA),,echo "left out: INTEROP=skip: every test against Java")
	@$(if $(WITH_VALKEY),,echo "left out: VALKEY=skip: every test on Valkey")
	@echo "make test: passed"

# The test programs that take seconds.
run-small:
	tools/run-tests.sh lib "no server needed"
	@for example in singleton_job leader_election read_write_cache; do \
		tools/run-tests.sh $$example "in memory" || exit 1; \
	done
	tools/run-tests.sh models "under loom"
	tools/run-tests.sh explorer:server "in memory"
	tools/run-tests.sh explorer:small "in memory"
	tools/run-tests.sh explorer:walks "in memory"
	tools/run-tests.sh gauges "in memory"
	tools/run-tests.sh memory "in memory"
	tools/run-tests.sh redisson-lock-test:lib "in memory"
	tools/run-tests.sh redisson-lock-test:unit_test "in memory"
	tools/run-tests.sh histories:lib "no server needed"
	tools/run-tests.sh testbed:lib "no server needed"
	tools/run-tests.sh testbed:it "on redis-server"
	@for example in fenced_store axum_service fred_service blocking_limit blocking_worker prometheus; do \
		tools/run-tests.sh $$example "on redis-server" || exit 1; \
	done
	$(CARGO) test --quiet $(PACKAGES) --bin rlock
	tools/run-tests.sh tool "on redis-server"
	$(CARGO) test --quiet $(DOCUMENTED) --doc

test-loaded: ## `make test` ROUNDS times beside two busy loops, with the time of each; stops at the first failure
	@sh -c 'while :; do :; done' & one=$$!; sh -c 'while :; do :; done' & other=$$!; \
	trap "kill $$one $$other" EXIT; trap "exit 1" INT TERM; \
	mkdir -p target; \
	for round in $$(seq $(ROUNDS)); do \
		start=$$(date +%s); \
		$(SUBMAKE) test >target/loaded.log 2>&1 || { tail -n 100 target/loaded.log; exit 1; }; \
		echo "test-loaded: round $$round of $(ROUNDS) passed after $$(($$(date +%s) - start)) s"; \
	done

test-all: ## `make test` in full, on more servers, all versions of Redisson, topologies, failovers (UPDATE=1 notes its length)
	@tools/setup.sh --need rust --need cc --need redis $(JAVA:%=--need %) --want valgrind || \
		{ echo "make test-all: stopped, see above; if only Java is missing, INTEROP=skip leaves its tests out"; exit 1; }
	@mkdir -p target && date +%s >target/test-all-started
	@$(MAKE) --no-print-directory lint-text programs lint-rest doc peers
	@$(MAKE) --no-print-directory run-small
	tools/run-tests.sh sim "in memory"
	tools/run-tests.sh it "on redis-server"
	LOCAL_HAND_OFF=0 tools/run-tests.sh --note "they choose their hand-off window" it "without hand-offs in memory" contract::
	@$(MAKE) --no-print-directory servers run-interop-all run-topologies
	@$(MAKE) --no-print-directory without-features
	$(CARGO) test --quiet -p compare
	@: Code that clippy compiles is optimized less.; env -u RUSTC_WORKSPACE_WRAPPER tools/bench-check.sh --if-possible
	@echo
	@tools/run-tests.sh --left-out
	@$(if $(JAVA),,echo "left out: INTEROP=skip: every test against Java")
	@echo "left out: Valkey 8.0 (make valkey), other servers beside the older Redisson and Debian's Redis 7.0 (make servers-all), long runs and fuzzing (make soak), campaigns (make simulate, make simulate-mutants)"
	@tools/test-all-length.sh $(if $(UPDATE),--update)

lint: lint-text lint-lean ## Formatting, recipes of this file, new dependencies, references and links of pages, seeded bugs that apply, and clippy, warnings denied
	$(CARGO) clippy $(PACKAGES) --all-targets -- -D warnings

lint-text:
	$(CARGO) fmt --all --check
	tools/check-recipes.sh
	tools/check-dependencies.sh
	tools/check-versions.sh
	tools/weight.sh --check
	tools/simulate-mutants.sh --check
	$(CARGO) run --quiet -p explorer --bin mutants -- --check
	$(CARGO) test --quiet -p pages
	$(CARGO) run --quiet -p pages

# The build of the tests builds examples as tests only.
lint-examples:
	$(CARGO) clippy -p redisson-lock --all-features --examples -- -D warnings

# The library and its documentation in sets of features that other builds here never have. They get a folder of their own, since all
# documentation of a build folder goes to one place.
LEAN ?= serde
lint-lean: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/lean
lint-lean:
	@set -e; for features in $(LEAN); do \
		set -- -p redisson-lock --lib --no-default-features --features "$${features#none}"; \
		echo "lint-lean: $$features"; \
		$(CARGO) clippy "$$@" -- -D warnings; \
		RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps "$$@"; \
	done

# The benchmarks, and the library in the sets of features that users choose.
lint-rest: lint-examples
	$(CARGO) clippy -p compare -p instructions --all-targets -- -D warnings
	@$(SUBMAKE) lint-lean LEAN="none serde serde,rustls serde,fred rustls,fred blocking metrics,transport keystore,redisson-yaml"
	$(CARGO) clippy -p tls_libraries --tests --features aws-lc -- -D warnings
	$(CARGO) clippy -p tls_libraries --tests --features without-rustls -- -D warnings

doc: ## The API documentation, warnings denied; links of pages into it
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps $(PACKAGES)
	$(CARGO) run --quiet -p pages -- --rustdoc $${CARGO_TARGET_DIR:-target}/doc

# --- What a release needs besides `make test-all`. See RELEASING.md ------------------------------------------

package: ## What crates.io would get of the library, the test kit and rlock: packaged, unpacked and built elsewhere
	tools/check-package.sh

msrv: ## Builds with the oldest supported Rust (rust-version of Cargo.toml; rustup installs it)
	tools/check-msrv.sh

minimal-versions: ## Builds with the oldest versions of direct dependencies that Cargo.toml allows (needs nightly)
	tools/check-minimal-versions.sh

api: ## The public API against docs/public-api.txt (UPDATE=1 writes it; needs cargo-public-api and nightly)
	tools/check-api.sh $(if $(UPDATE),--update)

deny: ## New dependencies; licences, advisories, duplicates and sources of all (needs cargo-deny)
	tools/check-dependencies.sh
	$(CARGO) deny --all-features check

typos: ## Spelling (needs typos-cli)
	typos

semver: ## The public API against the last release (needs cargo-semver-checks and a release)
	$(CARGO) semver-checks --all-features

compose: ## Starts each profile of docker-compose.yml and runs `rlock doctor` against it (needs Docker)
	tools/compose.sh

windows: ## Checks that the library with its tests, the test kit and rlock compile for Windows (needs rustup; fetches a C compiler if need be)
	tools/windows.sh

windows-tests: ## Unit tests and the simulator under wine (installs wine; 10 minutes; ONLY=part of their names)
	tools/windows.sh --test $(ONLY)

other-platforms: ## Checks that the library without C code compiles for macOS and for Linux on arm64 (needs rustup)
	@for target in aarch64-apple-darwin aarch64-unknown-linux-gnu; do \
		rustup target add $$target && echo "other-platforms: $$target" && \
		$(CARGO) clippy --target $$target -p redisson-lock --no-default-features \
			--features blocking,fred,metrics,redisson-yaml,serde -- -D warnings || exit 1; \
	done

# Builds all test programs, and notes where they are, for tools/run-tests.sh. Forgets what earlier runs have left out.
programs:
	@tools/build-tests.sh $(PACKAGES)

unit: programs ## Unit and property tests: no server needed
	tools/run-tests.sh lib "no server needed" $(ONLY)

it: programs ## Integration tests on a redis-server that they start (ONLY=part of their names)
	tools/run-tests.sh it "on $${REDIS_SERVER:-redis-server}" $(ONLY)

valkey: programs ## Integration tests, but the long ones of faults, on Valkey 8 (fetched if need be)
	server=$$(tools/get-valkey.sh) && REDIS_SERVER="$$server" tools/run-tests.sh it "on Valkey" --skip hazards::

# On every server but redis-server the long tests of faults are left out: they are about the client. Redis 6 has
# neither the rights nor the commands that the other tests use; what the test bed cannot ask it for is left out.
servers: programs $(JAVA:%=peers) ## Integration tests, but the long ones of faults, and Java, on other servers (fetched; SERVERS=redis-8.0 picks)
	@for server in $(SERVERS); do \
		program=$$(tools/get-server.sh $$server) || exit 1; \
		case $$server in \
		redis-6.*) set -- --note "Redis 6 lacks commands of the test bed" it "on $$server" contract:: hostile::handshakes::default_user --skip ::foreign:: ;; \
		*) set -- --note "they concern the client" it "on $$server" --skip hazards:: --skip histories:: ;; \
		esac; \
		REDIS_SERVER="$$program" tools/run-tests.sh "$$@" || exit 1; \
		$(if $(JAVA),REDIS_SERVER="$$program" tools/run-tests.sh --note "they run on redis-server" interop "beside Java on $$server" \
			$(BESIDE_JAVA_ON_SERVERS) --skip a_cluster_behind_a_nat --skip stores:: || exit 1;) \
		case $$server in valkey-9.*) ;; *) continue ;; esac; \
		export CLUSTER_DATABASES=4; \
		TOPOLOGY=cluster REDIS_SERVER="$$program" tools/run-tests.sh --note "they run in database 0" it "in a database of clusters" \
			$(IN_A_DATABASE_OF_CLUSTERS) || exit 1; \
		$(if $(JAVA),REDIS_SERVER="$$program" tools/run-tests.sh --note "they run in database 0" \
			interop "beside Java in a database of clusters" topologies::clusters:: || exit 1;) \
		unset CLUSTER_DATABASES; \
	done

servers-all: ## `make servers`, on Redis 7.0 too, and beside the older Redisson too
	@$(MAKE) --no-print-directory servers SERVERS="redis-7.0 $(SERVERS)" BESIDE_JAVA_ON_SERVERS="redisson_4_7_0 older_redisson"

interop: peers programs ## Conformance tests with a running Java Redisson
	@$(MAKE) --no-print-directory run-interop

interop-all: peers programs ## Conformance tests with all versions of Redisson that are looked after
	@$(MAKE) --no-print-directory run-interop-all

interop-random: peers programs ## Random schedules beside Java, and in Java alone (SEEDS of each game; ONLY=fair FIRST_SEED=17 SEEDS=1 tells one)
	$(if $(JAVA),GAME=$(ONLY) SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED) tools/run-tests.sh interop "beside Java" --nocapture random::schedules,\
		@echo "interop-random: INTEROP=skip: left out")

output: peers programs ## Writes what the commands print that the pages show, where that has changed
	UPDATE_OUTPUT=1 $(CARGO) test --quiet -p rlock --test tool pages:: -- --test-threads 1
	$(if $(JAVA),UPDATE_OUTPUT=1 $(CARGO) test --quiet $(DOCUMENTED) --test interop incident)

run-interop:
	$(if $(JAVA),tools/run-tests.sh interop "beside Java",@echo "interop: INTEROP=skip: left out, every test against Java")

run-interop-all: run-interop
	@$(if $(JAVA),tools/build-peer.sh $(REDISSON_BETWEEN))
	@for version in $(if $(JAVA),$(REDISSON_BETWEEN)); do \
		OLDER_REDISSON=$$version tools/run-tests.sh --note "they do not depend on the older version" \
			interop "beside Redisson $$version" older_redisson || exit 1; \
	done

# Also what a build without TLS says to a rediss:// URL. rlock is a program without fred, and its tests connect by TLS.
without-features: ## The library without features, without fred, and beside other TLS libraries
	@for features in "" serde serde,rustls default; do \
		echo "without-features: $${features:-none}"; \
		$(CARGO) test --quiet -p redisson-lock --lib --no-default-features --features "$$features" || exit 1; \
	done
	$(CARGO) test --quiet -p rlock --test tool tls::
	$(CARGO) test --quiet -p tls_libraries --features without-rustls
	@if pkg-config --exists openssl; then set -- native-tls; else set -- aws-lc; \
		echo "without-features: no headers of OpenSSL (libssl-dev): left out, a fred client with native-tls"; fi; \
	$(CARGO) test --quiet -p tls_libraries --features "$$@"

peers:
	@$(if $(JAVA),tools/build-peer.sh $(REDISSON),echo "peers: INTEROP=skip: not built")

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

weight: ## Crates, processor time and size of a program with this crate, beside fred and redis-rs (UPDATE=1 notes them; 15 minutes)
	tools/weight.sh $(if $(UPDATE),--update)

bench-check: ## Instructions of lock, renewal, wake-up and hand-off against the committed figures (UPDATE=1 writes them)
	@tools/setup.sh --need rust --need cc --need redis --need valgrind
	tools/bench-check.sh $(if $(UPDATE),--update)

bench-gauges: ## Pairs per second with the feature metrics beside those without it (GAUGE_ROUNDS=40; 3 minutes)
	@tools/setup.sh --need rust --need cc --need redis
	tools/gauges-cost.sh

bench-permits: ## The p50 of a semaphore's pair beside that of a lock's pair (a minute)
	@tools/setup.sh --need rust --need cc --need redis
	tools/permits-cost.sh

# Bounded: about half an hour on two cores.
topologies: peers programs ## The contract of all kinds on a cluster and behind sentinels, and failovers TOPOLOGY_ROUNDS times
	@$(MAKE) --no-print-directory run-topologies

run-topologies:
	TOPOLOGY=cluster tools/run-tests.sh --note "they choose their servers" it "on a cluster" contract::
	TOPOLOGY=sentinel tools/run-tests.sh --note "they choose their servers" it "behind sentinels" contract::
	TOPOLOGY_ROUNDS=$(TOPOLOGY_ROUNDS) tools/run-tests.sh --threads 2 --note "no failovers" it "$(TOPOLOGY_ROUNDS) failovers" \
		cluster:: sentinel:: durability::
	@$(MAKE) --no-print-directory run-failovers

failovers: peers programs ## Failovers beside Java, TOPOLOGY_ROUNDS of each sort, with their times
	@$(MAKE) --no-print-directory run-failovers

run-failovers:
	@$(if $(JAVA),TOPOLOGY_ROUNDS=$(TOPOLOGY_ROUNDS) tools/run-tests.sh --threads 1 --note "no failovers" \
		interop "$(TOPOLOGY_ROUNDS) failovers" --nocapture losses,echo "failovers: INTEROP=skip: left out, failovers beside Java")

differential: ## The server in memory beside redis-server and Valkey, DIFFERENTIAL_ROUNDS of 100 commands and scripts each
	DIFFERENTIAL_ROUNDS=$(DIFFERENTIAL_ROUNDS) $(CARGO) test $(PACKAGES) --test sim -- in_memory_redis::differential
	@server=$$(tools/get-valkey.sh) && set -x && REDIS_SERVER="$$server" DIFFERENTIAL_ROUNDS=$(DIFFERENTIAL_ROUNDS) \
		$(CARGO) test $(PACKAGES) --test sim -- in_memory_redis::differential

explore: ## Every interleaving of small systems on the core: small, middle and large ones, some minutes (ONLY=their names)
	$(CARGO) run --release --quiet -p explorer -- $(if $(ONLY),$(ONLY),all)

explore-walks: ## COUNT random ways through larger systems on the core, from the seed FIRST on (`make explore-walks FIRST=42`)
	$(CARGO) run --release --quiet -p explorer --bin walks -- $(or $(FIRST),1) $(or $(COUNT),40000)

explore-mutants: ## The core with one seeded error after the other, each of which a system or a walk must find (ONLY=locks, permits, latches or part of a name)
	$(CARGO) run --quiet -p explorer --bin mutants -- $(if $(ONLY),"$(ONLY)")

models: ## Models of what passes between threads, under loom (ONLY=part of their names, PREEMPTIONS=5)
	$(if $(PREEMPTIONS),LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS)) $(CARGO) test $(PACKAGES) --test models -- \
		--nocapture --test-threads 1 $(ONLY)

simulate: ## HISTORIES simulated histories from FIRST_SEED on, or the one of SEED (and PROFILE), told (WORLD=node, cluster, replicas or model; build of its own; 2 minutes)
	@HISTORIES=$(HISTORIES) FIRST_SEED=$(FIRST_SEED) SEED=$(SEED) WORLD=$(WORLD) PROFILE=$(PROFILE) \
		$(CARGO) test --profile simulate -p redisson-lock --all-features --test sim -- --nocapture histories_keep_the_rules

simulate-mutants: ## Seeded bugs, each of which the simulator must find (ONLY=part of names, MUTANT_HISTORIES=20000 at most)
	tools/simulate-mutants.sh

tokens: programs ## Tokens of 10 s for TOKEN_SECONDS: connections cut every 25 s, on one server, behind sentinels, on a cluster
	TOKEN_SECONDS=$(TOKEN_SECONDS) tools/run-tests.sh --note "no tokens" it "with tokens that end" --nocapture credentials_provider::tokens

soak: programs ## Fuzz targets and long runs, then the integration tests, ROUNDS times, with long histories; stops at the first failure
	FUZZ_SECONDS=$(FUZZ_SECONDS) tools/run-tests.sh --threads 2 --note "not fuzzed" lib "fuzzed" fuzz_tests --nocapture
	LONG=1 tools/run-tests.sh --threads 1 --note "no long runs" it "at length" hostile::long hostile::outages --nocapture
	@for round in $$(seq $(ROUNDS)); do \
		echo "soak: round $$round of $(ROUNDS)"; \
		HISTORY_SECONDS=$(HISTORY_SECONDS) tools/run-tests.sh it "with long histories" --quiet $(ONLY) || exit 1; \
	done
