# Two environments, both made from pyproject.toml: .venv (light), .venv-engine (with SGLang, some gigabytes).
# A stamp in each says for which pyproject.toml and which constraints it was made.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
comma := ,
LIGHT := .venv/bin
ENGINE := .venv-engine/bin
# An engine in the process of the tests changes libraries under it, so parts that need none are tested in another.
ENGINE_OPTIONS := -o addopts="-q --strict-markers --strict-config"
# Parts that a checkout may not have, or that are not wanted: make test ENGINES=no
ENGINES ?= yes
ifeq ($(ENGINES),yes)
ENGINE_PARTS := $(wildcard reef_ref/sglang/__init__.py)
ENGINE_TESTS := $(wildcard tests/engine/test_*.py)
SCENARIOS := $(wildcard reef_ref/scenarios/__main__.py)
endif

.DEFAULT_GOAL := help
.PHONY: help check prove test test-light lint conformance mutants bench bench-smoke bench-large figures tla lock clean

help: ## say what there is
	@sed -n -e '$(if $(ENGINE_TESTS),,/^\(test\|bench\)-engine:/d)' -e '$(if $(SCENARIOS),,/^scenarios\(-smoke\)\?:/d)' \
	  -e 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

check: .venv/.made ## explore the publication protocol at scope pr: the main job
	$(LIGHT)/reef-ref check publication --scope pr

test: test-light lint mutants ## everything: tests, lint, types, mutants and, where there are engines, their tests

test-light: .venv/.made ## the tests that need no engine
	$(LIGHT)/pytest -n 2 --ignore=tests/engine

lint: .venv/.made ## ruff and mypy
	$(LIGHT)/ruff check .
	$(LIGHT)/ruff format --check .
	$(LIGHT)/mypy

conformance: .venv/.made ## the coordinator: every step of the protocol, every pair of faults, random histories, kills, known bugs
	$(LIGHT)/pytest -n 2 tests/conformance tests/coordinator tests/engines
	$(LIGHT)/python -m tests.conformance.replay
	$(LIGHT)/python -m tests.conformance.explore --pairs

prove: .venv/.made ## prove every protocol for any number of elements (under a minute)
	$(LIGHT)/reef-ref prove --all

mutants: .venv/.made ## explore every wrong protocol: each must be noticed by the claim that it names
	$(LIGHT)/reef-ref mutants publication serving adapters

bench: .venv/.made ## this checker beside SPIN, Rumur and others; events, their validation, many engines (some minutes)
	$(LIGHT)/python -m benchmarks.events
	$(LIGHT)/python -m benchmarks.fan_out
	$(LIGHT)/python -m benchmarks.validate
	$(LIGHT)/python -m benchmarks.checkers

bench-smoke: .venv/.made ## the same in the smallest world (about a minute)
	$(LIGHT)/python -m benchmarks.checkers --quick

bench-large: .venv/.made ## 142 million states in 4 GiB, on disk, interrupted and resumed (a quarter of an hour, 6 GB of disk)
	$(LIGHT)/python -m benchmarks.large --keep

figures: .venv/.made ## measure the README's table of counts again and write it there
	$(LIGHT)/python -m benchmarks.readme

tla: .venv/.made ## write spec/tla anew: every protocol as TLA+, with a configuration for each scope
	mkdir -p spec/tla
	$(LIGHT)/reef-ref export all --to tla --output spec/tla

lock: .venv/.made ## write constraints-light.txt anew from what is installed
	{ echo "# The light environment, release by release. Refresh: make lock"; \
	  $(LIGHT)/python -m pip freeze --exclude-editable; } > constraints-light.txt.new
	mv constraints-light.txt.new constraints-light.txt
	touch .venv/.made

clean: ## remove both environments and every cache
	rm -rf .venv .venv-engine .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist constraints-light.txt.new
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define make-environment
	@test -n "$(PYTHON)" || { echo "reef-ref needs Python 3.11 or later; name one: make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(1) --editable '.[$(2)]'
	@touch $@
endef

.venv/.made: pyproject.toml constraints-light.txt
	$(call make-environment,constraints-light.txt,dev)

ifneq ($(ENGINE_PARTS),)
.PHONY: test-engine bench-engine soak soak-short
soak: .venv-engine/.made ## thirty minutes of publications under load, with faults and violations, on two real engines
	$(ENGINE)/python -m benchmarks.soak --minutes 30

soak-short: .venv-engine/.made ## the same for three minutes
	$(ENGINE)/python -m benchmarks.soak --minutes 3

bench-engine: .venv-engine/.made ## on real engines: what provenance and the monitor cost, what is noticed; writes the README's tables
	$(ENGINE)/python -m benchmarks.engine --keep
	$(ENGINE)/python -m benchmarks.soak.injected --keep
	$(ENGINE)/python -m benchmarks.soak.overhead --keep

.venv-engine/.made: pyproject.toml constraints-engine.txt
	$(call make-environment,constraints-engine.txt,dev$(comma)engine$(comma)ray)
endif

ifneq ($(ENGINE_TESTS),)
test: test-engine
test-engine: .venv-engine/.made ## the tests on real SGLang engines
	$(ENGINE)/python -m pytest $(ENGINE_OPTIONS) tests/engine/parts tests/config/test_installed_sglang.py
	$(ENGINE)/python -m pytest $(ENGINE_OPTIONS) tests/engine --ignore=tests/engine/parts
endif

ifneq ($(SCENARIOS),)
.PHONY: scenarios scenarios-smoke
test: scenarios
scenarios-smoke: .venv-engine/.made ## three of the scenarios: sharing, the stale hit, and what enforcing makes of it (some minutes)
	$(ENGINE)/python -m reef_ref.scenarios run disjoint-sharing stale-in-place stale-enforced

scenarios: .venv-engine/.made ## publications on real SGLang engines, and their negative controls; also build/scenarios.json
	@mkdir -p build
	$(ENGINE)/python -m reef_ref.scenarios run --all --output build/scenarios.json
endif
