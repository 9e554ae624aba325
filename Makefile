# make run    the daemon with the sample plugins, each call of an engine, then it serves
# make test   the short tests, and a fifth of the fuzzing
# make test-long   the others: real systemd, a JVM, torture, recovery, fuzzing, each change of a process
# make lint   ruff, mypy, import-linter: who may import whom; and names that say what they hold
# make bench  the benchmark, into docs/benchmarks.md; QUICK=1: a minute, and prints only;
#             BEFORE=DIR: with the daemon of the checkout there beside this one
# make torture   the daemon under attack; DURATION=60 (seconds), SEED=;
#             TWINS=1: two daemons behind HAProxy, which are killed and restarted
# make manual   the manual as a site, into build/manual/site; each link is checked
# make screenshots   of the pages, into docs/; needs chromium and chromedriver
# make release VERSION=1.0.0   writes the version and its date; once that is committed, makes the files
# make rpm    the package of what is committed, into build/rpm; needs rpmbuild; EL=9, EL=10: for that
#             Enterprise Linux, wherever you are; needs its Python
#
# Everything is installed into .venv, made with $(PYTHON) on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test test-long lint bench torture manual screenshots release rpm clean

run: $(VENV)/.run
	@$(BIN)/python demo/run.py

# One worker more than processors: tests wait for processes about as long as they compute.
test: $(VENV)/.test
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),short) $(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal $(or $(ARGS),-m "not long")

test-long: $(VENV)/.test
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal -m "long or hypothesis" $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python .ci/words.py

bench: $(VENV)/.run
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick,--docs docs) $(if $(BEFORE),--before $(BEFORE))

torture: $(VENV)/.test
	@$(BIN)/python -m $(if $(TWINS),torture.twins,torture.run) $(if $(DURATION),--duration $(DURATION)) $(if $(SEED),--seed $(SEED))

# The pages lie there as in the project, so that their links are right in both.
manual: $(VENV)/.test
	mkdir -p build/manual/pages
	rm -f build/manual/pages/*
	ln -s $(CURDIR)/*.md $(CURDIR)/docs $(CURDIR)/etc $(CURDIR)/.ci/site.css build/manual/pages
	$(BIN)/mkdocs build --strict

screenshots: $(VENV)/.test
	@$(BIN)/python demo/screenshots.py

release: $(VENV)/.test
	@$(BIN)/python .ci/release.py $(VERSION)

rpm: SPEC = packaging/ovirt-scheduler.spec
rpm: NAME = ovirt-scheduler-$(shell sed -n 's/^Version: *//p' packaging/ovirt-scheduler.spec)
rpm: PYTHON_OF_9 = python3.9
rpm: PYTHON_OF_10 = python3.12
rpm: TARGET = -D 'dist .el$(EL)' -D '__python3 $(shell command -v $(PYTHON_OF_$(EL)))'
rpm:
	mkdir -p build/rpm/SOURCES
	git archive --prefix=$(NAME)/ --output=build/rpm/SOURCES/$(NAME).tar.gz HEAD
	$(if $(EL),$(PYTHON_OF_$(EL)) -c '')
	rpmbuild -bb -D '_topdir $(CURDIR)/build/rpm' $(if $(EL),$(TARGET)) $(SPEC)

# What is installed depends on setup.py alone: the project itself is run from here.
$(VENV)/.run: setup.py .ci/prerequisites
	.ci/prerequisites $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[manual]' || \
	    echo "mkdocs is not to be had: make manual fails, and its tests are skipped"
	touch $@

$(VENV)/.lint: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
