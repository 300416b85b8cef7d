# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# The same settings for every build, so that all builds share Go's build cache. No C, and no toolchain but the installed one.
export CGO_ENABLED := 0
export GOTOOLCHAIN := local

# The generation of machine-controller-manager in the local landscape and the demo: 0.61 or 0.62.
MCM ?= 0.62
# Optional: a checkout of machine-controller-manager to build instead of that generation's module.
MCM_SOURCE ?=
# Optional: the kind of hosts of the landscape's machines: baremetalhost, ironcore-0.3 or ironcore-0.7. Without it they have none.
HOSTS ?=
# The story of the demo: preservation or maintenance. A third one, pictures, is for `make pictures`.
STORY ?= preservation

export MCM
export MCM_SOURCE := $(abspath $(MCM_SOURCE))

# How many histories the simulation runs.
RUNS ?= 100

# The packages that decide. `mutants` breaks them.
DECIDES := ./pkg/preservation ./pkg/maintenance ./pkg/remediation ./pkg/drain ./pkg/drain/update ./pkg/preservation/failuredrain ./pkg/share ./pkg/facts ./pkg/failure ./pkg/hours ./pkg/quarantine ./pkg/evidence/retention

# For each fuzz test. The default time for minimizing interesting inputs would use up all of it.
FUZZ_TIME ?= 1m
# The limit for one test package. The e2e scenarios wait for real timeouts of real components.
UNIT_TIMEOUT ?= 40m
INTEGRATION_TIMEOUT ?= 30m
E2E_TIMEOUT ?= 60m
LONG_TIMEOUT ?= 3h
# How long tests wait for what must come. Nobody waits so long but on a busy machine.
export GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT ?= 30s

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Go uses all cores already.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

LANDSCAPE := go run ./test/landscape/cmd/landscape
# go test that prints once more at the end what failed, which is lost among what the landscapes print. A test that waits for its turn counts
# as running: if there are more tests than -parallel allows, they may wait for each other for ever.
E2E := go tool -modfile=hack/tools/commands/go.mod gotestsum --format standard-verbose -- -count=1 -p 1 -parallel 16 -v

##@ See it run

.PHONY: demo
demo: ## Show live what happens to machines (STORY=preservation|maintenance, MCM=0.61|0.62, DEMO_EXIT=1: end automatically)
	@echo "Building the demo..."
	@MCM=$(MCM) STORY=$(STORY) go run ./test/demo

.PHONY: landscape-up
landscape-up: ## Start a shoot's control plane with simulated machines (MCM=0.61|0.62, MCM_SOURCE=dir, GARDEN=1, HOSTS=baremetalhost|ironcore-0.3|ironcore-0.7)
	@$(LANDSCAPE) up --mcm $(MCM) $(if $(GARDEN),--garden) $(if $(HOSTS),--hosts $(HOSTS))

.PHONY: landscape-down
landscape-down: ## Stop the landscape
	@$(LANDSCAPE) down

##@ Test

.PHONY: test
test: ## Run the unit tests, the simulation and the integration tests side by side, then the e2e tests
	@$(LANDSCAPE) assets >/dev/null
	@go build $$(go list -f '{{ if and .GoFiles (ne .Name "main") }}{{ .ImportPath }}{{ end }}' ./...) # not twice side by side; nobody needs the commands
	@# Integration tests mostly wait. The others are nice, so that those need not wait for them as well.
	@nice $(MAKE) test-unit & unit=$$!; nice $(MAKE) test-simulation & simulation=$$!; failed=; \
	$(MAKE) test-integration || failed=1; \
	wait "$$unit" || failed=1; \
	wait "$$simulation" || failed=1; \
	[[ -z "$$failed" ]]
	@$(MAKE) test-e2e

.PHONY: test-unit
test-unit: ## Run the tests that need no other process
	@GOFLAGS=-tags=remove_all_sd go tool -modfile=hack/tools/promtool/go.mod -n promtool >/dev/null # its first build takes minutes
	@packages="$$(go list -f '{{ if or .TestGoFiles .XTestGoFiles }}{{ .ImportPath }}{{ end }}' ./... \
	  | grep -vE '/test/(integration(/|$$)|e2e(/|$$)|simulation$$)')"; \
	go test -timeout $(UNIT_TIMEOUT) ./pkg/sidecar/preservation $$packages # the longest first
	@cd test/nodelogs && go test -timeout $(UNIT_TIMEOUT) ./... # a separate module, because it needs the kubelet
	@cd hack/tools/docs && go test -timeout $(UNIT_TIMEOUT) ./... # a separate module, because it needs a Markdown parser

