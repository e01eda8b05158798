# Everything that people and CI do here. Each target does its own set-up and
# says what it does.

.DEFAULT_GOAL := help
.PHONY: help build demo drills test test-pg fuzz soak bench outage lint format generate clean

# The linters of this version, built by the Go toolchain into bin.
LINT_VERSION := v2.15.0
LINT := bin/golangci-lint-$(LINT_VERSION)

# How long soak lets things go wrong, and what decides which; 0 draws a seed.
SOAK ?= 10m
SEED ?= 0

# How long the queue of outage is dead.
DOWN ?= 1m

# The major version of Postgres for test-pg, soak, demo, drills, bench and outage; any is
# whatever the machine has.
PG ?= any

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## the program, as bin/outbox-relay
	CGO_ENABLED=0 go build -trimpath -o bin/outbox-relay ./cmd/outbox-relay

demo: build ## the main job, with a throwaway Postgres and a local queue, in a minute
	@folder=$$(hack/postgres $(PG)) && OUTBOX_PG_BIN=$$folder bin/outbox-relay demo

drills: ## what the examples withstand, with a throwaway Postgres and a local queue
	@PG=$(PG) hack/drills

test: ## all tests, with the race detector, in random order, against a real Postgres
	@hack/test

test-pg: ## the same on one version of Postgres: make test-pg PG=18
	@PG=$(PG) hack/test

fuzz: ## each fuzz test for a short time: make fuzz FUZZTIME=1m
	@hack/fuzz $(FUZZTIME)

soak: ## everything goes wrong at once, for ten minutes: make soak SOAK=2h SEED=7
	@folder=$$(hack/postgres $(PG)) && OUTBOX_PG_BIN=$$folder go test ./internal/judge -run TestSoak -count=1 -v \
		-timeout=0 -soak.time=$(SOAK) -soak.seed=$(SEED) -soak.logs=$(CURDIR)/build/soak

bench: build ## what this machine can do, side by side with the bare parts
	@folder=$$(hack/postgres $(PG)) && OUTBOX_PG_BIN=$$folder bin/outbox-relay bench

# The payload makes a minute write more WAL than the slot may keep. The drain of a
# minute takes ten seconds, so that one second of a busy machine is a tenth of it:
# what is asked for is less than the drain does (docs/performance.md), and more
# than one by single rows or lanes reaches.
outage: build ## a queue that is dead for a minute, against the budgets: make outage DOWN=10m
	@folder=$$(hack/postgres $(PG)) && OUTBOX_PG_BIN=$$folder bin/outbox-relay bench outage --down $(DOWN) --steady 10s \
		--payload 800 --burst 40000 --least-drain 0.3 --strict

lint: $(LINT) ## the linters of .golangci.yml
	$(LINT) run

format: $(LINT) ## write the files as the linters want them
	$(LINT) fmt

generate: ## write the files that are generated from the code
	go generate ./...

clean: ## remove what was built
	rm -rf bin build dist

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION), once; it takes a minute or two" >&2
	GOBIN=$(CURDIR)/$@.d hack/again go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $@.d/golangci-lint $@ && rmdir $@.d
