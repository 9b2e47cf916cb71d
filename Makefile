# Every task of the project. `make serve` and `make test` are all that a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

# Without kept bytecode each of the thousand processes that tests start compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

# Many tests wait for a deadline: three times as many at once as there are processors, and few given out at a time.
TESTS_AT_ONCE ?= $(shell expr 3 "*" $$(nproc 2>/dev/null || echo 2))
QUICK_AT_ONCE := $(shell expr 2 "*" $$(nproc 2>/dev/null || echo 2))

# What holds for the whole source, and for what its pages say.
SHAPE_AND_PAGES := $(addprefix tests/project/test_, $(addsuffix .py, codes english faults reference shape))

# What waits for clocks or a browser, or reads large files, is left to `make test`.
NOT_QUICK := $(addprefix --ignore=tests/api/, routes/test_docs.py routes/test_hostile_imports.py routes/test_spool.py test_other_sites.py)

# PYTHON=... recreates .venv if another version made it.
OTHER := $(if $(filter file,$(origin PYTHON)),,$(shell grep -qs "^version = \
  $$($(PYTHON) -c 'import platform; print(platform.python_version())')$$" .venv/pyvenv.cfg || echo another-python))

.DEFAULT_GOAL := help
.PHONY: another-python help dev again quick serve serve-postgres setup test coverage check format lock examples reference screenshots bench bench-ab bench-scaling huge fuzz-api fuzz-http fuzz-imports thorough soak load upgrade faults sbom audit release clean

help:  ## lists the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "%-16s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

serve: setup  ## the service on http://127.0.0.1:8080, its database in ./storekeeper.db
	@exec $(BIN)/storekeeper serve

serve-postgres: setup  ## the same on a temporary PostgreSQL, to try it out
	@exec $(BIN)/python -m tools.serve_postgres

setup: .venv/.run  ## .venv with what the service needs, pinned by hashes

dev: .venv/.dev  ## .venv with everything that tests and checks need, too; then `make quick`

quick: check  ## format, lint, types, the shape, the pages, and the tests that hardly start a process: 40 s
	@$(BIN)/python -m pytest --numprocesses=$(QUICK_AT_ONCE) --maxschedchunk=8 --hypothesis-profile=quick \
	  -k "not postgres and not workers and not real_sheets" $(NOT_QUICK) --quiet --no-header \
	  tests/api tests/concurrency tests/domain $(SHAPE_AND_PAGES)

test: check .venv/.generators  ## everything that can run here; a test that lacks a program is skipped with the reason
	@$(BIN)/python -m pytest --numprocesses=$(TESTS_AT_ONCE) --maxschedchunk=16

again: .venv/.dev  ## the tests that failed last, one at a time
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures=none

coverage: .venv/.dev  ## all tests, which must run 97 % of the lines and branches: half as long again as `make test`
	@$(BIN)/python -m pytest --numprocesses=$(TESTS_AT_ONCE) --maxschedchunk=16 --cov

check: .venv/.dev  ## format, lint and types
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: .venv/.dev  ## fixes the format, and what the linter can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --unsafe-fixes .

examples: .venv/.dev  ## the errors that the service sends, into the OpenAPI document
	@WRITE_EXAMPLES=1 $(BIN)/python -m pytest --quiet --no-header tests/api/test_openapi.py -k example

bench: .venv/.dev  ## compares rates with other stacks, into docs/evidence/ and README; ARGS=--quick for a first look, ARGS=--help
	@$(BIN)/python -m bench.run $(ARGS)

huge: .venv/.dev  ## the same work on 1,000,000 and 10,000,000 stores (5 minutes, 4 GB), into docs/evidence/benchmarks.md
	@$(BIN)/python -m bench.huge $(HUGE)

bench-ab: .venv/.dev  ## compares two checkouts by processor time per request; AB="../old . --pairs=10"
	@$(BIN)/python -m bench.ab $(AB)