.PHONY: test-simulation
test-simulation: ## Run the known histories, and some random ones, in the simulated world
	@go test -timeout $(UNIT_TIMEOUT) ./test/simulation

.PHONY: test-integration
test-integration: ## Run the tests against a real kube-apiserver
	@KUBEBUILDER_ASSETS="$$($(LANDSCAPE) assets)"; export KUBEBUILDER_ASSETS; \
	go test -p 4 -timeout $(INTEGRATION_TIMEOUT) ./test/integration/share ./test/integration/... # they mostly wait, the first package longest

.PHONY: test-e2e
test-e2e: ## Run the scenarios on the local landscape, with both generations of machine-controller-manager
	@$(LANDSCAPE) assets >/dev/null
	@for tool in helm gojq; do go tool -modfile=hack/tools/commands/go.mod -n "$$tool" >/dev/null; done # not beside the landscapes
	@$(E2E) -timeout $(E2E_TIMEOUT) -skip '^TestLong' ./test/e2e/...

.PHONY: test-long
test-long: ## Run the e2e tests that take too long for `test`: the rest of MCM 0.61, switches, upgrades, long outages
	@$(LANDSCAPE) assets >/dev/null
	@$(E2E) -timeout $(LONG_TIMEOUT) -run '^TestLong' ./test/e2e/... -landscapes 2

.PHONY: fuzz
fuzz: ## Run all fuzz tests with arbitrary input (FUZZ_TIME=1m for each)
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' cmd pkg | xargs -n 1 dirname | sort -u); do \
	  names="$$(go test -list '^Fuzz' "./$$dir" | grep '^Fuzz')"; \
	  for name in $$names; do \
	    echo "> $$dir $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 1s "./$$dir"; \
	  done; \
	done

.PHONY: mutants
mutants: ## Break the code that decides at random places, and print the breaks that its tests miss (MUTANTS=60, SEED=n)
	@go run ./hack/mutants -n $(or $(MUTANTS),60) -seed $(or $(SEED),1) $(DECIDES)

.PHONY: chaos
chaos: ## Run random actions and faults on the landscape, and check the rules (MCM=0.61|0.62, CHAOS_MINUTES=10, SEED=n)
	@CHAOS_MINUTES=$(CHAOS_MINUTES) SEED=$(SEED) go run ./test/chaos

.PHONY: simulate
simulate: ## Run random histories in a simulated world, a day in a second, and check the rules (MCM=0.61|0.62, SEED=n, RUNS=100, ALONE=1: without the sidecar)
	@case '$(MCM)' in 0.61|0.62) ;; *) echo "MCM=$(MCM) cannot be simulated, 0.61 and 0.62 can" >&2; exit 1 ;; esac
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && \
	$(if $(filter 0.61,$(MCM)),go run ./test/simulation/cmd/mcm061 "$$dir" &&) \
	go test -count=1 -v -timeout 0 -run '^Test(Known.*|Alone|Histories)$$' $(if $(filter 0.61,$(MCM)),-vet=off -tags mcm061 -overlay "$$dir/overlay.json") ./test/simulation \
	  -rapid.shrinktime=2m -rapid.checks=$(RUNS) -rapid.seed=$(or $(SEED),0) $(if $(ALONE),-alone) # 0: a different seed each time

.PHONY: defects
defects: ## Put back known defects, one at a time; the simulation must find each (MCM=0.61|0.62, SEED=n, RUNS=100, ONLY=regexp)
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && \
	$(if $(filter 0.61,$(MCM)),go run ./test/simulation/cmd/mcm061 "$$dir" &&) \
	go run ./test/simulation/cmd/defects -n $(RUNS) -seed $(or $(SEED),1) -only '$(ONLY)' $(if $(filter 0.61,$(MCM)),-tags mcm061 -overlay "$$dir/overlay.json")

.PHONY: conformance
conformance: ## Check the rules on any shoot (SEED_KUBECONFIG=, SHOOT_KUBECONFIG=, NAMESPACE=shoot--x--y; optional: POOLS=a,b REPORT=file)
	@go test -count=1 -v -timeout 0 -run '^TestConformance$$' ./test/conformance \
	  -seed-kubeconfig='$(abspath $(SEED_KUBECONFIG))' -shoot-kubeconfig='$(abspath $(SHOOT_KUBECONFIG))' \
	  -namespace='$(NAMESPACE)' -pools='$(POOLS)' -report='$(abspath $(REPORT))'

