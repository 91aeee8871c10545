# Everything is installed into .venv by the first target that needs it; nothing outside this folder is touched but the caches of pip and uv.
# `make demo` and `make test` are all that a newcomer needs.

PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 15)))' 2>/dev/null && { echo "$$p"; break; }; done)
RUN := .venv/bin/
# Hundreds of processes are started here: none compiles anew what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo kernels test lint check messages bench bench-start docs recording fuzz test-page check-memory torture demo-machines demo-ray ray-torture soak clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# uv comes from the lock like every other tool; only the pip that ships with Python is needed to fetch it.
.venv/bin/uv:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 to 3.14 is needed: install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@headers=$$("$(PYTHON)" -c 'import sysconfig; print(sysconfig.get_path("include"))'); test -f "$$headers/Python.h" || { \
		echo "make: $$headers/Python.h is missing: install $${headers##*/}-dev (Fedora: python3-devel)," \
		"or name a Python that has it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x .venv/bin/pip || "$(PYTHON)" -m venv .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check uv

# Empty where setup.py finds a C compiler.
ZIG := $(shell for c in $$CC cc gcc clang; do command -v "$$c" >/dev/null 2>&1 && exit; done; echo ziglang)
SYNC := .venv/bin/uv sync --quiet --frozen --inexact --compile-bytecode --python .venv/bin/python
.venv/ready: pyproject.toml uv.lock setup.py $(shell find share -type f) | .venv/bin/uv
	@echo "installing what fairlead needs, and compiling its kernels$(if $(ZIG), by ziglang from PyPI: there is no C compiler here)"
	@find src -name '*.cpython-*.so' -delete  # of an earlier version: it would be imported first
	@$(SYNC) --no-dev
	@test -z "$(ZIG)" || { cache=$$(.venv/bin/uv cache dir); echo "ziglang keeps $$(du -sh build/zig | cut -f1) in build/zig" \
		"and $$(du -shc "$$cache"/archive-v0/*/ziglang | tail -n 1 | cut -f1) in $$cache, which .venv/bin/uv cache clean ziglang removes"; }
	@cp -R share .venv/  # the manual page, completions and mappings of columns, which an installation that can be edited leaves out
	@test -e .venv/kernels || touch .venv/kernels  # else what changed since is still to be compiled
	@touch $@

.venv/tools: .venv/ready
	@echo "installing what tests and documentation need"
	@$(SYNC)
	@touch $@

# What is imported is what was built: where a kernel is newer, or what it knows of Python, it is compiled in place.
KERNELS := $(shell find src/fairlead -path '*/kernel/*' -name '*.p[xy]*') $(addprefix src/fairlead/, outcomes.py policies/codes.py scheduler/statuses.py scheduler/tables.py)
.venv/kernels: .venv/ready $(KERNELS)
	@test -z "$$(find $(KERNELS) -newer $@)" || { echo "compiling what has changed of the kernels"; \
		$(if $(ZIG),$(SYNC) --no-dev --reinstall-package fairlead,$(SYNC) --no-dev --group kernels && $(RUN)python setup.py --quiet build_ext --inplace); }
	@touch $@

kernels: .venv/kernels  ## compile what has changed of the kernels

demo: .venv/kernels  ## the paper's example with real processes, a SIGKILL in the middle
	$(RUN)python examples/demo.py

test: lint  ## formatter, linter and all the tests, of which one is the type checker
	$(RUN)pytest -n auto --timeout 300

lint: .venv/tools .venv/kernels
	$(RUN)ruff format --check .
	$(RUN)ruff check .

check: lint  ## formatter, linter and type checker alone
	$(RUN)mypy

messages: .venv/tools  ## the descriptors and types of Mesos' messages, from their .proto files
	cd src && ../.venv/bin/uv run --quiet --no-project --with grpcio-tools==1.76.0 python -m grpc_tools.protoc -I. --pyi_out=. \
		--descriptor_set_out=fairlead/service/mesos/messages/descriptors.binpb fairlead/service/mesos/messages/*.proto
	# Not declared: the file's descriptor, which is not there; the numbers of fields and entries of maps, which nothing reads; the
	# names of fields and of values a second time.
	sed -i -e '/: _ClassVar\[/d' -e 's/ClassVar as _ClassVar, //' -e '/^ *__slots__ = /d' -e '/EnumTypeWrapper):$$/s/$$/ .../' \
		-e '/ class .*Entry(_message.Message):$$/,/ def /d' -e '/^DESCRIPTOR: /,+1d' -e '/ descriptor as /d' \
		src/fairlead/service/mesos/messages/*_pb2.pyi

bench: .venv/tools .venv/kernels  ## speeds, as ratios against a named peer in the same run
	$(RUN)python -m bench

bench-start:  ## what it costs to start from nothing: a fresh clone, empty caches, a wheel; some minutes, and PyPI
	@"$(PYTHON)" -m bench.start

test-page: .venv/tools .venv/kernels  ## the page in a real browser (CHROMIUM, or one on the PATH), and its pictures in docs/
	$(SYNC) --group page
	FAIRLEAD_PAGE=1 $(RUN)pytest tests/test_page_in_browser.py

docs: .venv/tools .venv/kernels  ## the documentation as a site, in site/
	$(RUN)python docs/site.py
	$(RUN)python docs/share.py
	$(RUN)zensical build --strict --config-file mkdocs.yml

recording: .venv/kernels  ## the session that README.md shows, recorded again: docs/recording.svg
	$(RUN)python docs/recording.py

fuzz: .venv/tools .venv/kernels  ## the long version of the random tests (FAIRLEAD_FUZZ histories; default 100000)
	FAIRLEAD_CHECK=1 FAIRLEAD_FUZZ=$${FAIRLEAD_FUZZ:-100000} $(RUN)pytest -n auto --timeout 0 -m "not hypothesis" \
		$(addprefix tests/test_, $(addsuffix .py, claims crash fading_policies replay same_decisions schema))
	FAIRLEAD_CHECK=1 FAIRLEAD_FUZZ=$${FAIRLEAD_FUZZ:-100000} $(RUN)pytest -n auto --timeout 0 -m hypothesis

check-memory: .venv/tools .venv/kernels  ## the tests of the kernels, and 2,000 histories, with each access to memory checked; needs GCC
	PYTHONPATH=. $(RUN)python tests/checked_kernels.py

torture: .venv/tools .venv/kernels  ## ten minutes of everything that a machine can do to a scheduler; its record is docs/reliability.json
	$(RUN)python tests/torture.py $${FAIRLEAD_SECONDS:-600}

demo-machines: .venv/kernels  ## the paper's example over three machines that joined, one of which is cut off in the middle
	$(RUN)python examples/demo_machines.py

demo-ray: .venv/tools .venv/kernels  ## the paper's example over two Ray nodes, one of which is killed in the middle
	PYTHONPATH=. $(RUN)python examples/demo_ray.py

ray-torture: .venv/tools .venv/kernels  ## what happens to machines of a Ray cluster, once each: some minutes
	PYTHONPATH=. $(RUN)python tests/ray_torture.py
	FAIRLEAD_LONG=1 $(RUN)pytest tests/test_ray.py tests/test_ray_programs.py tests/test_ray_authentication.py

soak: .venv/tools .venv/kernels  ## an hour of mixed load; its picture is soak.html
	$(RUN)python -m bench.soak $${FAIRLEAD_SECONDS:-3600}

clean:  ## remove what was built
	rm -rf site .cache .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