bench-scaling: .venv/.dev  ## one and two instances over one PostgreSQL, into docs/evidence/scaling.md
	@$(BIN)/python -m bench.scaling

thorough: .venv/.dev .venv/.generators  ## all tests, including those that are more of the same
	@$(BIN)/python -m pytest --numprocesses=auto --hypothesis-profile=thorough -m ""

fuzz-api: .venv/.dev  ## 1,000 examples of every operation, made from the OpenAPI document
	@$(BIN)/python -m tests.campaigns.fuzz_api

fuzz-http: .venv/.dev  ## a million damaged requests; FUZZ="--requests=20000 --seed=7" for fewer
	@$(BIN)/python -m tests.campaigns.fuzz_http $(FUZZ)

fuzz-imports: .venv/.dev  ## 10,000 files that are made to stop the service; FUZZ="--files=500 --seed=7" for others
	@$(BIN)/python -m tests.campaigns.fuzz_imports $(FUZZ)

soak: .venv/.dev  ## two hours of kills, power losses, histories and load; SOAK="--minutes=10 --kills=20 --steady=5" for less
	@$(BIN)/python -m tests.campaigns.soak $(SOAK)

load: .venv/.dev  ## 3 minutes of idle, slow, greedy and too many clients; LOAD="--connections=1000" for less
	@$(BIN)/python -m tests.campaigns.load $(LOAD)

upgrade: .venv/.dev  ## upgrades a list under load from an older version, both running; FROM=41c4a66
	@$(BIN)/python -m tests.campaigns.upgrading $(FROM)

faults: .venv/.dev  ## injects every fault, with one line for each; FAULTS="A4 A9" for some
	@$(BIN)/python -m tests.campaigns.faults $(FAULTS)

screenshots: .venv/.dev  ## the pictures of docs/console.md, taken in Chromium
	@$(BIN)/python -m tools.screenshots

reference: .venv/.dev  ## writes the generated parts of docs/reference
	@$(BIN)/python -m tools.reference

lock: .venv/.dev  ## pins every dependency again, with hashes
	@sh requirements/lock.sh

sbom: setup  ## the bill of materials of what runs, as CycloneDX JSON in storekeeper-sbom.json
	@$(BIN)/python -m tools.sbom storekeeper-sbom.json

release: .venv/.dev  ## builds wheel and sdist into dist/, tests them on each Python, says what to upload where; uploads nothing
	@$(BIN)/python -m tools.release

audit: setup .venv/.audit  ## looks for known vulnerabilities in the run-time packages; fails if no source can be asked
	@$(BIN)/python -m tools.audit .venv/audit/bin/pip-audit --strict --require-hashes --disable-pip \
	  --progress-spinner=off --format=json --requirement=requirements/run.txt

clean:  ## removes everything that was installed and cached
	rm -rf dist storekeeper-sbom.json .venv .mypy_cache .ruff_cache .hypothesis .coverage*

another-python:

.venv/.run: pyproject.toml requirements/build.txt requirements/run.txt $(OTHER)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Storekeeper needs Python 3.11 or later: make PYTHON=/path/to/python3.11 " + "setup")'
	@test -x $(BIN)/python -a -z "$(OTHER)" || $(PYTHON) -m venv --clear .venv
	@echo "Installing the pinned dependencies into .venv ..."
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: .venv/.run requirements/dev.txt
	@echo "Installing the pinned development tools into .venv ..."
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

.venv/.generators: .venv/.dev requirements/generators.txt
	@echo "Installing the pinned generators of clients into .venv/generators ..."
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/generators
	@$(BIN)/uv pip install --quiet --python .venv/generators --require-hashes -r requirements/generators.txt
	@touch $@

.venv/.audit: .venv/.run requirements/audit.txt
	@echo "Installing the pinned auditor into .venv/audit ..."
	@$(PYTHON) -m venv .venv/audit
	@.venv/audit/bin/python -m pip --disable-pip-version-check --quiet --quiet \
	  install --require-hashes -r requirements/audit.txt
	@touch $@