.PHONY: bench
bench: ## Measure the sidecar for 1,000 machines, and compare it with machine-controller-manager's own preservation
	@go run ./test/bench

.PHONY: bench-seed
bench-seed: ## Measure the extension on a seed with 500 shoots (BENCH_SHOOTS=10 for fewer)
	@go run ./test/bench/seed

##@ Develop

.PHONY: build
build: ## Build all binaries into bin/
	@ldflags="$$(hack/ldflags.sh)"; \
	go build -trimpath -ldflags "$$ldflags" -o bin/ ./cmd/...

.PHONY: sbom
sbom: build ## Write the modules of each binary into bin/, in CycloneDX format
	@for binary in $$(go list -f '{{ .Target }}' ./cmd/... | xargs -n 1 basename); do \
	  hack/sbom.sh "bin/$$binary" "bin/$$binary.cdx.json"; \
	done

.PHONY: plugin
plugin: ## Build kubectl preserve for all platforms into bin/, as archives for krew
	@for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
	  hack/plugin-archive.sh "$${platform%/*}" "$${platform#*/}" bin; \
	done

.PHONY: generate
generate: ## Generate code, CRDs, the API reference, the table of the rules, and what depends on the version
	@hack/update-codegen.sh

.PHONY: format
format: ## Format all Go files
	@hack/golangci-lint.sh fmt

.PHONY: pictures
pictures: ## Draw the dashboards in the docs again, from a run of the landscape (takes minutes)
	@record="$$(mktemp -d)"; trap 'rm -rf "$$record"' EXIT; \
	DEMO_EXIT=1 STORY=pictures RECORD="$$record" go run ./test/demo; \
	GOFLAGS=-tags=remove_all_sd go -C hack/tools/promtool run ./pictures \
	  -may-be-empty=machine-preservation/15,machine-preservation/16,machine-preservation/17,machine-preservation/18,machine-preservation/21,machine-preservation/23,machine-preservation-seed/11,machine-preservation-seed/12,machine-preservation-seed/15,machine-preservation-seed/16,machine-preservation-seed/18 "$$record" \
	  '$(CURDIR)/pkg/component/preservationcontroller/dashboards/machine-preservation.json=$(CURDIR)/docs/usage/images/dashboard.svg' \
	  '$(CURDIR)/charts/gardener-extension-machine-preservation/dashboards/machine-preservation-seed.json=$(CURDIR)/docs/operations/images/dashboard.svg'

.PHONY: terminal-pictures
terminal-pictures: ## Draw the terminals in the docs again, from a run of the demo (takes minutes)
	@hack/terminal-pictures.sh

.PHONY: check
check: check-headers check-tidy check-imports check-generate check-docs check-vet check-lint ## Check headers, go.mod files, imports, generated files, words and links; vet and lint

.PHONY: check-headers
check-headers:
	@hack/check-headers.sh

.PHONY: check-tidy
check-tidy:
	@hack/check-tidy.sh

.PHONY: check-imports
check-imports:
	@hack/check-imports.sh

.PHONY: check-generate
check-generate:
	@hack/check-generate.sh

.PHONY: check-docs
check-docs:
	@echo "> words and links"
	@go -C hack/tools/docs run . -root ../../..

.PHONY: check-vet
check-vet:
	@echo "> go vet"
	@go vet ./...
	@cd test/nodelogs && go vet ./...
	@cd hack/tools/docs && go vet ./...

.PHONY: check-lint
check-lint:
	@echo "> golangci-lint"
	@hack/golangci-lint.sh run ./...

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in the code that the binaries call (asks vuln.go.dev)
	@go tool -modfile=hack/tools/security/go.mod govulncheck ./cmd/...

# go-licenses does not recognize the MIT No Attribution licence of coder/quartz, and need not check our own.
.PHONY: licences
licences: ## List the modules in the binaries with their licences, and refuse licences that restrict distributors
	@licenses="$$(go tool -modfile=hack/tools/security/go.mod -n go-licenses)"; \
	ignored="--ignore=$$(go list -m) --ignore=github.com/coder/quartz"; \
	"$$licenses" check $$ignored --disallowed_types=forbidden,restricted,unknown ./cmd/...; \
	"$$licenses" report $$ignored ./cmd/...

.PHONY: clean
clean: ## Stop the landscape, and remove what builds and tests left in the checkout
	@if [[ -d .landscape ]]; then $(LANDSCAPE) down; fi
	@rm -rf bin .landscape
	@find . -type f \( -name '*.test' -o -name '*.out' \) -not -path './.git/*' -delete

##@ Help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
