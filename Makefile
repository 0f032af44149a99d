# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
EXTRAS := torch,jax,train,box2d,tensorboard,text,docs,peers,dev

.PHONY: setup demo check test tests torture lint style types bench pages docs clean help

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup: $(STAMP) ## make .venv with everything in it; nothing to do the second time

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "loopless needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PIP) torch==2.13.0
	@$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

demo: setup ## everything once, small: under five minutes, and a page at the end
	@$(BIN)/loopless demo

lint: style types ## format, lint, types

style: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup
	@$(BIN)/basedpyright

PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# The type checker has one thread: beside the tests it fills a core that waits for them.
check: style ## lint, types and the quick tests, for every commit
	@$(MAKE) --no-print-directory --jobs 2 types tests TESTS='-m "not slow"'

test: style ## lint, types and all tests, as CI runs them
	@$(MAKE) --no-print-directory --jobs 2 types tests

tests: setup
	@$(PYTEST) $(TESTS)

MINUTES ?= 60
SEED ?= 1
torture: setup ## kills, power cuts, hostile files, fuzzed calls, bad environments; MINUTES=60 SEED=1
	@PYTHONPATH=tools $(BIN)/python -m torture --minutes $(MINUTES) --seed $(SEED)

pages: setup ## write the parts of README, RESULTS and docs/ that are made from code and results
	@$(BIN)/python benchmarks/pages.py README.md benchmarks/RESULTS.md
	@PYTHONPATH=tools:benchmarks $(BIN)/python -m site_pages.filling docs

docs: export NO_MKDOCS_2_WARNING = 1
docs: setup ## the documentation, into site/
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "written: site/index.html"

bench: setup ## the full benchmarks, as in the README; GRIDS=DIR has the layouts of ALLO's paper
	@$(BIN)/loopless bench returns --ablate --json benchmarks/results/returns.json
	@$(BIN)/loopless bench replay --json benchmarks/results/replay.json
	@$(BIN)/loopless bench q_learning --ablate --json benchmarks/results/q_learning.json
	@$(BIN)/loopless bench own_code --json benchmarks/results/own_code.json
	@$(BIN)/loopless bench dqn_speed --ablate --json benchmarks/results/dqn_speed.json
	@$(BIN)/loopless bench dqn_learning --threads 2 --json benchmarks/results/dqn_learning.json
	@$(BIN)/loopless bench ppo_speed --ablate --json benchmarks/results/ppo_speed.json
	@$(BIN)/loopless bench ppo_learning --threads 2 --json benchmarks/results/ppo_learning.json
	@$(BIN)/loopless bench avatarl --ablate --json benchmarks/results/avatarl.json
	@$(BIN)/loopless bench avatarl_learning --json benchmarks/results/avatarl_learning.json
	@$(BIN)/loopless bench allo_speed --ablate --json benchmarks/results/allo_speed.json
	@$(BIN)/loopless bench allo_learning $(if $(GRIDS),--grids $(GRIDS)) --json benchmarks/results/allo_learning.json
	@$(BIN)/loopless bench felt --json benchmarks/results/felt.json
	@$(BIN)/loopless bench pictures --json benchmarks/results/pictures.json
	@$(MAKE) --no-print-directory pages

clean: ## remove what make made
	rm -rf $(VENV) .ruff_cache .hypothesis bench-results demo-results site
