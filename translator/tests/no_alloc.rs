//! Nothing is allocated per DTA report or tick: a counting allocator checks it, with one test in one thread.

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Discard(u64);

impl translator::Output for Discard {
    fn control(&mut self, _: std::net::SocketAddr, _: u8, payload: &[u8]) {
        self.0 += payload.len() as u64;
    }
}

/// A transport that is sometimes without credit, so that reports wait in local memory and are retried.
struct Gate(bool);

impl rdma::transport::Transport for Gate {
    fn credit(&self, _: u8, _: bool) -> rdma::transport::Credit {
        if self.0 {
            rdma::transport::Credit::UNLIMITED
        } else {
            rdma::transport::Credit::NONE
        }
    }

    fn write(
        &mut self,
        _: rdma::transport::RemoteAddr,
        _: u64,
        _: &[u8],
        _: Option<u32>,
        _: bool,
    ) -> Result<(), rdma::transport::Blocked> {
        if self.0 {
            Ok(())
        } else {
            Err(rdma::transport::Blocked::Full)
        }
    }

    fn add(
        &mut self,
        _: rdma::transport::RemoteAddr,
        _: u64,
        _: u64,
        _: Option<u32>,
    ) -> Result<(), rdma::transport::Blocked> {
        if self.0 {
            Ok(())
        } else {
            Err(rdma::transport::Blocked::Full)
        }
    }
}

#[test]
fn a_translator_at_work_allocates_nothing() {
    use testkit::workload::translator::CASES;
    use translator::{Config, Origin, Part, Translator, Trigger};
    for case in CASES {
        let mut reports = case.reports();
        let trigger = Trigger {
            opcode: 1,
            collector: None,
            target: None,
            conditions: Vec::new(),
            list: 1,
            entry: vec![Part::Time],
            immediate: true,
            interval: 0,
        };
        let rate = (reports.iter().len() as u64).min(10_000);
        let config = Config {
            triggers: vec![trigger],
            reporter_rate: rate,
            acks: true,
            reporters: 1 << 10,
            ..case.config()
        };
        let mut translator = Translator::new(config).expect("good settings");
        let (mut transport, mut out) = (Gate(true), Discard(0));
        let before = allocations();
        for round in 0..3 {
            case.renumber(&mut reports, round * 2);
            for (number, payload) in reports.iter().enumerate() {
                let host = [192, 0, 2, number as u8];
                let origin = Origin {
                    sender: (host, 9).into(),
                    collector: 0,
                };
                let now = (usize::from(round) * reports.iter().len() + number) as u64 * 10_000;
                transport.0 = number % 64 < 48;
                translator.process(now, origin, payload, &mut transport, &mut out);
                if number % 128 == 0 {
                    translator.tick(now, &mut transport);
                }
            }
        }
        transport.0 = true;
        translator.finish(u64::MAX, &mut transport);
        assert_eq!(allocations() - before, 0, "{}", case.name);
        let stats = translator.stats();
        assert!(
            stats.is_balanced() && stats.reports.done.iter().sum::<u64>() > 0,
            "{stats:?}"
        );
    }
}
