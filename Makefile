# make setup    .venv with everything in it
# make claims   run claims and write reports/<profile>/README.md; what is in the store is not run again
#                 PROFILE=smoke|cpu|paper   default: paper with CUDA, else cpu
#                 CLAIMS="sab.copy_t300"    ids, or a marker expression; default: headline
#                 SEEDS=5  WORKERS=2        default: the claims' own; a worker a core, or a GPU
#                 ARGS="--budget 20m"       any other option of pytest
# make data     fetch the digits that trained Memformer claims need; without them these are not run
# make test     the tests
# make check    style, types, import rules, coverage of the last `make test`
# Each sets up first; PYTHON=python3.12 chooses the interpreter.

PYTHON ?= python3
CLAIMS ?= headline
WORKERS ?= auto
BIN := .venv/bin
space := $(subst ,, )
marker := $(subst .,_,$(if $(filter and or not,$(CLAIMS)),$(CLAIMS),$(subst $(space), or ,$(strip $(CLAIMS)))))

.PHONY: setup claims data test check

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make setup PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

claims: setup
	$(BIN)/pytest claims -m "$(marker)" -n $(WORKERS) $(PROFILE:%=--profile %) $(SEEDS:%=--seeds %) $(ARGS)

data: setup
	$(BIN)/python -m reference.data.digits

test: setup
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests -n 2 $(ARGS)
	$(BIN)/coverage combine --quiet

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@test -f .coverage || { echo "there is no coverage yet: run make test first"; exit 1; }
	$(BIN)/coverage report --include='repro/*' --fail-under=90
	$(BIN)/coverage report --include='reference/*' --fail-under=90
