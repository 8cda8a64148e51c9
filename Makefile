# Every target sets up what it needs: a plain python3 with venv and pip is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
KERNELS := $(wildcard src/lawful/kernels/csrc/*) src/lawful/kernels/_build.py
DEMO ?= runs/demo

.PHONY: setup demo test lint format bench docs clean

setup: $(VENV)/.kernels

$(VENV)/.packages: pyproject.toml constraints.txt setup.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt torch numpy setuptools
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[train,graph,dev]'
	touch $@

# The kernels are optional: without a compiler everything runs on plain torch.
$(VENV)/.kernels: $(VENV)/.packages $(KERNELS)
	-$(BIN)/python -m lawful.kernels build
	touch $@

demo: setup
	$(BIN)/lawful train pixels --out $(DEMO) --resume

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script $(ARGS) || exit 1; done

$(VENV)/.docs: $(VENV)/.kernels
	$(PIP) install --quiet -c constraints.txt -e '.[docs]' --no-build-isolation
	touch $@

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build docs/_build src/lawful/kernels/_lib src/*.egg-info
