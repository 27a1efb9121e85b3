# make demo   translate a few sentences and draw what each word read
# make test   lint, types, the house test and all tests
# make laws   the fourteen laws over the full product of their cases
# make fuzz   draw new problems for an hour (SECONDS=3600) and compare every path
# make sanitize  the native kernel's tests, watching addresses and undefined behaviour
# make dist   build the wheel and use it alone, outside the checkout

PYTHON ?= $(shell command -v python3.11 || command -v python3)
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
DIST_VENV := build/dist-venv
NATIVE := src/crossattention/kernels/native
LIBRARY := $(NATIVE)/crossattention_native.so
SANITIZED := build/sanitized
RUNTIMES = $(shell $${CXX:-g++} -print-file-name=libasan.so) $(shell $${CXX:-g++} -print-file-name=libubsan.so)
SENTENCES := "She bought a red car yesterday." "I don't know where he lives." "The black cat is sleeping."

# The same versions everywhere, in the environments that build the wheel as well.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test laws fuzz sanitize dist coverage format clean distclean

help:
	@sed -n 's/^# make /make /p' Makefile

# A stamp is touched last: an installation that was cut short is done again.
$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.created
	@echo 'installing into $(VENV) (about a minute)'
	$(PIP) install -qq -c constraints.txt -e '.[translate]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.created
	@echo 'installing into $(VENV) (about two minutes)'
	$(PIP) install -qq -c constraints.txt -e '.[all,dev]'
	touch $@ $(VENV)/.demo

# Without a compiler nothing is built, and nothing fails: other kernels are chosen.
$(LIBRARY): $(NATIVE)/build.py $(wildcard $(NATIVE)/source/*) $(VENV)/.created
	$(BIN)/python $(NATIVE)/build.py --optional

demo: $(VENV)/.demo $(LIBRARY)
	$(BIN)/crossattention translate --show $(SENTENCES)

# One thread for each process: the tests already run $(JOBS) at a time.
test: $(VENV)/.test $(LIBRARY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_house.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --ignore tests/test_house.py

laws: $(VENV)/.test $(LIBRARY)
	LAWS=full OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/laws

SECONDS ?= 3600

fuzz: $(VENV)/.test $(LIBRARY)
	HYPOTHESIS_PROFILE=fresh FUZZ_SECONDS=$(SECONDS) OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 2 tests/fuzz

sanitize: $(VENV)/.test
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src/crossattention $(SANITIZED)/
	$(BIN)/python $(SANITIZED)/crossattention/kernels/native/build.py --sanitize
	LD_PRELOAD="$(RUNTIMES)" ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 \
	  $(BIN)/python tests/kernels/elsewhere.py $(SANITIZED) -q -m 'not slow' \
	  -k '(native or linear) and not faults' tests/kernels tests/laws

coverage: $(VENV)/.test $(LIBRARY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --cov --cov-report=term --cov-report=html

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: $(VENV)/.created
	rm -rf dist $(DIST_VENV)
	$(PIP) wheel -qq --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(DIST_VENV)
	wheel=$$(ls dist/*.whl) && \
	  $(DIST_VENV)/bin/python -m pip install -qq -c constraints.txt "$$wheel[translate]"
	outside=$$(mktemp -d) && trap 'rm -rf "$$outside"' EXIT && command=$$(pwd)/$(DIST_VENV)/bin/crossattention && \
	  cd "$$outside" && "$$command" translate --show $(SENTENCES)
	rm -rf $(DIST_VENV)
	@ls -l dist

clean:
	rm -rf build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f $(LIBRARY)
	find src tests -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
