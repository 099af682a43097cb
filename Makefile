# `make run` starts a broker; `make test` checks and tests everything. Each first creates
# what it needs in .venv. CONTRIBUTING.md explains the rest.

.DEFAULT_GOAL := help
.SILENT:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first of these that will do makes the environment; make PYTHON=... names another.
SUITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON := $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	if $$name -c '$(SUITS)' >/dev/null 2>&1; then echo $$name; break; fi; done)
ARGS ?= doctor
LISTEN ?= 127.0.0.1:9092
DATA ?= ./data
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest -q

.PHONY: help run test test-long check compiled pipeline test-portable test-clients test-processes test-pipeline clients-grid test-transactions test-groups test-moving test-kill test-kill-transactions test-kill-pipeline flips power-cuts kafka-tester librdkafka-suite fuzz simulate bench docs recording console-pictures site format clean

help:
	echo "make run           start a broker on $(LISTEN) with its data in $(DATA)"
	echo "make pipeline      ARGS=... what triglot pipeline is given; by itself: is Spark usable here"
	echo "make test          check, then every test but the long ones"
	echo "make test-long     the tests that start Apache Kafka, or Spark anew, or try many clients"
	echo "make check         formatting, lint, types, import contracts"
	echo "make compiled      build the parts in C; run and test try it by themselves"
	echo "make test-portable the tests of the broker, on the portable path of macOS and Windows"
	echo "make test-clients  only the tests with real client libraries"
	echo "make test-processes  clients old and new, their groups and transactions, a full disk, and the console, with PROCESSES=2 processes of a broker"
	echo "make test-pipeline only the tests of the pipeline, the long ones with them"
	echo "make clients-grid  which client reads what which wrote, into docs/clients.md"
	echo "make test-transactions  transactions of every client with triglot and with Apache Kafka"
	echo "make test-groups   groups of every client, killed, paused and restarted for minutes"
	echo "make test-moving   directories handed between triglot and Apache Kafka, every pair"
	echo "make test-kill     kill -9 under load, 20 rounds"
	echo "make test-kill-transactions  kill -9 under transactional copiers, and zombies, 100 rounds"
	echo "make test-kill-pipeline  kills under jobs of the pipeline, 20 rounds here, on a cluster, through Spark Connect"
	echo "make flips         flipped bits in data directories, 200 of them; what clients then get"
	echo "make power-cuts    power cuts under load, 20 rounds, on a disk of our own (FUSE)"
	echo "make kafka-tester  the stages of the Go kafka-tester that TEST_KAFKA_TESTER names"
	echo "make librdkafka-suite  librdkafka's own tests in the checkout that TEST_LIBRDKAFKA names, open and with SASL_SSL"
	echo "make fuzz          the fuzz tests, longer"
	echo "make simulate      storage against a model: a million operations, ten thousand crashes; transactions, too"
	echo "make bench         measure; results go to bench/results"
	echo "make docs          write the generated pages again"
	echo "make recording     the picture of the README again, from a real run; needs kcat"
	echo "make console-pictures  the pictures of docs/console.md again, in a headless Chromium"
	echo "make site          the documentation as a site that can be searched, in build/site"
	echo "make format        format the code and apply safe fixes"
	echo "make clean         remove what these commands created, but not $(DATA)"

# The environment. A stamp is newer than the lock file that was installed.

.venv/bin/python:
	if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c '$(SUITS)' 2>/dev/null; then \
		echo "triglot needs Python 3.11 or newer with its venv module; found none." >&2; \
		echo "Install it (Debian, Ubuntu: apt install python3 python3-venv)," >&2; \
		echo "or name yours: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
		exit 1; \
	fi
	echo "== creating .venv"
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.run-stamp: requirements.lock requirements-examples.lock | .venv/bin/python
	echo "== installing what a broker and the examples need"
	$(PIP) install -r requirements.lock -r requirements-examples.lock
	touch $@

