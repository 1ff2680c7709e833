# Every target sets itself up in .venv from any Python >= 3.11 on the machine (or the one named: make PYTHON=/path/to/python).

BIN := .venv/bin
STAMP := .venv/.installed
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3
USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))

export PYTHONPATH := $(CURDIR)

.PHONY: demo test slow objects bench types clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	@test -f examples/demo.py || { echo "make demo: examples/demo.py is missing from this checkout" >&2; exit 1; }
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/unit/test_dependencies.py
	$(BIN)/python -m pytest -m "not slow" --ignore=tests/unit/test_dependencies.py

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --with-clang

objects: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" --with-clang

bench: $(STAMP)
	@test -n "$(wildcard benchmarks/*.py)" || { echo "make bench: no benchmarks in this checkout" >&2; exit 1; }
	for file in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

types: $(STAMP)
	$(BIN)/pyright

$(STAMP): pyproject.toml constraints.txt
	@found=; for python in $(CANDIDATES); do \
	    if "$$python" -c '$(USABLE)' 2>/dev/null; then found=$$python; break; fi; done; \
	if [ -z "$$found" ]; then \
	    echo "make: no Python >= 3.11 with the venv module found; name one with make PYTHON=/path/to/python" >&2; \
	    echo "      (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; fi; \
	echo "setting up .venv with $$("$$found" --version)"; \
	"$$found" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache
