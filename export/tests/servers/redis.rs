//! Redis.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use export::Outcome;
use export::record::Record;
use export::sink::redis::{Credentials, Options, Pipeline, Redis, Replies, Reply};

use crate::server::{Server, TempDir, free_port, is_installed};
use crate::support::*;

fn redis(options: &[&str]) -> Option<Server> {
    if !is_installed("redis-server", "redis-server") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &port.to_string(),
    ]);
    command.args(options);
    Some(Server::start(&mut command, port, files))
}

/// A connection to the server.
struct Client {
    stream: TcpStream,
    replies: Replies,
}

impl Client {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self {
            stream,
            replies: Replies::new(),
        }
    }

    fn send(&mut self, pipeline: &Pipeline) -> Vec<Reply> {
        self.stream.write_all(&pipeline.bytes).unwrap();
        let mut all = Vec::new();
        while all.len() < pipeline.replies {
            match self.replies.next_reply().unwrap() {
                Some(reply) => all.push(reply),
                None => {
                    let mut bytes = [0; 100];
                    let len = self.stream.read(&mut bytes).unwrap();
                    assert!(len > 0);
                    self.replies.push(&bytes[..len]);
                }
            }
        }
        all
    }

    /// Sends a command of one line.
    fn call(&mut self, command: &str) -> Reply {
        let bytes = format!("{command}\r\n").into_bytes();
        self.send(&Pipeline { bytes, replies: 1 }).remove(0)
    }

    /// Sends records; the number of pipelines, and what became of them.
    fn store(&mut self, sink: &Redis, records: &[Record]) -> (usize, Outcome) {
        batch(COLLECTOR, records, |batch| {
            let mut exchange = sink.begin(batch).unwrap();
            for pipelines in 1.. {
                let replies = self.send(exchange.pipeline());
                if let Some(outcome) = sink.answered(batch, &mut exchange, &replies) {
                    return (pipelines, outcome);
                }
            }
            unreachable!()
        })
    }

    /// The texts of a reply, one after the other.
    fn texts(&mut self, command: &str) -> Vec<String> {
        fn collect(reply: &Reply, out: &mut Vec<String>) {
            match reply {
                Reply::Text(text) => out.push(text.clone()),
                Reply::Array(items) => items.iter().for_each(|item| collect(item, out)),
                other => panic!("{other:?}"),
            }
        }
        let mut texts = Vec::new();
        collect(&self.call(command), &mut texts);
        texts
    }
}

fn parts(text: &str) -> Vec<String> {
    text.split('|').map(str::to_owned).collect()
}

/// The texts of an entry of the stream of events.
fn entry(at: &str, id: u64, ts: u64) -> Vec<String> {
    parts(&format!(
        "{at}|id|{id:016x}|ts|{ts}|collector|leaf, \"1\"=a\\b]|schema|1|kind|change|metric|queue_occupancy|flow|10.0.0.1:1234>10.0.0.2:80/6|\
         node|7|interface|2|queue|0|value|130|previous|2|threshold|128|basis|measured"
    ))
}

