# Everything a person does with the source tree. `make` alone lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)

# Tools are pinned, so that two machines agree on what is well-formed.
TEMPORAL      := github.com/temporalio/cli/cmd/temporal@v1.5.1
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT       := mvdan.cc/gofumpt@v0.12.0
WORKFLOWCHECK := go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.9.0

TEST_PACKAGES ?= ./...
TEST_TIMEOUT  ?= 30m# of each package's tests
TEST_FLAGS    ?=# such as -run TestPass, -count 20 or -v
FUZZ_TIME     ?= 20s# of each fuzz target
FUZZ_TARGETS  ?= .# a pattern, such as oam or FuzzUnpack
FUZZ_KEEP     ?= 0# inputs that reached new code to keep as seeds, of each target
SIMULATED_HOURS ?= 1000000# of make simulate
TIDEWAIT_FAULT_MINUTES ?= 20# of random faults of make faults
TIDEWAIT_FAULT_SEED ?= $(shell date +%s)# of the same
BOOTS ?= 500# of make boots
VULN_FLAGS ?=# --if-reachable: a database that cannot be reached is no failure

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: deps
deps: ## Install what is missing: Debian packages and the Temporal CLI
	@build/packages qemu kernel mkfs busybox postgres git cc certs
	@build/gotool $(BIN) $(TEMPORAL)

.PHONY: build
build: ## Build tidewait, tidewait-worker and the guest agent into bin/
	go build -trimpath -o $(BIN)/tidewait ./starter
	go build -trimpath -o $(BIN)/tidewait-worker ./worker
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/tidewait-guest ./internal/vm/guestagent

.PHONY: demo
demo: deps build ## Run missions for real on a stack of their own, then stop it
	$(BIN)/tidewait demo

.PHONY: dev
dev: deps build ## Start the whole stack on this machine; Ctrl-C stops it
	$(BIN)/tidewait dev

.PHONY: negctl
negctl: deps build ## Provoke what must fail, and then once more without each of the safeties
	$(BIN)/tidewait negctl
	$(BIN)/tidewait negctl --sabotage all

.PHONY: test
test: deps build ## Run all tests: end to end, then the others under the race detector, the simulations without
	@build/packages promtool chromium
	@build/test '$(TEST_PACKAGES)' -timeout $(TEST_TIMEOUT) $(TEST_FLAGS)

.PHONY: tools
tools: ## Install the pinned linters into bin/
	@build/packages shellcheck
	@build/gotool $(BIN) $(GOLANGCI_LINT)
	@build/gotool $(BIN) $(GOFUMPT)
	@build/gotool $(BIN) $(WORKFLOWCHECK)

.PHONY: lint
lint: tools ## Check style, house rules, determinism of workflows, and scripts
	golangci-lint run ./...
	workflowcheck -config workflowcheck.config.yaml ./workflows/...
	shellcheck $(shell find build -maxdepth 1 -type f) .ci/run

.PHONY: fmt
fmt: tools ## Format all Go files
	gofumpt -w .

.PHONY: fuzz
fuzz: ## Run every fuzz target that fits FUZZ_TARGETS for FUZZ_TIME, and print a table
	KEEP=$(FUZZ_KEEP) build/fuzz $(FUZZ_TIME) '$(FUZZ_TARGETS)'

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what is called; GOVULNDB names another database
	@build/gotool $(BIN) $(GOVULNCHECK)
	build/vuln $(VULN_FLAGS)

.PHONY: licences
licences: ## Write docs/licences.md: every dependency with its licence
	@page=$$(go run ./build/licences) && printf '%s\n' "$$page" > docs/licences.md

.PHONY: simulate
simulate: ## Play the order of phases for SIMULATED_HOURS, event by event
	TIDEWAIT_SIMULATED_HOURS=$(SIMULATED_HOURS) go test -count=1 -timeout $(TEST_TIMEOUT) -run '^TestSimulation' -v ./internal/capacity

.PHONY: faults
faults: deps build ## Let every fault happen at every step of both backends, then random ones for TIDEWAIT_FAULT_MINUTES
	TIDEWAIT_FAULT_MINUTES=$(TIDEWAIT_FAULT_MINUTES) TIDEWAIT_FAULT_SEED=$(TIDEWAIT_FAULT_SEED) \
		go test -count=1 -timeout 3h -v -run '^Test(FaultMatrix|FaultsOfMicroVMs|RandomFaults)$$' ./internal/e2e

.PHONY: boots
boots: deps ## Boot BOOTS microVMs one after another; none may fail
	TIDEWAIT_BOOTS=$(BOOTS) go test -count=1 -timeout 2h -run '^TestBoots$$' -v ./internal/vm/qemu

.PHONY: bench
bench: deps build ## Measure speed and memory, and print a table
	go test -run '^$$' -bench . -benchmem ./internal/...
	go run ./bench

.PHONY: e2e-wasmcloud
e2e-wasmcloud: deps build ## Deploy an application onto a real wasmCloud host; see docs/real-host.md
	build/e2e-wasmcloud

.PHONY: record-histories
record-histories: deps build ## Record the workflow histories that replay tests read
	TIDEWAIT_RECORD_HISTORIES=1 go test -count=1 -timeout $(TEST_TIMEOUT) -run '^TestRecordHistories$$' ./workflows/...

.PHONY: screenshots
screenshots: deps build ## Make the pictures of the Web UI in docs/images anew, from the running product
	@build/packages chromium
	go test -count=1 -timeout $(TEST_TIMEOUT) -run '^TestWebUI$$' ./internal/e2e -screenshots $(CURDIR)/docs/images

.PHONY: clean
clean: ## Remove what build made; installed tools and data stay
	rm -f $(BIN)/tidewait $(BIN)/tidewait-worker $(BIN)/tidewait-guest
