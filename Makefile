# Two commands matter: `make demo` and `make test`. Everything sets itself up on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?= -q -n 3 --dist loadfile
CODE := $(wildcard src tests benches examples)

.PHONY: help setup demo demo-hermes test check lint types walls unit fix bench clean
.DEFAULT_GOAL := help

help:  ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml src/hermes_bridge/__init__.py
	@echo "== setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit("hermes-bridge needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP)  ## create the virtual environment

demo: $(STAMP)  ## a relay, two agents, one real ask and its answer
	@$(BIN)/hermes-bridge demo

demo-hermes: $(STAMP)  ## two real Hermes bots that ask each other (MODEL_URL=, MODEL=, MODEL_KEY= for a real model)
	@MODEL_KEY=$(MODEL_KEY) $(BIN)/python examples/two_hermes_bots/run.py --hermes $(or $(HERMES),0.19) --model-url '$(MODEL_URL)' --model $(or $(MODEL),scripted)

test: check unit  ## everything: lint, types, walls, then all tests

check: lint types walls  ## lint, types and import walls

lint: $(STAMP)
	@echo "== lint"
	@$(BIN)/ruff format --check -q $(CODE)
	@$(BIN)/ruff check -q $(CODE)
	@$(BIN)/codespell $(wildcard src docs *.md)

types: $(STAMP)
	@echo "== types (mypy --strict)"
	@$(BIN)/mypy

walls: $(STAMP)
	@echo "== walls (import-linter)"
	@$(BIN)/lint-imports --no-logo >/tmp/hermes-bridge-walls.$$$$ 2>&1 || { cat /tmp/hermes-bridge-walls.$$$$; rm -f /tmp/hermes-bridge-walls.$$$$; exit 1; }; rm -f /tmp/hermes-bridge-walls.$$$$

unit: $(STAMP)  ## the tests alone (PYTEST_ARGS=... to choose)
	@echo "== tests"
	@$(BIN)/pytest $(PYTEST_ARGS)

fix: $(STAMP)  ## format and mend what can be mended by itself
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

bench: $(STAMP)  ## the benchmarks of benches/README.md
	@$(BIN)/python benches/run.py

clean:  ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
