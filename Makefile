PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PEERS := $(VENV)/.peers
MUTMUT := $(VENV)/.mutmut
CLIENT := $(VENV)/st2client
SLOWEST := --durations=10 --durations-min=5
# A report says which suite it is of, and which commit; docs/verified.md is written from reports.
commit = $$(git describe --always --dirty=+ --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
report = --junitxml=.reports/$(1).xml -o junit_suite_name="$(1), $$($(BIN)/python -V) at $(commit)"

# Each of the thousands of processes that tests start would compile the pack anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup client peers packages demo check test test-all anywhere test-machines mutants lint docs bench clean
.PHONY: machine compiled quick quiet

help:
	@echo "make setup    build $(VENV); a line for each step"
	@echo "make packages name the system packages that the lab needs, and offer to install them"
	@echo "make check    lint, and the tests that are quick: before each commit, two minutes"
	@echo "make test     lint, and the tests of everything, with the namespaced lab when root: eight minutes"
	@echo "make test-all  make test, the long rollouts that it leaves out, all examples: 25 minutes"
	@echo "make anywhere  the quick tests on other days, in other zones, languages, users, folders (ONLY=\"tokyo umask\")"
	@echo "make test-machines  the tests that boot virtual machines, and how long each took: over two hours"
	@echo "make lint     ruff, mypy, the import rule, generated pages"
	@echo "make docs     write docs/reference and the YAML that code says"
	@echo "make mutants  make 150 mistakes on purpose, one at a time, and see whether a test fails"
	@echo "make mutants ROOM=judge SAMPLE=100  mistakes of mutmut's in one room, by chance; all without SAMPLE"
	@echo "make demo     bring a lab PoP up, roll out tunings that help, that hurt, and whose hosts fall ill (KEEP=1: leave it up)"
	@echo "make bench    measure"
	@echo "make clean    remove $(VENV) and what the local runner keeps"

# One line for what nothing here can work with, before anything is begun.
machine:
	@./lab/setup.sh machine

setup: $(STAMP)

$(STAMP): requirements.txt requirements-tests.txt pyproject.toml | machine
	@./lab/setup.sh venv "$(PYTHON)" "$(VENV)"
	@touch $(STAMP)

client: $(CLIENT)/.ready

$(CLIENT)/.ready: $(STAMP) requirements-client.txt
	@./lab/setup.sh client "$(BIN)/python" "$(CLIENT)"
	@touch $(CLIENT)/.ready

peers: $(PEERS)

$(PEERS): $(STAMP) requirements-bench.txt
	@./lab/setup.sh peers "$(VENV)"
	@touch $(PEERS)

packages:
	@./lab/setup.sh packages

demo: machine setup packages
	@$(BIN)/python -m lab.demo $(if $(KEEP),--keep)

check: machine setup
	@$(MAKE) --no-print-directory -j 2 lint quick

quick: setup
	@$(BIN)/python -m pytest -n 3 --dist worksteal -q --hypothesis-profile=quick \
	  -m "not (lab or machines or processes or slow or quiet or long)" $(call report,check)

test: machine setup client packages
	@$(MAKE) --no-print-directory -j 2 lint compiled
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(SLOWEST) \
	  --hypothesis-profile=quick -m "not (machines or quiet or long)" $(call report,test)
	@echo "long rollouts: not run; make test-all runs them. Virtual machines: make test-machines"

test-all: test
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(SLOWEST) \
	  -m "long and not (machines or quiet)" $(call report,long)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q \
	  -m "hypothesis and not (machines or quiet or long)" $(call report,properties)
	@$(MAKE) --no-print-directory quiet

anywhere: machine setup
	@$(BIN)/python -m tests.anywhere $(ONLY)

# Or each worker would compile all tests for itself. What cannot be collected fails there, and is shown.
compiled: setup
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true

# A machine that is busy keeps these from measuring what they are about.
quiet: setup
	@$(BIN)/python -m pytest -q -m quiet $(call report,quiet)

test-machines: setup
	@./lab/setup.sh packages machines
	@$(BIN)/python -m pytest -v -rP --durations=0 --durations-min=5 -m machines $(call report,machines) \
	  tests/machine tests/bench/test_bench.py

$(MUTMUT): $(STAMP) requirements-mutants.txt
	@./lab/setup.sh mutmut "$(VENV)"
	@touch $(MUTMUT)

ifdef ROOM
mutants: machine setup $(MUTMUT)
	@$(BIN)/python -m tests.mutants.rooms $(ROOM) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))
else
mutants: machine setup packages
	@$(BIN)/python -m tests.mutants
	@$(BIN)/python -m bench.chaos --sabotage all
endif

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@if [ -x $(BIN)/mypy ]; then $(BIN)/mypy; else \
	  echo "types: not checked, since mypy needs Python 3.10"; fi
	@if [ -x $(BIN)/lint-imports ]; then $(BIN)/lint-imports --no-cache --no-logo; else \
	  echo "import rule: not checked, since import-linter needs Python 3.10"; fi
	@$(BIN)/python docs/generate.py --check

docs: setup
	@$(BIN)/python docs/generate.py

bench: setup peers packages
	@for program in bench/[a-z]*.py bench/[a-z]*/__main__.py; do \
	  $(BIN)/python -m bench.$$(basename $${program%/__main__.py} .py) || exit 1; \
	done
	@$(BIN)/python -m bench.fanout --server access

clean:
	rm -rf $(VENV) .edgetune
