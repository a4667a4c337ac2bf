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
BENCHSTAT     := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

TEST_PACKAGES ?= ./...
TEST_TIMEOUT  ?= 30m# of each package's tests
TEST_FLAGS    ?=# such as -run TestPass, -count 20 or -v
FUZZ_TIME     ?= 20s# of each fuzz target
FUZZ_TARGETS  ?= .# a pattern, such as oam or FuzzUnpack
FUZZ_KEEP     ?= 0# inputs that reached new code to keep as seeds, of each target
SIMULATED_HOURS ?= 1000000# of make simulate
TIDEWAIT_FAULT_MINUTES ?= 20# of random faults of make faults
TIDEWAIT_FAULT_SEED ?= $(shell date +%s)# of the same
TIDEWAIT_FAULT_ROUND ?=# to begin with, of the rounds under load
BOOTS ?= 500# of make boots
VULN_FLAGS ?=# --if-reachable: a database that cannot be reached is no failure
BENCH_OUT ?= $(CURDIR)/.data/bench.txt# where make bench writes its figures
BENCH_BASELINE ?= $(CURDIR)/bench/baseline.txt# what make bench-compare compares them with
PLACEMENTS ?= 1000000# operations of make placements
PLACEMENT_MINUTES ?= 0# after which it stops all the same; 0: never
PLACEMENT_SEED ?= $(shell date +%s)# of the same
WAKES ?= 10000# of the application of make wakes

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
	shellcheck $(shell find build -maxdepth 1 -type f) deploy/container/packages .ci/run

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
	$(MAKE) --no-print-directory chaos

.PHONY: chaos
chaos: deps build ## Let random faults happen under a load of missions and applications for TIDEWAIT_FAULT_MINUTES
	TIDEWAIT_FAULT_MINUTES=$(TIDEWAIT_FAULT_MINUTES) TIDEWAIT_FAULT_SEED=$(TIDEWAIT_FAULT_SEED) TIDEWAIT_FAULT_ROUND=$(TIDEWAIT_FAULT_ROUND) \
		go test -count=1 -timeout 3h -v -run '^TestChaos$$' ./internal/e2e

.PHONY: placements
placements: deps ## Place, refuse and release PLACEMENTS times at random while nodes are lost and connections break
	TIDEWAIT_PLACEMENTS=$(PLACEMENTS) TIDEWAIT_PLACEMENT_MINUTES=$(PLACEMENT_MINUTES) TIDEWAIT_PLACEMENT_SEED=$(PLACEMENT_SEED) \
		go test -count=1 -timeout 6h -v -run '^TestPlacements$$' ./internal/store

.PHONY: wakes
wakes: deps ## Wake one application WAKES times, across a continue-as-new for every hundred
	TIDEWAIT_WAKES=$(WAKES) go test -count=1 -timeout 2h -v -run '^TestApplicationLivesLong$$' ./workflows

.PHONY: boots
boots: deps ## Boot BOOTS microVMs one after another; none may fail
	TIDEWAIT_BOOTS=$(BOOTS) go test -count=1 -timeout 2h -run '^TestBoots$$' -v ./internal/vm/qemu

# Pure code, whose speed is most of what the sections of bench measure.
BENCH_PURE := ./internal/capacity ./internal/scaler ./internal/oam ./internal/secret/redact ./internal/vm/segment

.PHONY: bench
bench: deps build ## Measure every figure beside its reference, in a quarter of an hour, into BENCH_OUT
	@mkdir -p $(dir $(BENCH_OUT)) && rm -f $(BENCH_OUT)
	go run ./bench -short -save $(BENCH_OUT)
	@# Round by round, so that what else the machine does touches all of them.
	for round in 1 2 3 4 5; do go test -run '^$$' -bench . -benchmem -benchtime 50ms -count 1 $(BENCH_PURE) | tee -a $(BENCH_OUT); done
	@echo 'make bench-compare says what of this differs from $(BENCH_BASELINE)'

.PHONY: bench-compare
bench-compare: ## Say which figures of BENCH_OUT differ from BENCH_BASELINE, and which differences are noise
	@build/gotool $(BIN) $(BENCHSTAT)
	@go run ./bench compare -benchstat $(BIN)/benchstat $(BENCH_BASELINE) $(BENCH_OUT)

.PHONY: bench-long
bench-long: deps build ## The same with all repetitions, all micro-benchmarks, a wait of two hours, and growth
	go test -run '^$$' -bench . -benchmem -timeout 1h ./internal/...
	go run ./bench -tries 720
	go run ./bench growth

.PHONY: bench-growth
bench-growth: deps build ## Measure how the figures grow, with exponents
	go run ./bench growth

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