#[test]
fn redis_stores_what_is_sent() {
    let Some(server) = redis(&[]) else { return };
    let sink = Redis::new(&Options {
        database: 1,
        ..Options::default()
    })
    .unwrap();
    let mut client = Client::new(&server);
    let greeting = sink.greeting(None);
    assert_eq!(sink.greeted(&client.send(&greeting)), Ok(()));
    assert_eq!(client.store(&sink, &[change(3), change(1)]), (1, Outcome::DONE));
    // A repeat is recognised.
    assert_eq!(client.store(&sink, &[change(3), change(1)]), (2, Outcome::DONE));
    let first = entry("1795654800000-17592186044417", 1, T + 1);
    let third = entry("1795654800000-52776558133251", 3, T + 3);
    assert_eq!(
        client.texts("XRANGE hopwise:events - +"),
        [first.clone(), third.clone()].concat()
    );
    // A late one is not lost: it is behind the others.
    assert_eq!(client.store(&sink, &[change(2)]), (3, Outcome::DONE));
    let late = entry("1795654800000-52776558133252", 2, T + 2);
    assert_eq!(
        client.texts("XRANGE hopwise:events - +"),
        [first, third, late].concat()
    );

    assert_eq!(client.store(&sink, &[flow()]), (1, Outcome::DONE));
    let expected = parts(&format!(
        "id|{:016x}|ts|{}|collector|leaf, \"1\"=a\\b]|schema|1|flow|10.0.0.1>10.0.0.2/1|flow_latency|900|basis|measured|first_seen|{T}|\
         last_seen|{}|reports|3|path|1,7",
        flow().id(),
        T + 5,
        T + 5
    ));
    assert_eq!(
        client.texts("HGETALL \"hopwise:flow:10.0.0.1>10.0.0.2/1\""),
        expected
    );
    let Reply::Number(left) = client.call("PTTL \"hopwise:flow:10.0.0.1>10.0.0.2/1\"") else {
        panic!()
    };
    assert!((1..=3_600_000).contains(&left), "{left}");
    for one in [rollup(0), dropped(), loss()] {
        let stream = one.stream().name();
        assert_eq!(client.store(&sink, &[one]), (1, Outcome::DONE));
        assert_eq!(client.call(&format!("XLEN hopwise:{stream}")), Reply::Number(1));
    }
}

fn greeted(
    server: &Server,
    sink: &Redis,
    credentials: Option<&Credentials<'_>>,
) -> (Client, Result<(), String>) {
    let mut client = Client::new(server);
    let result = sink.greeted(&client.send(&sink.greeting(credentials)));
    (client, result)
}

#[test]
fn errors_of_redis_are_understood() {
    let Some(server) = redis(&["--requirepass", "secret", "--maxmemory-policy", "noeviction"]) else {
        return;
    };
    let sink = Redis::new(&Options {
        max_len: 100,
        ..Options::default()
    })
    .unwrap();
    let (mut client, result) = greeted(&server, &sink, None);
    assert!(
        result
            .unwrap_err()
            .starts_with("the server requires credentials (NOAUTH ")
    );
    assert!(matches!(
        client.store(&sink, &[change(1)]).1,
        Outcome::Unauthorised { .. }
    ));
    let wrong = Credentials {
        user: Some("default"),
        password: "x",
    };
    let said = greeted(&server, &sink, Some(&wrong)).1.unwrap_err();
    assert!(
        said.starts_with("the server refuses the credentials (WRONGPASS "),
        "{said}"
    );
    let right = Credentials {
        user: None,
        password: "secret",
    };
    let other = Redis::new(&Options {
        database: 99,
        ..Options::default()
    })
    .unwrap();
    let said = greeted(&server, &other, Some(&right)).1.unwrap_err();
    assert!(
        said.starts_with("the server has no database 99 (ERR DB index"),
        "{said}"
    );
    let (mut client, result) = greeted(&server, &sink, Some(&right));
    assert_eq!(result, Ok(()));

    client.call("SET hopwise:drops x");
    let (_, outcome) = client.store(&sink, &[dropped()]);
    let Outcome::Settled { rejected, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        rejected.len() == 1 && rejected[0].1.starts_with("WRONGTYPE "),
        "{rejected:?}"
    );
    // The length is limited about: whole nodes of the stream are removed.
    let many: Vec<Record> = (1..=1000).map(change).collect();
    assert_eq!(client.store(&sink, &many), (1, Outcome::DONE));
    let Reply::Number(len) = client.call("XLEN hopwise:events") else {
        panic!()
    };
    assert!((100..400).contains(&len), "{len}");
    client.call("CONFIG SET maxmemory 1");
    let (_, outcome) = client.store(&sink, &[change(2000)]);
    assert!(
        matches!(&outcome, Outcome::Failed { reason, .. } if reason.starts_with("OOM ")),
        "{outcome:?}"
    );
    client.call("CONFIG SET maxmemory 0");
    client.call("CONFIG SET min-replicas-to-write 1");
    let (_, outcome) = client.store(&sink, &[change(2000)]);
    assert!(
        matches!(&outcome, Outcome::Failed { reason, .. } if reason.starts_with("NOREPLICAS ")),
        "{outcome:?}"
    );
}
