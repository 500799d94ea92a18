# Two commands matter: `make demo` and `make test`. Everything else is a part of them.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread per tensor operation and process: two test processes must not fight over the cores.
TEST_ENV := OMP_NUM_THREADS=1 DAGSTER_DISABLE_TELEMETRY=1 HF_HUB_OFFLINE=1

.PHONY: env demo demo-full report ui test check lint lock pictures benchmarks clean-demo

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and none was found; set PYTHON=/path/to/python."; exit 1; }
	@$(PYTHON) tools/describe_install.py constraints.txt $(VENV)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --progress-bar on -c constraints.txt -e '.[demo,test]'
	@touch $@

demo: env
	$(BIN)/crs run --suite demo --freeze-panel

demo-full: env
	$(BIN)/crs run --suite demo-full --freeze-panel

report: env
	$(BIN)/crs report --suite demo

ui: env
	$(BIN)/crs ui

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TEST_ENV) $(BIN)/dagster definitions validate -w workspace.yaml

test: lint
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

check: lint
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

lock: env
	$(BIN)/python tools/lock.py constraints.txt

pictures: env
	$(BIN)/python tools/pictures.py

# An hour on two cores; `python tools/benchmarks.py NAME` runs one.
benchmarks: env
	$(BIN)/python tools/benchmarks.py

clean-demo:
	rm -rf .crs
