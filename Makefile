# Every target sets up what it needs in .venv; a stamp makes it quick when nothing changed.
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
# One BLAS thread a test process: the tests run on all cores already.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test test-quick test-long lint format bench docs clean

reproduce: $(STAMP)
	$(VENV)/bin/fedlin reproduce

test: lint
	$(PYTHON) -m pytest -n auto -m "not long"

test-quick: $(STAMP)
	$(PYTHON) -m pytest -n auto -m "not slow and not browser and not long"

# Federations on real data, and federations whose machines are killed, frozen and robbed; for several minutes.
test-long: $(STAMP)
	$(PYTHON) -m pytest -m long

lint: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(STAMP)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(STAMP)
	$(PYTHON) -m benchmarks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) build dist reports site

$(VENV)/.docs: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(PYTHON):
	python3 -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(PYTHON)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@
