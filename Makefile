# SPDX-License-Identifier: Apache-2.0
#
#   make demo        set up, build, serve the bundled model, ask it eight questions, show the memory
#   make test        set up, build, run the fast tests
#   make test-slow   the slow suites as well, and that each fault of tests/mutants is caught
#   make test-sdk    other people's clients against the server (wants Node 18 or newer, fetches packages)
#   make test-browser  the page at / in Chromium (wants Chromium and Node 18 or newer, fetches packages)
#   make test-load   answers under load and the alone ones, signals, a short soak (a minute or two)
#   make soak        20 minutes of all that clients do to a server (SECONDS=N: other ones)
#   make serve       the server on the bundled model, until Ctrl-C
#   make checks      layering, format, lock annotations and mutants (part of what .ci/run adds)
#   make format      rewrite the sources in the project's format

MODEL ?= models/harbour-2.8m-q8_0.gguf
TESSERA := build/release/bin/tessera
JOBS ?= $(shell nproc)
SECONDS ?= 1200

.PHONY: all setup configure build build-tests test test-slow test-sdk test-browser test-load soak demo serve checks format clean
all: build

setup:
	@scripts/install_packages.sh

configure: setup
	@cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
	@rm -f build-configure.log

build: configure
	@cmake --build build/release -j $(JOBS) --target tessera

build-tests: configure
	@cmake --build build/release -j $(JOBS)

test: build-tests
	@ctest --test-dir build/release --output-on-failure -LE slow

test-slow: build-tests
	@ctest --test-dir build/release --output-on-failure
	@scripts/run_mutants.sh

test-sdk: build
	@scripts/run_node_tests.sh tests/sdk $(TESSERA) $(MODEL)

test-browser: build
	@scripts/run_node_tests.sh tests/browser $(TESSERA) $(MODEL)

test-load soak: export TESSERA := $(abspath $(TESSERA))
test-load soak: export MODEL := $(abspath $(MODEL))
test-load: build
	@cd tests/load && python3 -m unittest -v checks_test determinism_test signals_test
	@python3 tests/load/soak.py --seconds 25

soak: build
	@python3 tests/load/soak.py --seconds $(SECONDS)

demo: build
	@python3 scripts/demo.py --tessera $(TESSERA) --model $(MODEL)

serve: build
	@$(TESSERA) serve $(MODEL)

checks:
	@scripts/install_packages.sh --checks
	@python3 scripts/check_layers.py
	@python3 bench/shared_context/shared_context_test.py
	@scripts/check_format.sh
	@scripts/check_threads.sh
	@scripts/check_mutants.sh

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 -i

clean:
	@rm -rf build