# Kept apart, so that `make run` and `make check` do without. pip keeps the wheel that it makes.
.venv/.pipeline-stamp: requirements-pipeline.lock requirements.lock | .venv/bin/python
	if ! $(BIN)/python -m pip show --quiet pyspark 2>/dev/null; then \
		echo "== installing Spark: 456 MB to fetch and to make a wheel of, a minute or two the first time"; \
	fi
	$(PIP) install -r requirements.lock -r requirements-pipeline.lock
	touch $@

.venv/.dev-stamp: requirements-dev.lock requirements-console.lock requirements-examples.lock requirements-security.lock requirements.lock | .venv/bin/python
	echo "== installing what checks and most tests need"
	$(PIP) install -r requirements-dev.lock
	touch .venv/.run-stamp $@

# Built with MIT Kerberos: where that is missing, its tests are skipped. Optimized it would take three
# times as long, over a minute.
.venv/.kerberos-stamp: requirements-kerberos.lock | .venv/bin/python
	if ! command -v krb5-config >/dev/null; then \
		echo "== no krb5-config: the tests of Kerberos will be skipped (CONTRIBUTING.md)"; \
	elif CFLAGS='-O0 -g0' $(PIP) install -r requirements-kerberos.lock 2>.venv/kerberos.txt; then \
		touch $@; \
	else \
		echo "== gssapi can't be built: the tests of Kerberos will be skipped (.venv/kerberos.txt)"; \
	fi

.venv/.test-stamp: requirements-test.lock .venv/.dev-stamp .venv/.pipeline-stamp | .venv/bin/python .venv/.kerberos-stamp
	echo "== installing what the tests of the pipeline need"
	$(PIP) install -r requirements-test.lock
	touch $@

.venv/.site-stamp: requirements-site.lock .venv/.dev-stamp | .venv/bin/python
	echo "== installing what makes the site of the documentation"
	$(PIP) install -r requirements-site.lock
	touch $@

# The parts in C, beside their twins in Python, which are used where this does not work. The
# compiler is called as the interpreter itself was built, because .venv may have no setuptools.

define BUILD_LOOPS
import shlex, subprocess, sysconfig
config = sysconfig.get_config_vars()
flags = "-O2 -g0 -DNDEBUG -fPIC -I" + shlex.quote(sysconfig.get_path("include"))
command = shlex.split(config["LDSHARED"] + " " + flags)
# It links with nothing, so it should not say where the libraries of this machine are.
command = [word for word in command if not word.startswith(("-L", "-Wl,-rpath"))]
for source in ("protocol/records/_loops", "protocol/_single"):
    output = source + config["EXT_SUFFIX"]
    subprocess.run([*command, source + ".c", "-o", output], check=True)
endef
export BUILD_LOOPS

compiled: .venv/bin/python
	$(BIN)/python -c "$$BUILD_LOOPS"
	touch .venv/.loops-stamp

.venv/.loops-stamp: protocol/records/_loops.c protocol/_single.c | .venv/bin/python
	rm -f protocol/records/_loops*.so protocol/_single*.so
	$(BIN)/python -c "$$BUILD_LOOPS" 2>.venv/loops.txt \
		|| echo "== no C compiler that works: old clients' formats are converted slowly (make compiled)"
	touch $@

# The commands.

run: .venv/.run-stamp .venv/.loops-stamp
	exec $(BIN)/python -m tools serve --data "$(DATA)" --listen "$(LISTEN)"

pipeline: .venv/.pipeline-stamp .venv/.loops-stamp
	exec $(BIN)/python -m tools pipeline $(ARGS)

check: .venv/.dev-stamp
	echo "== formatting"
	$(BIN)/ruff format --check --quiet . || { echo "make format puts this right" >&2; exit 1; }
	echo "== lint"
	$(BIN)/ruff check --quiet .
	echo "== types"
	$(BIN)/python -c "import pyspark" 2>/dev/null || echo "   without those of Spark and numpy, which make test installs"
	$(BIN)/mypy --no-error-summary
	echo "== import contracts"
	$(BIN)/lint-imports >.venv/contracts.txt || { cat .venv/contracts.txt; exit 1; }

