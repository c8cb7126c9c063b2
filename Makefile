# Every target sets up what it needs in .venv; a stamp makes it quick when nothing changed.
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
FLOWER := .venv-flower
# One BLAS thread a test process: the tests run on all cores already.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test test-quick test-flower test-long lint format bench docs clean

reproduce: $(STAMP)
	$(VENV)/bin/fedlin reproduce

# A file's tests stay in one process, since they share compiled programs.
test: lint
	$(PYTHON) -m pytest -n auto --dist loadfile -m "not long"

test-quick: $(STAMP)
	$(PYTHON) -m pytest -n auto --dist loadfile -m "not slow and not browser and not long"

# Flower needs older versions of what other parts use, so it has an environment of its own; minutes, as it starts many
# processes, and so not part of `make test`.
test-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest tests/test_transport_flower.py

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

# Beside other packages, each in an environment of its own under .venv-peers; minutes, and writes docs/performance.md.
bench: $(STAMP)
	$(PYTHON) -m benchmarks

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "open site/index.html; to search it: $(PYTHON) -m http.server --bind 127.0.0.1 --directory site"

clean:
	rm -rf $(VENV) $(FLOWER) .venv-peers build dist reports site

$(PYTHON):
	python3 -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(PYTHON)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

$(FLOWER)/.installed: pyproject.toml constraints.txt constraints-flower.txt
	test -x $(FLOWER)/bin/python || python3 -m venv $(FLOWER)
	awk -F== 'NR == FNR { own[$$1] } NR == FNR || !($$1 in own)' constraints-flower.txt constraints.txt > $(FLOWER)/pins
	$(FLOWER)/bin/python -m pip install --quiet --constraint $(FLOWER)/pins --editable '.[flower]' psutil pytest
	touch $@
