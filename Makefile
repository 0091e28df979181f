# hopwise: `make demo` runs a simulated network, `make test` runs all checks. Both install missing requirements.

.PHONY: all demo build lab bench packages ui test check fuzz figures fmt docs clean help

help:            ## list the targets
	@sed -n 's/^\([a-z]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET)/release/hopwise
# All programs are named in each build of one, so that the crates that they share are built once, with the same features.
RELEASE := cargo build --release --locked -p hopwise -p hopwise-lab -p hopwise-bench --bin

all: build

# Built as for the tests: a third of the time of an optimized build, and shared with `make test`.
demo: ui         ## a simulated fabric, a real collector, the web page on http://127.0.0.1:8080
	@scripts/setup build
	@[ -e $(TARGET)/gate/hopwise ] || echo "The first build takes up to ten minutes on two cores. After it, the address of the pages is printed."
	cargo build --profile gate --locked --workspace --bin hopwise
	$(TARGET)/gate/hopwise demo

build: ui        ## the program with its web UI: target/release/hopwise
	@scripts/setup build
	$(RELEASE) hopwise

lab:             ## the program of `hopwise lab`: target/release/hopwise-lab
	@scripts/setup build
	$(RELEASE) hopwise-lab

bench:           ## the program of `hopwise bench` and `hopwise experiment`: target/release/hopwise-bench
	@scripts/setup build
	$(RELEASE) hopwise-bench

packages: build lab bench  ## target/packages: two .deb and two .rpm (which need rpmbuild): hopwise, hopwise-lab
	scripts/package deb rpm

ui:              ## only the web UI: ui/dist
	@scripts/setup ui
	@scripts/build-ui

test:            ## all checks and tests, with a count at the end
	@scripts/setup build
	@scripts/setup ui
	@scripts/test

check:           ## format, lints and unit tests of uncommitted changes: the short check during development
	@scripts/setup build
	@scripts/check

SECONDS ?= 60

fuzz:            ## fuzz every parser with coverage guidance, SECONDS each; needs nightly and cargo-fuzz
	@scripts/fuzz $(SECONDS)

CASES ?= fastpath-6x8-1k fastpath-6x8-100k-shuffled fastpath-1x1-1k fastpath-6x8-change fastpath-6x8-1m-shuffled udp-one-sender udp-one-sender-flood \
	rx-xdp-native rx-xdp-generic rx-packet rx-udp xdp-detect-1k xdp-detect-100k xdp-detect-1k-event switch-live \
	store-insert store-query

figures: build bench  ## measure the figures of docs/reference/performance.md on this machine
	$(PROGRAM) bench $(CASES)

fmt:             ## format everything
	cargo fmt
	cd ui && npm run format

docs:            ## regenerate the reference pages
	UPDATE_REFERENCE=1 cargo test --profile gate -p hopwise -p hopwise-api -p hopwise-config -p hopwise-lab -p hopwise-bench -p hopwise-experiments -p hopwise-p4runtime -p hopwise-switch-role reference
	scripts/build-python-client

clean:           ## remove the build output
	rm -rf target ui/dist ui/node_modules