# Tests with client libraries, Spark and brokers wait more than they work: the others run meanwhile.
# What is marked `long` takes minutes: CI runs it after `make test`.
SERVED := tests/pipeline tests/broker tests/client tests/handlers tests/tools
MOVING := test_moving_to_kafka.py test_moving_from_kafka.py test_moving_with_users.py test_moving_waiting_topics.py
# Of the tests with client libraries about half.
HALF := $(addprefix tests/clients/,transactions transactions_command groups_command access bearer sasl \
	test_groups.py test_used_clients.py test_faults.py test_faults_of_groups.py $(MOVING))

# `beside NAME ARGUMENTS` begins tests whose report `reported` prints when they have ended; `status` is 0
# where all have passed.
define BESIDE
reports=$$(mktemp -d) || exit 1; status=0; running=; \
beside() { name=$$1; shift; $(PYTEST) "$$@" >"$$reports/$$name" 2>&1 & running="$$running $$!:$$name"; }; \
reported() { for one in $$running; do \
	wait "$${one%%:*}" || status=$$?; echo "== $${one#*:}"; cat "$$reports/$${one#*:}"; \
done; rm -rf "$$reports"; }; \
trap 'for one in $$running; do kill "$${one%%:*}"; done; rm -rf "$$reports"; exit 130' INT TERM
endef

test: .venv/.test-stamp check .venv/.loops-stamp
	echo "== tests"
	if [ -n "$(strip $(PYTEST_ARGS))" ]; then exec $(PYTEST) $(PYTEST_ARGS); fi; \
	echo "tests with brokers, client libraries and Spark run beside the others; they are told last"; \
	$(BESIDE); \
	beside brokers-and-pipeline -m "not long" $(SERVED); \
	beside clients -m "not long" $(addprefix --ignore=,$(HALF)) tests/clients; \
	beside more-clients -m "not long" $(HALF); \
	$(PYTEST) -m "not long" $(addprefix --ignore=,tests/clients $(SERVED)) || status=$$?; \
	reported; exit $$status

test-long: .venv/.test-stamp .venv/.site-stamp .venv/.loops-stamp
	if [ -n "$(strip $(PYTEST_ARGS))" ]; then exec $(PYTEST) -m long $(PYTEST_ARGS); fi; \
	echo "long tests with client libraries run beside the others; they are told last"; \
	$(BESIDE); \
	beside clients -m long $(addprefix --ignore=,$(HALF)) tests/clients; \
	beside more-clients -m long $(HALF); \
	$(PYTEST) -m long --ignore=tests/clients || status=$$?; \
	reported; exit $$status

# As on systems other than Linux: docs/platforms.md.
PORTABLE := tests/storage tests/broker tests/handlers tests/testing tests/client tests/clients
test-portable: .venv/.test-stamp .venv/.loops-stamp
	TRIGLOT_PORTABLE=1 $(PYTEST) -m "not long" $(PORTABLE) $(PYTEST_ARGS)

test-clients: .venv/.test-stamp
	$(PYTEST) -m clients $(PYTEST_ARGS)

PROCESSES := 2
test-processes: .venv/.test-stamp
	TEST_PROCESSES=$(PROCESSES) $(PYTEST) -m "not long" tests/clients/test_grid.py \
		tests/clients/test_groups.py tests/clients/test_round_trips.py \
		tests/clients/test_old_clients.py tests/clients/test_full_disk.py \
		tests/clients/transactions/test_transactional_clients.py \
		tests/tools/console/test_logins.py tests/tools/console/test_topics_and_records.py \
		tests/tools/console/test_writing.py $(PYTEST_ARGS)

test-pipeline: .venv/.test-stamp .venv/.loops-stamp
	$(PYTEST) tests/pipeline $(PYTEST_ARGS)

