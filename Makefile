# make demo       set up and compile a BERT before your eyes
# make test       set up and run what CI runs: ruff, mypy, import-linter, pytest
# make test-all   the same with the slow tests
# make test-part  pytest on TESTS alone, for another Python: make test-part PYTHON=python3.13 VENV=.venv-3.13 TESTS=tests/native
# make clean      forget the environment and what was built
#
# A fresh machine needs Python 3.11, 3.12 or 3.13, a C++ compiler and make. To compile against a torch of your own,
# set TORCH: make test TORCH=torch==2.11.0. Extra arguments for pip's download of torch go into TORCH_FROM,
# e.g. TORCH_FROM="--index-url https://download.pytorch.org/whl/cpu".

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_FROM ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.stamp
TORCH_STAMP := $(STAMP)/$(subst ==,-,$(TORCH))
NATIVE := $(wildcard csrc/*)

# Models come from their configuration with random weights; nothing is downloaded.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-all test-part lint setup clean
.DELETE_ON_ERROR:

demo: setup
	$(BIN)/python examples/compile_bert.py

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(TESTS)

test-all: lint
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

test-part: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(TESTS)

# Test processes share the cores: idle OpenMP threads should sleep, not spin.
test test-all test-part: export OMP_WAIT_POLICY := passive
test test-all test-part: export OMP_NUM_THREADS := 2

lint: setup
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(STAMP)/package

$(STAMP)/venv:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Python 3.11 or newer is needed, this is {sys.version}")'
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMP)
	touch $@

# torch first and pinned: the extension below is built against the torch that is installed.
$(TORCH_STAMP): $(STAMP)/venv
	@echo "installing $(TORCH) (a minute or two)"
	$(PIP) install "$(TORCH)" $(TORCH_FROM) numpy "setuptools>=77" wheel ninja
	touch $@

$(STAMP)/package: $(TORCH_STAMP) pyproject.toml setup.py $(NATIVE)
	@echo "building torchglass"
	$(PIP) install --no-build-isolation -e ".[dev]" "$(TORCH)"
	touch $@

clean:
	rm -rf $(VENV) build glass src/torchglass/*.so src/*.egg-info
