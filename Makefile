# The words developers and CI share. `make help` lists them.
SHELL := /bin/sh
VENV := .venv/bin
PYTEST_ARGS ?=
MUTANTS_ARGS ?=
CHAOS_ARGS ?=
PEERS_ARGS ?=
SOAK_ARGS ?=

.PHONY: help .venv .venv-spark demo test test-all runbooks test-layouts test-spark test-spark-cluster chaos chaos-spark check fix reference bench bench-quick soak peers simulate explore mutants clean
.DEFAULT_GOAL := help

help: ## list the words
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: .venv/.complete ## the virtual environment, from constraints.txt

# The stamp is touched last, so a half-made .venv is finished or replaced by the next call.
.venv/.complete: constraints.txt pyproject.toml tools/make-venv.sh
	@./tools/make-venv.sh .venv dev,types,lz4,zstandard constraints.txt

.venv-spark: .venv-spark/.complete ## the same with Spark, from constraints-spark.txt; and Java
	@./tools/need-java.sh .venv-spark/bin/python

.venv-spark/.complete: constraints.txt constraints-spark.txt pyproject.toml tools/make-venv.sh
	@./tools/make-venv.sh .venv-spark dev,spark,lz4,zstandard constraints.txt constraints-spark.txt

demo: .venv/.complete ## a log of three replicas whose leader is killed half way
	@$(VENV)/logstore demo

test: .venv/.complete ## every test but those of more than six seconds: minutes (PYTEST_ARGS=… passes options on)
	@$(VENV)/python -m pytest -n 3 -m "not chaos and not long" $(PYTEST_ARGS)

test-all: .venv/.complete ## every test but `make chaos`: up to half an hour (PYTEST_ARGS=… as above)
	@$(VENV)/python -m pytest -n 3 $(PYTEST_ARGS)

runbooks: .venv/.complete ## every block of docs/runbooks/ in order, on real clusters; of `make test-all` (PYTEST_ARGS=… as above)
	@$(VENV)/python -m pytest -m runbook tests/cluster tests/faults $(PYTEST_ARGS)

chaos: .venv/.complete ## replicas are killed at each step of a change of the members, which `make test-all` leaves out: minutes (PYTEST_ARGS=… as above)
	@$(VENV)/python -m pytest -m chaos tests/faults $(PYTEST_ARGS)

test-layouts: .venv/.complete ## the tests on clusters in the modes that `auto`, the default, does not choose on few CPUs (PYTEST_ARGS=… as above)
	@for mode in processes single; do \
		echo "mode $$mode" && LOGSTORE_MODE=$$mode $(VENV)/python -m pytest -n 2 tests/cluster tests/faults $(PYTEST_ARGS) || exit 1; \
	done

test-spark: .venv-spark ## the tests of logstore.spark, with a real Spark (PYTEST_ARGS=… as above)
	@.venv-spark/bin/python -m pytest tests/spark $(PYTEST_ARGS)

test-spark-cluster: .venv-spark ## the same on a standalone master with two workers, started for it
	@LOGSTORE_SPARK_MASTER=standalone .venv-spark/bin/python -m pytest tests/spark $(PYTEST_ARGS)

chaos-spark: .venv-spark ## 200 kills across a million rows in and out (CHAOS_ARGS=… passes options on)
	@.venv-spark/bin/python -m tests.spark.chaos $(CHAOS_ARGS)

check: .venv/.complete ## format, lint, types, layers, tidy tests
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports
	$(VENV)/python -m pytest -q tests/tidy

fix: .venv/.complete ## format and mend what ruff can mend
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

reference: .venv/.complete ## write configs/README.md and tests/PROMISES.md anew
	$(VENV)/python -m logstore.config_reference
	$(VENV)/python -m tests.tidy.promises

bench: .venv/.complete ## what the benchmarks measure, and how long each takes
	@$(VENV)/python -m benchmarks list

bench-quick: .venv/.complete ## a look whether a benchmark works, figure 7b of the paper: half a minute, no figure to publish
	@$(VENV)/python -m benchmarks fig7b --quick

soak: .venv/.complete ## half an hour of lost disks, replaced nodes and kills under load (SOAK_ARGS=… passes options on)
	@$(VENV)/python -m tests.faults.member_soak $(SOAK_ARGS)

peers: .venv/.complete ## build Kafka, NATS and etcd, measure this log beside them (PEERS_ARGS=… passes options on)
	@./tools/build-peers.sh
	@$(VENV)/python -m benchmarks peers $(PEERS_ARGS)

simulate: .venv/.complete ## a minute of drawn clusters and faults, from a seed that the commit gives
	@commit=$$(git rev-parse HEAD) && seed=$$((0x$$(echo $$commit | cut -c1-7))) && \
		echo "commit $$commit: seeds from $$seed on" && \
		$(VENV)/logstore simulate --minutes 1 --jobs 2 --first-seed $$seed

explore: .venv/.complete ## every schedule of three cores within small bounds, three with a change of the members
	@$(VENV)/python -m tests.explorer --terms 2 --entries 1 --crashes 1 --streams 1
	@$(VENV)/python -m tests.explorer --terms 2 --entries 2 --crashes 0 --streams 1
	@for change in promote remove replace; do \
		$(VENV)/python -m tests.explorer --terms 1 --entries 3 --crashes 0 --streams 1 --changes 1 --change $$change || exit 1; \
	done

mutants: .venv/.complete ## hunt every broken rule with the simulator; the table in benchmarks/results/
	@$(VENV)/python -m tests.mutants $(MUTANTS_ARGS)

clean: ## remove caches, .venv, .venv-spark and built peers
	rm -rf .venv .venv-spark .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	rm -rf benchmarks/peers/bin docs/examples/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
