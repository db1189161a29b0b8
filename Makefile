# `make` alone prints what there is. Everything that is needed beside Go, scripts/install.sh installs.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

version := $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null || echo unknown)
ldflags := -s -w -X main.version=$(version)

# Without it gRPC brings a page of its traces along, and with that templates, which call methods by names that nobody
# knows beforehand: the linker has to keep every method of every type, 8 MB of them.
tags := grpcnotrace

# What the coverage of 85 % is counted over.
covered := ./naming/...,./metadata/...,./registry/...,./bridge/...
floor   := 85

# The real servers and applications that the gate uses.
servers := zookeeper dubbo istiod nacos2 nacos3

# The race detector requires cgo, and with it a C compiler; where there is none the tests run without it. It runs on one
# processor: on two it crashes itself where two goroutines of a synctest bubble receive at once from timers that are due
# (https://github.com/golang/go/issues/78156). It finds the same races, for it goes by what is ordered.
race := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && [ "$$(go env CGO_ENABLED)" = 1 ] && echo -race -cpu 1 -parallel 16)

# What is built and tested here has the versions of its own go.mod; go.work is for work by hand.
export GOWORK := off

# The modules that adapt the client to RPC frameworks.
plugins := $(patsubst %/go.mod,%,$(wildcard plugins/*/go.mod))

.PHONY: help
help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/xds-bridge
	CGO_ENABLED=0 go build -trimpath -tags $(tags) -ldflags '$(ldflags)' -o bin/xds-bridge ./cmd/xds-bridge

.PHONY: demo
demo: build ## start the bridge between an embedded mesh and an embedded registry, live; requires Go alone
	bin/xds-bridge demo || [ $$? = 130 ] # Ctrl-C is how it ends

.PHONY: run
run: build ## run the bridge with the file that CONFIG names, xds-bridge.yaml otherwise
	bin/xds-bridge run --config $(or $(CONFIG),xds-bridge.yaml)

.PHONY: check
check: format conflicts tidy lint layers unit ## format, lint, layers, race tests and stale files: what a change must pass

.PHONY: format
format: # say what is not formatted
	$$(scripts/install.sh golangci-lint) fmt --diff

.PHONY: conflicts
conflicts: # say where a merge left its markers
	! git grep -nE '^(<<<<<<<|>>>>>>>) ' -- .

.PHONY: tidy
tidy: # say which go.mod is not what its module requires
	for module in . integration integration/compose/greet integration/dubbogo integration/istiod integration/kubernetes integration/applications bench tools/release $(plugins); do scripts/module.sh $$module go mod tidy -diff; done

.PHONY: lint
lint: ## run the linters over every module
	linter="$$(scripts/install.sh golangci-lint) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml"; \
	for module in . integration integration/compose/greet integration/dubbogo integration/applications bench tools/release; do (cd $$module && $$linter ./...); done; \
	for module in $(plugins); do (cd $$module && GOWORK=$(CURDIR)/go.work $$linter ./...); done

.PHONY: layers
layers: # who imports whom
	go test -count=1 ./internal/arch

# Documents and goldens that are stale fail here too: each has a test that compares it with the code.
.PHONY: unit
unit: ## unit tests; requires Go alone, and with a C compiler finds races too
	@[ -n "$(race)" ] || echo 'unit: without the race detector: there is no C compiler (apt-get install gcc)'
	scripts/gotest.sh unit $(race) -short -timeout 10m
	for module in $(plugins); do scripts/module.sh $$module $(CURDIR)/scripts/gotest.sh $${module////-} $(race) -short -timeout 10m; done
	cd tools/release && $(CURDIR)/scripts/gotest.sh release -short -timeout 10m
	[ -z "$(race)" ] || scripts/module.sh plugins/dubbogo $(CURDIR)/scripts/gotest.sh plugins-dubbogo-programs -short -timeout 10m # dubbo-go itself has races

.PHONY: test
test: ## the gate: unit tests, and one whole story for each direction and registry against real servers
	scripts/install.sh check
	for module in . integration; do go vet -C $$module -tags soak ./...; done
	$(MAKE) --no-print-directory unit stories

.PHONY: test-all
test-all: ## every test against every real server, and coverage
	scripts/install.sh check
	$(MAKE) --no-print-directory unit covered rehearsal integration

.PHONY: covered
covered: # every unit test, with what the gate leaves out, and what is covered by them
	scripts/gotest.sh covered -shuffle=on -timeout 30m -coverprofile=coverage.out -coverpkg=$(covered)
	scripts/coverage.sh coverage.out $(floor)

.PHONY: release
release: ## prepare the release VERSION, such as v0.1.0, in dist: tags, changelog, modules, binaries, SBOMs, checksums; publishes nothing
	go run -C tools/release . -version '$(VERSION)'

.PHONY: rehearsal
rehearsal: ## play a release: applications outside the repository fetch each plugin by its version, and call through it
	cd tools/release && $(CURDIR)/scripts/gotest.sh rehearsal -timeout 40m -run FreshApplication

# Tests of real servers mostly wait, many of them for what must not happen: many at a time share the processors well.
# A Nacos of each version is started once, while they are built, and shared by those that neither kill nor freeze it.
run_integration = go build -C integration -o $(CURDIR)/bin/servers ./servers && cd integration && XDS_BRIDGE_BINARY=$(CURDIR)/bin/xds-bridge RERUN=1 \
  $(CURDIR)/bin/servers -test.short $(CURDIR)/scripts/gotest.sh

.PHONY: stories
stories: build # of the tests of integration what the gate holds
	for server in $(servers); do scripts/install.sh $$server >/dev/null; done
	$(run_integration) stories -short -count=1 -timeout 20m -p 4 -parallel 4

.PHONY: integration
integration: build ## tests of bin/xds-bridge against the real istiod, ZooKeeper, Nacos, Kubernetes API, Java Dubbo and dubbo-go
	for server in $(servers) dubbogo applications spring kubernetes promtool; do scripts/install.sh $$server >/dev/null; done
	$(run_integration) integration -count=1 -timeout 60m -p 4 -parallel 4

.PHONY: plugins-applications
plugins-applications: build ## the plugins, and the bridge's formats, with applications that have the frameworks' own registries
	for server in zookeeper nacos2 nacos3 istiod applications; do scripts/install.sh $$server >/dev/null; done
	cd integration/plugins && XDS_BRIDGE_BINARY=$(CURDIR)/bin/xds-bridge $(CURDIR)/scripts/gotest.sh plugins-applications -count=1 -timeout 60m -parallel 4 -run Registries

.PHONY: soak
soak: build ## random schedules for SEEDS seeds, long runs of SOAK, then mutants; takes hours
	for server in zookeeper istiod nacos3; do scripts/install.sh $$server >/dev/null; done
	XDS_BRIDGE_SEEDS=$(or $(SEEDS),300) go test -tags soak $(race) -count=1 -timeout 60m ./internal/simulation
	go test -tags soak -count=1 -timeout 60m -run MutantsAreFound ./bridge ./bridge/guard
	cd integration && XDS_BRIDGE_BINARY=$(CURDIR)/bin/xds-bridge XDS_BRIDGE_SOAK=$(or $(SOAK),60s) \
	  go test -tags soak -count=1 -v -timeout 0 -run '^TestLongRun$$' ./faults
	cd integration && XDS_BRIDGE_BINARY=$(CURDIR)/bin/xds-bridge XDS_BRIDGE_INSTANCES=30000 XDS_BRIDGE_ROUNDS=100 \
	  go test -tags soak -count=1 -v -timeout 90m -run '^(TestSoak|TestRounds)$$' ./faults
	$(MAKE) --no-print-directory mutants

.PHONY: compose
compose: build ## build what docker-compose.yml makes its images of
	CGO_ENABLED=0 go build -C integration/compose/greet -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/greet .
	dubbo=$$(scripts/install.sh dubbo) && rm -rf bin/dubbo && cp -r "$$dubbo" bin/dubbo

.PHONY: compose-test
compose-test: compose ## docker-compose.yml, all of it: calls in both directions, a killed registry, a cut network
	scripts/compose-test.sh

.PHONY: bench
bench: ## benchmarks, as a table of ratios to a raw writer in the same run
	$(MAKE) --no-print-directory -C bench

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each, 10s otherwise
	scripts/fuzz.sh $(or $(FUZZTIME),10s)

.PHONY: mutants
mutants: ## changes to the code that no test notices, in PACKAGE or in those of tools/mutants; takes hours
	scripts/mutants.sh $(PACKAGE)

.PHONY: golden
golden: ## rewrite golden files and generated documents from the code
	UPDATE_GOLDEN=1 go test -count=1 ./...

.PHONY: clean
clean: ## remove what was built here; the cache of scripts/install.sh stays
	rm -rf bin dist coverage.out
