# Cellblock's set-up. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

export PATH := $(PATH):/usr/local/go/bin
# Third-party packages compile their libseccomp half under this tag only.
export GOFLAGS := -tags=seccomp
PACKAGES := gcc libc6-dev libseccomp-dev pkg-config python3 python3-numpy python3-matplotlib git

.PHONY: help deps build run check lint test cpython golden fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is missing (apt, as root or through sudo), or say what that is
	@missing=(); for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing+=($$p); done; \
	command -v go >/dev/null || { echo "go: not found: install Go 1.26 or later and put it on PATH" >&2; exit 1; }; \
	[ $${#missing[@]} -eq 0 ] && exit 0; \
	if [ $$(id -u) -eq 0 ]; then run=; elif sudo -n true 2>/dev/null; then run=sudo; \
	else echo "missing packages: $${missing[*]}" >&2; echo "as root: apt-get install $${missing[*]}" >&2; exit 1; fi; \
	$$run apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$run apt-get install -y -qq "$${missing[@]}"

build: deps ## bin/cellblock with the stage inside it, and bin/cellblock-rego
	@set -e; arch=$$(go env GOARCH); \
	CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o jail/stagebin/stage-$$arch ./cmd/cellblock-stage; \
	go build -trimpath -o bin/ ./cmd/cellblock ./cmd/cellblock-rego

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

test: build check ## everything that CI checks
	go test -count=1 ./...

cpython: build ## CPython's own regression tests, inside the jail and outside, as a table
	JAIL_TEST_REQUIRE=testsuite go test -count=1 -v -timeout=90m -run '^TestCPython$$' ./integration -regrtest

golden: deps ## the built-in seccomp programs, compiled afresh
	go run ./jail/seccomp/gen

FUZZTIME ?= 20s
fuzz: deps ## each fuzz target for FUZZTIME
	@set -e; for dir in $$(grep -rlE '^func Fuzz' --include=*_test.go . | xargs -n1 dirname | sort -u); do \
	for t in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | sed 's/func //'); do \
	echo "$$dir $$t"; go test -run='^$$' -fuzz="^$$t$$" -fuzztime=$(FUZZTIME) $$dir; done; done

clean: ## what build made
	rm -rf bin jail/stagebin/stage-*
