# Everything from a fresh clone, with Python 3.9 to 3.12 and make:
#   make demo      train, sweep, prune and fine-tune a small network, and say where the files are
#   make demo-ocr  the same for a released PP-OCR network, down to an exported model (OCR=rec: a recogniser)
#   make demo-det  the same for PaddleDetection's released page-layout detector
#   make test      the suite on both stacks; what one of them can show for both runs once
# The stacks (see the table in README.md) live in .venvs/ and are rebuilt when their requirements change.

PYTHON ?= python3
# What demo-ocr is about: det or rec
OCR ?= det
# Python compiles what it imports; to compile all that a package holds takes longer than to install it.
PIP_QUIET := -qq --disable-pip-version-check --no-compile
PADDLE3 := .venvs/paddle3/bin/python
PADDLE26 := .venvs/paddle26/bin/python
NODEPS := configs/ocr/requirements-nodeps.txt configs/det/requirements-nodeps.txt tests/requirements-nodeps.txt
REQUIREMENTS := setup.py tests/constraints-paddle3.txt $(NODEPS)
SOURCES := dysens tests tools benchmarks setup.py
# Paddle warns, in Python and in C++, about things that a user of the demo can do nothing about (ccache, batch norm).
QUIETLY := GLOG_minloglevel=2 PYTHONWARNINGS=ignore::UserWarning

# Python keeps what it compiled, whatever the environment says: without, every process would compile Paddle anew, which takes ten
# seconds, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-ocr demo-det test test-all lint docs bench venvs clean help
.DEFAULT_GOAL := help

help:
	@sed -n '2,5s/^#   //p' Makefile
	@echo 'make test-all  everything on both stacks, with many random networks drawn anew: much longer'
	@echo 'make lint      ruff and mypy'
	@echo 'make docs      the documents and the API reference as a site, in output/site'
	@echo 'make bench     how fast it is, against PaddleSlim: docs/benchmarks.md (a long run on an idle machine)'
	@echo 'make venvs     only build .venvs/paddle3 and .venvs/paddle26'
	@echo 'make clean     remove caches and output/, keep .venvs'

demo: .venvs/paddle3/.stamp
	@$(QUIETLY) $(PADDLE3) -m dysens.demos.digits

demo-ocr: .venvs/paddle3/.stamp
	@$(QUIETLY) $(PADDLE3) -m dysens.demos.ocr $(OCR)

demo-det: .venvs/paddle3/.stamp
	@$(QUIETLY) $(PADDLE3) -m dysens.demos.det

# `make test` splits what one stack can show for both between them (tests/conftest.py) and draws the same few random networks in
# every run. `make test-all` runs everything on both stacks and draws new networks each time, so many of each kind.
SHARE := --share
test-all: NETWORKS ?= 1000
test-all:
	@$(MAKE) --no-print-directory test SHARE= NETWORKS=$(NETWORKS)