clients-grid: .venv/.test-stamp
	TEST_GRID_KEEP=1 $(PYTEST) --timeout=3600 tests/clients/test_grid.py tests/clients/test_used_clients.py $(PYTEST_ARGS)
	$(BIN)/python -m docs.generate

test-transactions: .venv/.test-stamp .venv/.loops-stamp
	TEST_TRANSACTIONS_ON_KAFKA=1 $(PYTEST) --timeout=3600 tests/clients/transactions \
		tests/pipeline/test_transactional_spark.py $(PYTEST_ARGS)

test-groups: .venv/.test-stamp
	TEST_GROUPS_SOAK=1 $(PYTEST) -s --timeout=3600 tests/clients/test_groups_soak.py $(PYTEST_ARGS)

test-moving: .venv/.test-stamp
	TEST_MOVING_ALL=1 $(PYTEST) --timeout=3600 tests/clients/test_moving_to_kafka.py tests/clients/test_moving_from_kafka.py \
		tests/clients/test_metadata_there_and_back.py tests/clients/test_the_page_on_moving.py $(PYTEST_ARGS)

test-kill: .venv/.test-stamp
	TEST_KILL_ROUNDS="$${TEST_KILL_ROUNDS:-20}" $(PYTEST) -s --timeout=3600 tests/clients/test_kill.py $(PYTEST_ARGS)

test-kill-transactions: .venv/.test-stamp
	TEST_KILL_ROUNDS="$${TEST_KILL_ROUNDS:-100}" TEST_ZOMBIE_ROUNDS="$${TEST_ZOMBIE_ROUNDS:-100}" \
		$(PYTEST) -s --timeout=3600 tests/clients/test_kill_transactions.py tests/clients/test_zombies.py $(PYTEST_ARGS)

test-kill-pipeline: .venv/.test-stamp .venv/.loops-stamp
	TEST_PIPELINE_KILLS="$${TEST_PIPELINE_KILLS:-20}" $(PYTEST) -s --timeout=0 tests/pipeline/test_kills.py $(PYTEST_ARGS)

flips: .venv/.dev-stamp .venv/.loops-stamp
	$(BIN)/python -m tests.damage.run

power-cuts: .venv/.test-stamp .venv/.loops-stamp
	TEST_CUTS="$${TEST_CUTS:-20}" $(PYTEST) -s --timeout=14400 tests/power $(PYTEST_ARGS)

kafka-tester: .venv/.test-stamp
	TEST_REQUIRE_KAFKA_TESTER=1 $(PYTEST) tests/clients/test_kafka_tester.py $(PYTEST_ARGS)

librdkafka-suite: .venv/.test-stamp
	TEST_REQUIRE_LIBRDKAFKA=1 $(PYTEST) tests/clients/test_librdkafka_suite.py $(PYTEST_ARGS)

fuzz: .venv/.dev-stamp .venv/.loops-stamp
	TEST_FUZZ_FACTOR="$${TEST_FUZZ_FACTOR:-10}" $(PYTEST) --timeout=3600 tests/fuzz $(PYTEST_ARGS)

simulate: .venv/.dev-stamp .venv/.loops-stamp
	$(BIN)/python -m tests.simulation.run
	$(BIN)/python -m tests.simulation.transactions.run

bench: .venv/.test-stamp .venv/.loops-stamp
	$(BIN)/python -m bench

docs: .venv/.dev-stamp
	$(BIN)/python -m docs.generate

recording: .venv/.dev-stamp
	$(BIN)/python -m docs.recording

console-pictures: .venv/.test-stamp
	$(BIN)/python -m docs.console_pictures

# A page that nothing leads to, and a link that leads nowhere, stop it.
site: .venv/.site-stamp
	rm -rf build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site \
		-d build/site-doctrees . build/site
	cp build/site/README.html build/site/index.html
	echo "build/site/index.html"

format: .venv/.dev-stamp
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

clean:
	rm -f protocol/records/_loops*.so
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
