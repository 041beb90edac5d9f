# Cellblock's set-up. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

export PATH := $(PATH):/usr/local/go/bin
# Third-party packages compile their libseccomp half under this tag only. The same flags
# for build, vet and test: what one has compiled the others need not.
export GOFLAGS := -tags=seccomp
PEERS := bubblewrap crun runc firejail python3-ipykernel python3-jupyter-client
PACKAGES := gcc libc6-dev libseccomp-dev pkg-config python3 python3-numpy python3-matplotlib python3-pytest git
WANTED = $(PACKAGES)

.PHONY: help deps build cross run check lint test test-linux cpython soak load bench golden fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is missing (apt, as root or through sudo), or say what that is
	@missing=(); for p in $(WANTED); do dpkg -s $$p >/dev/null 2>&1 || missing+=($$p); done; \
	command -v go >/dev/null || { echo "go: not found: install Go 1.26 or later and put it on PATH" >&2; exit 1; }; \
	[ $${#missing[@]} -eq 0 ] && exit 0; \
	if [ $$(id -u) -eq 0 ]; then run=; elif sudo -n true 2>/dev/null; then run=sudo; \
	else echo "missing packages: $${missing[*]}" >&2; echo "as root: apt-get install $${missing[*]}" >&2; exit 1; fi; \
	$$run apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$run apt-get install -y -qq "$${missing[@]}"

build: deps ## bin/cellblock with the stage inside it, bin/cellblock-rego and -serve
	@set -e; arch=$$(go env GOARCH); \
	CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o jail/stagebin/stage-$$arch ./cmd/cellblock-stage; \
	go build -o bin/ ./cmd/cellblock ./cmd/cellblock-rego ./cmd/cellblock-serve

cross: WANTED = $(PACKAGES) gcc-aarch64-linux-gnu libc6-dev-arm64-cross
cross: deps ## bin/arm64: the same for arm64, which links no libseccomp and takes the built-in profiles alone
	CGO_ENABLED=0 GOFLAGS= GOARCH=arm64 go build -trimpath -ldflags='-s -w' -o jail/stagebin/stage-arm64 ./cmd/cellblock-stage
	CGO_ENABLED=1 GOFLAGS= GOARCH=arm64 CC=aarch64-linux-gnu-gcc go vet ./...
	CGO_ENABLED=1 GOFLAGS= GOARCH=arm64 CC=aarch64-linux-gnu-gcc go build -o bin/arm64/ ./cmd/cellblock ./cmd/cellblock-rego ./cmd/cellblock-serve

run: build ## build, and run a real session in a jail
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; PATH=/usr/bin:$$PATH; \
	echo '== state stays from cell to cell'; \
	bin/cellblock run --session "$$dir" -c 'x = 6' -c 'print("x * 7 =", x * 7)'; \
	echo '== a figure'; \
	bin/cellblock run --json --session "$$dir" -c 'import matplotlib.pyplot as p; p.plot([1, 2]);' | \
	  python3 -c 'import json, sys; r = json.loads(sys.stdin.readline()); i = [c for c in r["content"] if c["type"] == "image"]; print("PNG,", len(i[0]["data"]) * 3 // 4, "bytes") if i else print(r["details"]["error"]["evalue"])'; \
	echo '== report: a write to /etc is done with your rights, and reported'; \
	bin/cellblock run --session "$$dir" --mode report -c 'try: open("/etc/debian_version", "r+").close()'$$'\n''except OSError as e: print(e)'; \
	echo '== enforce: Linux refuses it'; \
	bin/cellblock run --session "$$dir" --mode enforce -c 'try: open("/etc/debian_version", "r+").close()'$$'\n''except OSError as e: print(e)'

check: ## gofmt and go vet, with libseccomp and without
	@out=$$(gofmt -l .) && [ -z "$$out" ] || { echo "not gofmt'd:"; echo "$$out"; exit 1; }
	go vet ./...
	GOFLAGS= go vet ./...

# Not a part of test and CI: the first run downloads the linter and builds it, which takes
# minutes. Pinned, so that a new release does not turn old code red.
LINTER := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
lint: build ## .golangci.yml's bans, each with its reason (downloads the linter; not in test)
	GOFLAGS= go run $(LINTER) run ./...

# What TESTS names; the packages whose tests ask Linux for nothing are the same for each user.
TESTS := ./...
test: build check ## everything that CI checks
	go test -count=1 -timeout=20m $(TESTS)

test-linux: WANTED = $(PACKAGES) qemu-system-x86 busybox-static e2fsprogs kmod cpio xz-utils util-linux
test-linux: build ## what Debian's kernels enforce: each is booted (qemu; downloads them), a table
	integration/linux/run

cpython: build ## CPython's own regression tests, inside the jail and outside, as a table
	JAIL_TEST_REQUIRE=testsuite go test -count=1 -v -timeout=90m -run '^TestCPython$$' ./integration -regrtest

soak: build ## SESSIONS (10000) sessions with random faults, for MINUTES (25) at most: what is left of them
	CELLBLOCK_SOAK_SESSIONS=$(or $(SESSIONS),10000) CELLBLOCK_SOAK_MINUTES=$(or $(MINUTES),25) CELLBLOCK_SOAK_AT_ONCE=8 go test -count=1 -v -timeout=0 -run '^TestSoak$$' ./integration

load: build ## SESSIONS (100) at once through the server for MINUTES (10), one worker in a hundred calls killed
	CELLBLOCK_SERVE_SESSIONS=$(or $(SESSIONS),100) CELLBLOCK_SERVE_LOAD=$(or $(MINUTES),10)m go test -count=1 -v -timeout=0 -run '^TestServeUnderLoad$$' ./integration

bench: WANTED = $(PACKAGES) $(PEERS)
bench: build ## measure sessions beside other sandboxes (installs them): a table, and bench.json
	PATH=/usr/bin:$$PATH bin/cellblock bench --idle $(or $(IDLE),1000) --out bench.json

golden: deps ## the built-in seccomp programs, compiled afresh
	go run ./jail/seccomp/gen

FUZZTIME ?= 20s
fuzz: deps ## each fuzz target for FUZZTIME, and the wire with a live launcher
	@set -e; for dir in $$(grep -rlE '^func Fuzz' --include=*_test.go . | xargs -n1 dirname | sort -u); do \
	for t in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | sed 's/func //'); do \
	echo "$$dir $$t"; go test -run='^$$' -fuzz="^$$t$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=10x $$dir; done; done
	CELLBLOCK_SOAK=$(FUZZTIME) go test -timeout 0 -run WorkersThatSpeakTheWireAtRandom ./kernel

clean: ## what build made
	rm -rf bin jail/stagebin/stage-*