# A stack is tested in four parts, each a process: to start one takes four seconds, and what a process that Paddle ends would have
# tested is lost. PaddleOCR's and PaddleDetection's code is kept apart from the rest; static programs and live networks are tested
# in one process, as people have them. Three parts run at a time on two cores, as many tests wait for processes of their own; the
# longest begin. The output of a part comes in one piece when it is done; what is under way stands in output/test-*.log. At the end
# come pytest's closing lines once more, with what failed and what ended without a closing line.
toolboxes := $(addprefix tests/,adapters demos det_tools pipeline)
commands := $(addprefix tests/,cli compress)
analyses := $(addprefix tests/,compat programs compiled costs criteria data engines evaluators groups)
others := $(filter-out %__pycache__ %golden $(toolboxes) $(commands) $(analyses),$(patsubst %/,%,$(wildcard tests/*/))) \
	$(sort $(wildcard tests/test_*.py))
PARTS := $(foreach part,others analyses toolboxes commands,test-paddle26-$(part) test-paddle3-$(part))
# The slowest tests, as many as this, are listed at the end of each part.
DURATIONS := 8
CLOSING := ^(== |FAILED |ERROR |Fatal |(no tests ran|[0-9]+ [a-z]+).* in [0-9.]+s)
test: venvs
	@mkdir -p output && rm -f output/test-*.log
	@echo "Testing paddle3 and paddle26 side by side; output/test-*.log grow meanwhile."
	@$(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target $(PARTS); status=$$?; \
	grep -hE '$(CLOSING)' output/test-*.log; exit $$status

# Pytest's 5 says that all of a part's tests are the other stack's.
.PHONY: $(PARTS)
$(PARTS): stack = $(word 2,$(subst -, ,$@))
$(PARTS): rooms = $($(word 3,$(subst -, ,$@)))
$(PARTS): venvs
	@echo "== $(stack): $(rooms)" > output/$@.log; \
	OMP_NUM_THREADS=1 DYSENS_RANDOM_NETWORKS=$(NETWORKS) .venvs/$(stack)/bin/python -m pytest -p no:cacheprovider \
		--durations=$(DURATIONS) $(SHARE) $(rooms) >> output/$@.log 2>&1; code=$$?; \
	[ $$code -ne 5 ] || code=0; [ $$code -eq 0 ] || echo "== $(stack): exit code $$code" >> output/$@.log; \
	cat output/$@.log; exit $$code

# Needs the machine for itself. Measures what has no figures yet, so what was broken off goes on; `make bench AGAIN=--again`
# forgets them all first. Single parts and a time limit: see benchmarks/speed/__main__.py.
bench: venvs
	@failed=0; $(QUIETLY) $(PADDLE26) benchmarks/speed $(AGAIN) || failed=1; \
	$(QUIETLY) $(PADDLE3) benchmarks/speed $(AGAIN) || failed=1; exit $$failed

lint: .venvs/paddle3/.stamp
	$(PADDLE3) -m ruff check $(SOURCES)
	$(PADDLE3) -m ruff format --check $(SOURCES)
	$(PADDLE3) -m mypy

# Every warning counts: a link that leads nowhere, an argument that a docstring names and the function lacks.
docs: .venvs/paddle3/.stamp
	$(PADDLE3) -m mkdocs build --strict --quiet

venvs: .venvs/paddle3/.stamp .venvs/paddle26/.stamp

.venvs/paddle3/.stamp: $(REQUIREMENTS)
	@echo "Installing $(@D) (Paddle 3): a few minutes, once."
	@$(PYTHON) -m venv $(@D)
	@$(PADDLE3) -m pip install $(PIP_QUIET) --upgrade pip
	@$(PADDLE3) -m pip install $(PIP_QUIET) --constraint tests/constraints-paddle3.txt --editable '.[cpu,test,docs,ocr,det,ray,openvino,onnxruntime]'
	@$(PADDLE3) -m pip install $(PIP_QUIET) --no-deps $(NODEPS:%=--requirement %)
	@touch $@

.venvs/paddle26/.stamp: $(REQUIREMENTS)
	@echo "Installing $(@D) (Paddle 2.6 and PaddleSlim): a few minutes, once."
	@$(PYTHON) -m venv $(@D)
	@$(PADDLE26) -m pip install $(PIP_QUIET) --upgrade pip
	@$(PADDLE26) -m pip install $(PIP_QUIET) --editable '.[slim,test,ocr,det,ray,openvino,onnxruntime]'
	@$(PADDLE26) -m pip install $(PIP_QUIET) --no-deps $(NODEPS:%=--requirement %)
# PaddleSlim brings an OpenCV that needs a display's libraries; the headless one has to be the last to write cv2.
	@$(PADDLE26) -m pip install $(PIP_QUIET) --no-deps --force-reinstall 'opencv-python-headless<4.12'
	@touch $@

clean:
	rm -rf output build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find dysens tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
