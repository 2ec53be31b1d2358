# `make` lists what there is. `make demo` and `make test` set up everything they need first, on a fresh machine too.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3
SEEDS ?= 1 2 3
ARGS ?=

# An environment may be empty.
PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# Trust the certificates that the machine trusts, as pip does; the first name is the newer uv's, the second the older's.
export UV_SYSTEM_CERTS ?= 1
export UV_NATIVE_TLS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Each command would compile the project anew, and tests run hundreds.
unexport PYTHONDONTWRITEBYTECODE

# Without a network it is said within a minute or two, and not after forty.
export UV_HTTP_TIMEOUT ?= 15
export UV_HTTP_RETRIES ?= 1

INSTALLED := $(VENV)/.installed

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
		| while IFS=$$'\t' read -r name what; do printf '  make %-9s %s\n' "$$name" "$$what"; done
	@printf '\n  PYTHON=python3.12 chooses the interpreter (3.11 to 3.13), JOBS=4 the test processes,\n'
	@printf '  ARGS="…" goes to the command behind test, bench, serve and demo.\n'

.PHONY: demo
demo: install ## a real local chain with real contracts: indexed, priced and served, with a key to try it
	@$(BIN)/chainfolio demo $(ARGS)

.PHONY: serve
serve: $(INSTALLED) ## the API, with indexing, from your own settings
	@$(BIN)/chainfolio serve $(ARGS)

# The tables of tests are small: with one thread, queries of Polars take a fifth less of the processor.
test test-all quick: export POLARS_MAX_THREADS ?= 1

.PHONY: test
test: install ## every behaviour, against a real local chain
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow" $(ARGS)

.PHONY: test-all
test-all: install ## every test, those that are slow too
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

.PHONY: quick
quick: $(INSTALLED) ## the tests of a minute: those in the files of tests/quick.txt that need no node
	@CHAINFOLIO_TESTS=quick $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not node and not slow" $(ARGS) \
		$$(cat tests/quick.txt)

.PHONY: luck
luck: $(INSTALLED) ## the tests that need no node, in random order, with SEEDS="1 2 3" of Hypothesis
	@for seed in $(SEEDS); do echo "== seed $$seed"; \
		CHAINFOLIO_TESTS=luck $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not node and not slow" -p randomly \
			-p no:cacheprovider --randomly-seed=$$seed --hypothesis-seed=$$seed $(ARGS); done

.PHONY: check
check: $(INSTALLED) ## style, types, arrows between packages, spelling, Markdown, dependencies, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict chainfolio bench tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/pymarkdown scan -r README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs
	$(BIN)/deptry .
	$(BIN)/python -m pytest -q -p no:xdist tests/test_tidy.py tests/test_imports.py

.PHONY: docs
docs: $(INSTALLED) ## the documentation site, into site/; warnings and dead links are errors; needs no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)
	@echo 'The site is in site/: open site/index.html'

.PHONY: bench
bench: install ## the benchmarks; their results go where bench/README.md says
	@if [ ! -d bench ]; then echo 'There is no bench/ here yet.' >&2; exit 1; fi
	@$(BIN)/python -m bench $(ARGS)

.PHONY: soak
soak: $(INSTALLED) ## a month of virtual time: what is left behind; ARGS="--days 1" for a day
	@$(BIN)/python -m bench.soak $(ARGS)

.PHONY: mutation
mutation: $(INSTALLED) ## the share of changes of the code that tests notice; ARGS="--sample 50" for some of them
	@$(BIN)/python -m bench.mutation $(ARGS)

.PHONY: ready
ready: # what would stop the installation is said before anything is loaded
	@p="$(PYTHON)"; [ ! -x $(BIN)/python ] || p=$(BIN)/python; "$$p" .ci/ready.py
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m chainfolio.localchain.install --check; \
		else "$(PYTHON)" -m chainfolio.localchain.install --check; fi

.PHONY: install
install: ready $(INSTALLED) ## .venv from the lock, and the local chain's pieces; nothing to do the second time
	@$(BIN)/python -m chainfolio.localchain.install

$(INSTALLED): requirements.lock pyproject.toml
	@if [ ! -x $(BIN)/python ]; then \
		"$(PYTHON)" -V >/dev/null || { \
			echo "Chainfolio needs Python 3.11, 3.12 or 3.13. Choose one: make PYTHON=python3.12 …" >&2; exit 1; }; \
		"$(PYTHON)" .ci/ready.py; \
		"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
			echo 'No environment could be made. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }; \
	fi
	@put() { \
		if command -v uv >/dev/null && uv pip install --python $(BIN)/python "$$@"; then return; fi; \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
		$(BIN)/python -m pip install --retries 1 --timeout 15 "$$@" || { \
			echo 'Nothing could be fetched: is there a network, and a proxy to name (HTTPS_PROXY)?' >&2; exit 1; }; \
	}; \
	echo 'Installing what requirements.lock names …'; \
	put --require-hashes -r requirements.lock; \
	put --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: lock
lock: ## requirements.lock anew from pyproject.toml (needs uv); UPGRADE=1 takes newer releases too
	@command -v uv >/dev/null || { echo 'This needs uv: python3 -m pip install uv' >&2; exit 1; }
	@uv pip compile pyproject.toml --quiet $(if $(UPGRADE),--upgrade) --universal --python-version 3.11 --all-extras \
		--generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements.lock >/dev/null
	@part() { uv pip compile "$$@" --quiet --universal --python-version 3.11 --constraint requirements.lock \
		--generate-hashes --no-emit-index-url --no-header --no-annotate >/dev/null; }; \
	part pyproject.toml --extra all -o deploy/requirements.lock; \
	part - -o deploy/build.lock <<< hatchling

.PHONY: clients
clients: $(INSTALLED) ## the clients of the API, into dist/clients
	@$(BIN)/python -m clients.build

.PHONY: release
release: $(INSTALLED) ## what a release would be, into dist/: changelog, build, checks, bill of materials
	@$(BIN)/python .ci/release.py $(ARGS)

.PHONY: clean
clean: ## remove environments, caches and builds; your data stays
	@rm -rf $(VENV) .localchain .engines mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -rf build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
