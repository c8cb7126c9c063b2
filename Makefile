# Every target sets up what it needs in .venv; a stamp makes it quick when nothing changed.
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check
# Two steps of one environment: what the package itself needs, and what its tests need beside it.
CORE_STAMP := $(VENV)/.installed-core
STAMP := $(VENV)/.installed
QUICK := -m "not slow and not browser and not long"
# What needs no extra: these run where only fedlin's own dependencies are installed.
CORE := src tests/algorithms/test_contract.py tests/claims/test_cli_reproduce.py tests/data tests/engines/federation/test_federation.py \
	tests/engines/simulation/test_simulate.py tests/experiments tests/problems/test_problems.py tests/report/test_report.py \
	tests/theory $(patsubst %,tests/test_%.py,bad_input compressors links privacy result sklearn)
TOOLS := hypothesis pytest pytest-xdist
# One BLAS thread a process: the tests and the claims run on all cores already.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test test-quick test-flower test-mlflow test-byzfl test-long test-package test-lowest test-newest coverage \
	mutation fuzz lint format bench bench-gpu bench-thin test-gpu docs clean

# Claims on real data read it from FEDLIN_DATA, by default from beside the repository, and are left out without it.
reproduce: export FEDLIN_DATA ?= $(wildcard ../shared/data)
reproduce: $(CORE_STAMP)
	$(VENV)/bin/fedlin reproduce

# The tests' processes take a core each, so their runs do not share out theirs.
test test-quick test-long test-lowest test-newest coverage: export JAX_NUM_CPU_DEVICES ?= 1
# Most of the tests' time went into compiling programs that run for milliseconds: compile them without optimisation, which
# takes a third of it. `make test-long` and `make reproduce` run what users run.
test test-quick coverage mutation: export XLA_FLAGS ?= --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false

# A file's tests stay in one process, since they share compiled programs. A test that waits for what never comes fails after
# five minutes, and shows where it waited.
test: lint
	$(PYTHON) -m pytest -n auto --dist loadfile --timeout 300 -m "not long"

test-quick: $(STAMP)
	$(PYTHON) -m pytest -n auto --dist loadfile $(QUICK)

# Flower needs older versions of what other parts use, so it has an environment of its own; minutes, as it starts many
# processes, and so not part of `make test`.
test-flower: .venv-flower/.installed
	.venv-flower/bin/python -m pytest tests/transports/test_transport_flower.py

# Federations on real data, and federations whose processes are killed, frozen, or lose their files; for many minutes. With
# MINUTES=10 no test begins after ten minutes, and those left out are named.
# And scikit-learn's checks of arrays of other libraries, which it leaves out unless SciPy is told of them first.
test-long: $(STAMP)
	$(PYTHON) -m pytest -m long --timeout 1800 $(if $(MINUTES),--minutes $(MINUTES))
	SCIPY_ARRAY_API=1 $(PYTHON) -m pytest tests/test_sklearn.py -k array_api

# MLflow needs older versions of other things, so it has its own too.
test-mlflow: .venv-mlflow/.installed
	.venv-mlflow/bin/python -m pytest tests/test_trackers.py -k mlflow

# The robust means beside the library byzfl, whose values are stored; it imports more than they need, which is left out.
test-byzfl: .venv-byzfl/.installed
	.venv-byzfl/bin/python -m pytest tests/test_aggregation.py -k byzfl

# Whether the tests notice a change of any operator or number in the methods, the links and the theory; for an hour or
# two of one core, resumed where it was stopped. It ends with what it took.
mutation: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[mutation]'
	$(PYTHON) tests/tools/mutation.py

# Hostile bytes for everything that reads bytes, guided by coverage; ten minutes, and adds to the corpus.
fuzz: $(STAMP)
	$(PYTHON) tests/tools/fuzz_decoders.py 600 --keep

# The wheel and the source distribution, each alone in a clean environment; for several minutes.
test-package: $(STAMP)
	$(PYTHON) -m pytest tests/test_package.py

# The core with the lowest versions pyproject.toml allows, without any extra, and with the newest there are today. Old
# packages use what newer ones below them deprecate, which is no fault of ours.
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n auto --dist loadfile -W default::DeprecationWarning $(QUICK) $(CORE)

test-newest:
	test -x .venv-newest/bin/python || python3 -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable . $(TOOLS)
	.venv-newest/bin/python -m pytest -n auto --dist loadfile $(QUICK) $(CORE)

# The lines of src/ that no test runs; fails below the floor in pyproject.toml. Child processes count too.
coverage: $(STAMP)
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest -n auto --dist loadfile -m "not long"
	$(PYTHON) -m coverage combine --quiet
	$(PYTHON) -m coverage report

lint: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(STAMP)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# On a machine whose Python has JAX, and better torch too, with a GPU; PYTHON names it.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu tests/gpu
	PYTHONPATH=src $(PYTHON) -m pytest tests/engines/simulation/test_independent_loops.py tests/engines/simulation/test_metrics.py

# The figures of a GPU; with PFL_FOLDER, a folder that holds pfl-research's package, beside pfl in the same run.
bench-gpu:
	PYTHONPATH=src $(PYTHON) -m benchmarks.gpu benchmarks/results/gpu.json
	PYTHONPATH=src $(PYTHON) -m benchmarks.networks
	PYTHONPATH=src $(PYTHON) -m benchmarks.page

# Beside other packages, each in an environment of its own under .venv-peers; minutes, and writes docs/performance.md.
bench: $(STAMP)
	$(PYTHON) -m benchmarks

# A federation over links of 0.5 to 50 Mbit/s in network namespaces: root, some twenty minutes; writes docs/thin-links.md.
bench-thin: export FEDLIN_DATA ?= $(wildcard ../shared/data)
bench-thin: $(STAMP)
	$(PYTHON) -m benchmarks.thin_links

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) .venv-* .coverage* build dist reports site

$(PYTHON):
	python3 -m venv $(VENV)

$(CORE_STAMP): pyproject.toml constraints.txt | $(PYTHON)
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(STAMP): $(CORE_STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# Environments that need other versions of what constraints.txt pins: their own file of pins goes before it.
.venv-flower/.installed .venv-mlflow/.installed: .venv-%/.installed: pyproject.toml constraints.txt constraints-%.txt
	test -x .venv-$*/bin/python || python3 -m venv .venv-$*
	awk -F== 'NR == FNR { own[$$1] } NR == FNR || !($$1 in own)' constraints-$*.txt constraints.txt > .venv-$*/pins
	.venv-$*/bin/python -m pip install --quiet --constraint .venv-$*/pins --editable '.[$*]' psutil pytest
	touch $@

.venv-byzfl/.installed: pyproject.toml constraints.txt
	test -x .venv-byzfl/bin/python || python3 -m venv .venv-byzfl
	.venv-byzfl/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[torch]' pytest
	.venv-byzfl/bin/python -m pip install --quiet --no-deps byzfl==0.0.11
	touch $@

.venv-lowest/.installed: pyproject.toml tests/tools/lowest.py
	test -x .venv-lowest/bin/python || python3 -m venv .venv-lowest
	python3 tests/tools/lowest.py > .venv-lowest/pins
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/pins --editable . $(TOOLS)
	touch $@
