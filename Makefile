# SPDX-License-Identifier: Apache-2.0
# A thin front for premake: installs what is missing, builds in build/, runs.
#
#   make         the libraries and the program build/bin/quern
#   make demo    two real layers from tokens, forward and backward, checked on this machine
#                (RECIPE=mxfp8 chooses another recipe than fp8_block)
#   make test      each test program; where cases take minutes, a share of them (8 minutes)
#   make test-all  the other shares, and each program under ASan and UBSan (40 minutes more)
#   make test-torch  quern.torch on the CPU, with PyPI's torch (531 MB, fetched once into build/torch)
#   make test-jax  quern.jax on the CPU, with PyPI's jax (160 MB, fetched once into build/jax)
#   make wheel   build/wheel/quern-*.whl; `pip install .` installs one (docs/install.md)
#   make test-wheel  install it elsewhere and use it, with PyPI's NVRTC (100 MB, fetched each time)
#   make test-cross  a build and a wheel for aarch64, tested under qemu-user
#   make golden  accept the kernels' texts and launches as they are now (tests/*/golden)
#   make tsan    what threads share, under ThreadSanitizer
#   make fuzz    damaged specs, lines and files, FUZZ_SECONDS long (an hour)
#   make check   format, names, budgets, exported symbols, reproducible output
#   make format  rewrite the C files as .clang-format says
#   make hooks   have git check the messages of commits (CONVENTIONS.md)
#   make report  build/report.html: plots of what bench/results holds
#   make clean
#   make install     into PREFIX (/usr/local), below DESTDIR if that is given, libraries
#                    into LIBDIR (lib) of it; pkg-config and CMake then know `quern`
#   make uninstall   remove that again, with the folders that install made
#
# CC=clang chooses the compiler (after make clean), JOBS=n the parallel jobs.

SHELL := /bin/bash
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
BUILD = $(MAKE) --no-print-directory -C build $(if $(findstring \
    jobserver,$(MAKEFLAGS)),,-j$(JOBS))
SUBMAKE = +@$(BUILD)

.PHONY: all demo test test-all test-torch test-jax wheel test-wheel test-cross golden tsan fuzz check format \
    clean report install uninstall hooks tools generate

all: generate
	$(SUBMAKE) config=release quern_cli quern quern_torch quern_jax fake_ptx
	@.ci/carry build

demo: all
	@.ci/install nvrtc
	@build/bin/quern demo $(RECIPE)

test: generate
	@.ci/install test nvrtc python plots
	@rm -f build/log/built
	+@.ci/timed 'the build' $(BUILD) config=release
	@.ci/carry build
	@tests/run.sh

golden: generate
	@.ci/install test
	$(SUBMAKE) config=release test_gen test_launches fake_cuda
	@QUERN_ACCEPT=1 build/bin/test_gen
	@QUERN_ACCEPT=1 build/bin/test_launches
	@git --no-pager diff --stat -- 'tests/*/golden'

# The GPU suite is built only in the release configuration.
test-all: generate
	@.ci/install test nvrtc python
	@rm -f build/log/built
	+@.ci/timed 'the build' $(BUILD) config=release
	@.ci/carry build
	+@.ci/timed 'the build with sanitizers' $(BUILD) config=asan quern_cli quern \
	    $$(cd build && ls test_*.make fake_*.make | sed 's/\.make$$//')
	@.ci/carry build/asan
	@tests/run.sh rest

test-torch: generate
	@.ci/install torch
	$(SUBMAKE) config=release quern quern_gen quern_torch
	@TORCHINDUCTOR_CACHE_DIR="$$PWD/build/torch/inductor" build/torch/venv/bin/python -m pytest -q -rs -n $(JOBS) \
	    -p no:cacheprovider tests/torch $(TORCH_TESTS)

test-jax: generate
	@.ci/install jax
	$(SUBMAKE) config=release quern quern_cli quern_gen quern_jax
	@build/jax/venv/bin/python -m pytest -q -rs -n $(JOBS) -p no:cacheprovider tests/jax $(JAX_TESTS)

wheel: all
	@.ci/install wheel
	@python3 .ci/backend.py build/wheel

test-wheel: all
	@.ci/install wheel
	@.ci/wheel

test-cross: all
	@.ci/install wheel cross
	+@.ci/cross

tsan: generate
	@.ci/install test
	$(SUBMAKE) config=tsan test_runtime test_api fake_gen fake_cuda fake_nvrtc fake_cublaslt
	@build/tsan/bin/test_runtime 'no test' >/dev/null 2>&1 || \
	    { echo "tsan: skipped, ThreadSanitizer does not start on this machine"; exit 0; }; \
	    build/tsan/bin/test_runtime '*thread*' && build/tsan/bin/test_api '*thread*'

# With clang's libFuzzer; without it, the driver of `make test` with other seeds.
# What it finds becomes a file of tests/fuzz/corpus.
fuzz: generate
	@.ci/install test check
	@.ci/fuzz "$(or $(FUZZ_SECONDS),3600)" "$(JOBS)" $(FUZZ_TARGETS)

check: all
	@.ci/install check
	@.ci/check

format: tools
	@.ci/install check
	@find gen runtime tests bench examples -name '*.[ch]' | xargs clang-format -i

hooks:
	@hook=$$(git rev-parse --git-path hooks)/commit-msg && mkdir -p "$${hook%/*}" && \
	    { [ ! -e "$$hook" ] || cmp -s .ci/commit-msg "$$hook" || \
	    { echo "quern: $$hook is another hook" >&2; exit 2; }; } && \
	    install -m 755 .ci/commit-msg "$$hook" && echo "$$hook"

report: tools
	@.ci/install plots
	@build/python/bin/python bench/report.py --page build/report.html bench/results/*.json
	@echo build/report.html

install: all
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' .ci/place install

uninstall:
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' .ci/place uninstall

clean:
	@rm -rf build

tools:
	@.ci/install build

# The generator is built, and generates, before premake can see what it wrote.
# Files are rewritten only where they change, so nothing is compiled in vain.
generate: tools
	@.ci/premake
	$(SUBMAKE) config=release embed
	@build/bin/embed build/gen/embedded.c specs templates
	$(SUBMAKE) config=release quern_boot
	@.ci/boot build/gen
	@.ci/premake
