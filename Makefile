# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# All extras, so that no test is skipped for a missing package.
EXTRAS := draw,open,paths,ray,dask,export,text,notebook,site,download,distributed,dev
INSTALLED := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Children of tests read compiled files instead of compiling every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check lint fuzz kill gallery notebooks site topics tables experiment-tables bench clean

demo: $(INSTALLED)
	$(BIN)/python examples/tour.py demo-output

# Tests that run with the types and shapes of arguments checked at run time. A check costs as much
# as a small computation, so these are the files with many small ones. Left out are files that
# compile (the compiler cannot read the checks), strategies that build networks (the checks draw
# random numbers, which hypothesis forbids), files that trace, train, or start processes, and bounds,
# which are about integers and have no shapes.
UNCHECKED := $(patsubst %,tests/%.py,\
    $(addprefix compression/test_,compressing exporting folding hugging_face recovering usage) \
    $(addprefix factorize/test_,format_contract hyperdeterminant interval layer_attention layer_contract \
        layer_convolution layer_embedding layer_recurrent layer_tunable_attention) \
    $(addprefix generalize/test_,activations arora compressed_network figures layer_trace \
        measured_search rank_search spectral tracking) \
    $(addprefix rank/test_,attention_kernels attention_moments attention_programs certificate_file exact_modular \
        measuring_draws measuring_measurement message_passing network_measuring sparsification \
        token_mixer_bounds token_mixer_certificates token_mixer_recurrence token_mixer_transformer) \
    $(addprefix robust/test_orthogonal_,convolution kernel))
CHECKED := $(filter-out $(UNCHECKED) tests/rank/test_bounds_%,$(wildcard tests/rank/test_*.py tests/factorize/test_*.py \
    tests/compression/test_*.py tests/generalize/test_*.py tests/robust/test_orthogonal_*.py \
    tests/robust/test_norm*.py))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q
TWO_WORKERS := -n 2 --dist loadfile

# Everything once. HYPOTHESIS_PROFILE=thorough tries properties on all the examples they ask for.
test: $(INSTALLED)
	@$(PYTEST) $(TWO_WORKERS) $(CHECKED:%=--ignore=%)
	@$(PYTEST) --jaxtyping-packages=rankscope,beartype.beartype $(CHECKED)

# For every day: linters, types, and the tests that are quick, on few examples and one case a table.
check: lint
	HYPOTHESIS_PROFILE=quick $(PYTEST) $(TWO_WORKERS) -m "not slow" tests

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Damaged files and odd options against every command; kills of long commands, which then go on.
# Longer, or the same again: make fuzz ARGUMENTS="--seconds 3600 --seed 7".
fuzz: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m fuzz inputs $(ARGUMENTS)

kill: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m fuzz kills $(ARGUMENTS)

gallery: $(INSTALLED)
	$(BIN)/python docs/make_gallery.py

# Runs docs/notebooks/*.py cell by cell, and writes them as notebooks.
notebooks: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_notebooks.py

# The documentation as a site, in the folder site/; nothing is fetched.
site: $(INSTALLED)
	$(BIN)/python docs/make_site.py site

topics: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_topics.py

# Add ARGUMENTS=--crown to measure the largest entry again (about ten minutes on two cores).
tables: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_rank_tables.py $(ARGUMENTS)

# Only puts docs/results into the pages; `rankscope experiment run` computes them.
experiment-tables: $(INSTALLED)
	$(BIN)/python docs/make_experiment_tables.py

bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

# The stamp is newer than what was installed from, or everything is installed again.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $(INSTALLED)

clean:
	rm -rf .venv demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
