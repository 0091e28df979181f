//! A DTA reporter and a translator in front of the requester.

use std::net::SocketAddr;
use std::sync::Arc;

use dataplane::dta::{Outbox, Reporter};
use memory::Region;
use rdma::requester::Links;
use translator::{Origin, Translator};

use testkit::rdma::{Front, Net, Side};

/// A reporter and a translator.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) reporter: Reporter,
    pub(crate) outbox: Outbox,
    pub(crate) translator: Translator,
    /// The translator receives nothing.
    pub(crate) down: bool,
    controls: Controls,
}

#[derive(Debug, Default)]
struct Controls(Vec<Vec<u8>>);

impl translator::Output for Controls {
    fn control(&mut self, _: SocketAddr, _: u8, payload: &[u8]) {
        self.0.push(payload.to_vec());
    }
}

impl Chain {
    pub(crate) fn new(reporter: Reporter, translator: Translator) -> Self {
        let outbox = Outbox::new(1 << 20, 4096);
        Self {
            reporter,
            outbox,
            translator,
            down: false,
            controls: Controls::default(),
        }
    }
}

impl Front for Chain {
    fn send(&mut self, now: u64, net: &mut Net) {
        for datagram in self.outbox.datagrams() {
            net.send(now, Side::Translator, datagram.payload);
        }
        self.outbox.clear();
        for control in self.controls.0.drain(..) {
            net.send(now, Side::Reporter, &control);
        }
    }

    fn receive(&mut self, now: u64, to: Side, payload: &[u8], links: &mut Links) {
        if to == Side::Reporter {
            self.reporter.control(0, payload, now, &mut self.outbox);
        } else if !self.down {
            let origin = Origin {
                sender: ([10, 0, 0, 7], 50000).into(),
                collector: 0,
            };
            self.translator
                .process(now, origin, payload, links, &mut self.controls);
        }
    }

    fn tick(&mut self, now: u64, links: &mut Links) {
        self.reporter.tick(now, &mut self.outbox);
        self.translator.tick(now, links);
    }

    fn deadline(&self) -> Option<u64> {
        [self.reporter.next(), self.translator.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn check_counters(&self, _: &[Arc<Region>]) {
        let stats = self.translator.stats();
        assert!(stats.is_balanced(), "{stats:?}");
    }
}
