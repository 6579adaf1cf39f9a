# redis-lease: presence leases for Redis. `make run` and `make test` set up what they need.

PORT ?= 6380
REDIS_SERVER ?= redis-server
TARGET := $(or $(CARGO_TARGET_DIR),target)
MODULE := $(TARGET)/release/libredis_lease.so
PYTHON := .venv/bin/python

# Tests find the server and the module by these two.
export REDIS_SERVER
export LEASE_MODULE := $(abspath $(MODULE))

.PHONY: help setup system build run test test-core test-python test-load test-matrix chaos fuzz demo bench lint fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: system .venv/.installed ## install what building and testing need

system:
	@scripts/setup.sh system

# The stamp is newer than the requirements once they are installed.
.venv/.installed: python_tests/requirements.txt | system
	@scripts/setup.sh python

# --crate-type: with both crate types of Cargo.toml in one build cargo would drop link-time optimisation without a word.
build: system ## build the optimised module
	cargo rustc --release --lib --crate-type cdylib

run: build ## start a server with the module in the foreground (PORT=, REDIS_SERVER=)
	@scripts/run.sh $(PORT)

test: test-core test-python ## run every test on one server

test-core: system ## run the Rust tests
	cargo test

test-python: build .venv/.installed ## run the Python tests (REDIS_SERVER=, ARGS= for pytest)
	$(PYTHON) -m pytest python_tests -n auto $(ARGS)

test-load: build .venv/.installed ## run the Python tests with much data
	$(PYTHON) -m pytest python_tests -m load $(ARGS)

test-matrix: build .venv/.installed ## run the Python tests on every server that can be had
	@scripts/matrix.sh

chaos: build .venv/.installed ## run traffic and faults on a primary with two replicas, and check what was seen (SECONDS=60, SEED=, ARGS=--cluster)
	PYTHONPATH=python_tests $(PYTHON) -m chaos --seconds $(or $(SECONDS),60) $(SEED:%=--seed %) $(ARGS)

fuzz: build .venv/.installed ## throw anything at the core and at a server (SECONDS=60, SEED=1)
	@scripts/fuzz.sh core $(or $(SECONDS),60)
	FUZZ_SECONDS=$(or $(SECONDS),60) FUZZ_SEED=$(or $(SEED),1) $(PYTHON) -m pytest python_tests/test_fuzz.py -s $(ARGS)

demo: build ## play a lesson from 09:00:00 to 09:00:43
	@scripts/demo.sh

bench: build .venv/.installed ## measure the hot path (ARGS=--quick)
	$(PYTHON) benches/run.py $(ARGS)

lint: system ## check format and lints
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings

fmt: ## format the code
	cargo fmt

clean: ## remove what the other targets made
	cargo clean
	rm -rf .venv .servers
