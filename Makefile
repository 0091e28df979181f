# hopwise: `make demo` shows a network, `make test` proves that it works. Both install what is missing.

.PHONY: all demo build ui test check fuzz bench fmt docs clean help

help:            ## list what can be made
	@sed -n 's/^\([a-z]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

PROGRAM := $(or $(CARGO_TARGET_DIR),target)/release/hopwise

all: build

demo: build      ## a simulated fabric, a real collector, the web page on http://127.0.0.1:8080
	$(PROGRAM) demo

build: ui        ## the program with its web page: target/release/hopwise
	@scripts/setup build
	cargo build --release --locked --bin hopwise

ui:              ## the web page alone: ui/dist
	@scripts/setup ui
	@scripts/build-ui

test:            ## everything that the gate checks, with a count at the end
	@scripts/setup test
	@scripts/test

check:           ## format, lints and unit tests of what is not committed yet: the short check while one works
	@scripts/setup build
	@scripts/check

SECONDS ?= 60

fuzz:            ## every parser under coverage-guided fuzzing, SECONDS each; needs nightly and cargo-fuzz
	@scripts/fuzz $(SECONDS)

CASES ?= fastpath-6x8-1k fastpath-6x8-100k fastpath-1x1-1k fastpath-6x8-change fastpath-6x8-1m udp-one-sender udp-one-sender-flood \
	rx-xdp-native rx-xdp-generic rx-packet rx-udp xdp-detect-1k xdp-detect-100k xdp-detect-1k-event switch-live \
	store-insert store-query

bench: build     ## the figures of docs/reference/performance.md, on this machine
	$(PROGRAM) bench $(CASES)

fmt:             ## format everything
	cargo fmt
	cd ui && npm run format

docs:            ## make the generated reference pages anew
	UPDATE_REFERENCE=1 cargo test --release -p hopwise -p hopwise-lab reference

clean:           ## remove what was built
	rm -rf target ui/dist ui/node_modules
