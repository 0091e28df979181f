//! The exchange over loopback: both ends, invalid messages, a collector that restarts.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
};

use super::client::{ExchangeLink, LinkEvent, Target};
use super::server::{AccessControl, Host, Listening};
use super::*;
use runtime::control::Control;

pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn hello(instance: &str) -> Hello {
    Hello {
        version: VERSION,
        instance: instance.to_owned(),
        link: 0,
        address: LOCAL,
        port: 5000,
        mtu: 1024,
        unreliable: End {
            queue_pair: 2,
            psn: 7,
        },
        reliable: End {
            queue_pair: 3,
            psn: 0xff_ffff,
        },
    }
}

fn geometries() -> Vec<Geometry> {
    let family = Family::V1;
    vec![
        Geometry::KeyWrite {
            slots: 1 << 20,
            data_len: 20,
            family,
        },
        Geometry::Append {
            lists: 2,
            first_list: 5,
            ring: Ring {
                entry_len: 18,
                entries: 64,
                batch: 16,
                tagged: true,
            },
        },
        Geometry::KeyIncrement {
            slots: 16,
            family: Family::Artifact,
        },
        Geometry::Sketch {
            kind: SketchKind::HyperLogLog,
            op: MergeOp::Max,
            shape: Columns {
                depth: 4,
                columns: 9,
                width: 8,
            },
        },
        Geometry::Postcarding {
            slots: 16,
            hops: 5,
            family,
        },
    ]
}

fn offer(geometry: &Geometry) -> StoreOffer {
    let id = if let Geometry::Append { first_list, .. } = geometry {
        *first_list
    } else {
        1
    };
    StoreOffer {
        name: geometry.name().to_owned(),
        region: 4,
        id,
        address: format!("{:x}", u64::MAX - 4095),
        length: geometry.body_len(),
        key: 0x1f42,
        shape: Shape::from_geometry(geometry, vec![1, 9], false, 3),
    }
}

pub(super) fn accept() -> Accept {
    Accept {
        version: VERSION,
        instance: "00ff".to_owned(),
        address: LOCAL,
        port: 4791,
        mtu: 1024,
        unreliable: Some(17),
        reliable: Some(18),
        atomics: 16,
        executed: None,
        stores: geometries().iter().map(offer).collect(),
    }
}

#[test]
fn a_store_comes_out_as_it_went_in() {
    let line = serde_json::to_string(&Message::Accept(accept())).unwrap();
    let Ok(Message::Accept(read)) = serde_json::from_str(&line) else {
        panic!("{line}")
    };
    assert_eq!(read, accept());
    let outcome: Vec<_> = read.stores.iter().map(StoreOffer::geometry).collect();
    assert_eq!(outcome, geometries().into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(
        read.stores[0].va(),
        Some(u64::MAX - 4095),
        "addresses have 64 bits"
    );
    assert!(
        line.contains(r#""kind":"key-write","slots":1048576,"data":20,"hash":"v1""#),
        "{line}"
    );
}

#[test]
fn an_impossible_store_is_not_opened() {
    let good = offer(&geometries()[0]);
    let short = StoreOffer {
        length: good.length - 1,
        ..good.clone()
    };
    let shape = Shape::KeyWrite {
        slots: 3,
        data: 20,
        hash: "v1".to_owned(),
    };
    let slots = StoreOffer {
        shape,
        ..good.clone()
    };
    let shape = Shape::KeyWrite {
        slots: 16,
        data: 20,
        hash: "v9".to_owned(),
    };
    let hash = StoreOffer {
        shape,
        ..good.clone()
    };
    assert_eq!([short, slots, hash].map(|store| store.geometry()), [None; 3]);
    assert_eq!(
        StoreOffer {
            address: "x".to_owned(),
            ..good
        }
        .va(),
        None
    );
}

/// A collector that accepts translators, and records connections and disconnections.
#[derive(Default)]
pub(super) struct Recorder(pub(super) Mutex<Vec<String>>);

impl Recorder {
    pub(super) fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Host for Recorder {
    fn accept(&self, hello: &Hello, _: u64, local: IpAddr) -> Result<Accept, String> {
        assert_eq!(local, LOCAL);
        self.0.lock().unwrap().push(format!("{} came", hello.instance));
        if hello.instance == "bad" {
            Err("not you".to_owned())
        } else {
            Ok(accept())
        }
    }

    fn disconnected(&self, hello: &Hello, _: &Accept) {
        self.0.lock().unwrap().push(format!("{} went", hello.instance));
    }
}

pub(super) fn any() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

#[test]
fn a_translator_is_accepted_and_its_disconnection_is_detected() {
    let (control, _messages) = Control::new();
    let recorder = Arc::new(Recorder::default());
    let listening = Listening::open(any()).unwrap();
    let address = listening.address().unwrap();
    let server = listening
        .start(
            Arc::clone(&recorder) as Arc<dyn Host>,
            AccessControl::new(None),
            &control,
        )
        .unwrap();
    let (sender, events) = channel();
    let link = ExchangeLink::start(
        Target {
            collector: 3,
            exchange: address,
            secret: None,
        },
        sender,
        &control,
    )
    .unwrap();
    let Ok(LinkEvent::Reached(3, LOCAL, commands)) = events.recv_timeout(TIMEOUT) else {
        panic!("not reached")
    };
    commands.hello(hello("a1"));
    let Ok(LinkEvent::Accepted(3, got)) = events.recv_timeout(TIMEOUT) else {
        panic!("not accepted")
    };
    assert_eq!(*got, accept());
    // The translator's queue pairs broke: it reconnects.
    commands.reconnect("broken");
    let Ok(LinkEvent::Lost(3, reason)) = events.recv_timeout(TIMEOUT) else {
        panic!("not lost")
    };
    assert_eq!(reason, "broken");
    let Ok(LinkEvent::Reached(_, _, next)) = events.recv_timeout(TIMEOUT) else {
        panic!("not reached")
    };
    // The translator was slow: this hello is for the connection that has ended.
    commands.hello(hello("late"));
    next.hello(hello("bad"));
    let Ok(LinkEvent::Lost(3, reason)) = events.recv_timeout(TIMEOUT) else {
        panic!("not refused")
    };
    assert_eq!(reason, "refused: not you");
    drop(link);
    drop(server);
    assert_eq!(recorder.read()[..3], ["a1 came", "a1 went", "bad came"]);
}

#[test]
fn idle_connections_do_not_exclude_a_translator() {
    let (control, _messages) = Control::new();
    let recorder = Arc::new(Recorder::default());
    let listening = Listening::open(any()).unwrap();
    let address = listening.address().unwrap();
    let access = AccessControl::new(None);
    let host = Arc::clone(&recorder) as Arc<dyn Host>;
    let server = listening.start(host, Arc::clone(&access), &control).unwrap();
    // Silent ones, and some that never end their line.
    let connect = |index: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        if index.is_multiple_of(2) {
            stream.write_all(b"{\"type\":\"hel").unwrap();
        }
        stream
    };
    let idle: Vec<TcpStream> = (0..300).map(connect).collect();
    let (sender, events) = channel();
    let target = Target {
        collector: 3,
        exchange: address,
        secret: None,
    };
    let link = ExchangeLink::start(target, sender, &control).unwrap();
    loop {
        match events.recv_timeout(TIMEOUT).unwrap() {
            LinkEvent::Reached(_, _, commands) => commands.hello(hello("a1")),
            LinkEvent::Accepted(..) => break,
            // Its own connection may be among those evicted: it reconnects.
            LinkEvent::Lost(..) => {}
        }
    }
    let view = access.view();
    assert!(view.balanced && view.pending <= 16, "{view:?}");
    drop((link, idle, server));
}

/// A collector that answers only after its translator received a keepalive.
struct Slow(Mutex<Receiver<()>>);

impl Host for Slow {
    fn accept(&self, _: &Hello, _: u64, _: IpAddr) -> Result<Accept, String> {
        self.0
            .lock()
            .unwrap()
            .recv_timeout(TIMEOUT)
            .map_err(|_| "the test did not release the answer".to_owned())?;
        Ok(accept())
    }

    fn disconnected(&self, _: &Hello, _: &Accept) {}
}

#[test]
fn a_slow_collector_sends_keepalives_before_its_response() {
    let (control, _messages) = Control::new();
    let (release, released) = channel();
    let listening = Listening::open(any()).unwrap();
    let mut stream = TcpStream::connect(listening.address().unwrap()).unwrap();
    let _server = listening
        .start(
            Arc::new(Slow(Mutex::new(released))),
            AccessControl::new(None),
            &control,
        )
        .unwrap();
    stream.set_read_timeout(Some(TIMEOUT * 2)).unwrap();
    let line = serde_json::to_string(&Message::Hello(hello("a1"))).unwrap() + "\n";
    stream.write_all(line.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut read = || serde_json::from_str::<Message>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(read(), Message::Keepalive);
    release.send(()).unwrap();
    let answer = loop {
        match read() {
            Message::Keepalive => {}
            answer => break answer,
        }
    };
    assert_eq!(answer, Message::Accept(accept()));
}

#[test]
fn a_link_reconnects_when_the_collector_is_back() {
    let (control, _messages) = Control::new();
    let listening = Listening::open(any()).unwrap();
    let address = listening.address().unwrap();
    let recorder = Arc::new(Recorder::default());
    let server = listening
        .start(
            Arc::clone(&recorder) as Arc<dyn Host>,
            AccessControl::new(None),
            &control,
        )
        .unwrap();
    let (sender, events) = channel();
    let _link = ExchangeLink::start(
        Target {
            collector: 0,
            exchange: address,
            secret: None,
        },
        sender,
        &control,
    )
    .unwrap();
    let mut answered = 0;
    let mut server = Some(server);
    while answered < 2 {
        match events.recv_timeout(TIMEOUT).unwrap() {
            LinkEvent::Reached(_, _, commands) => commands.hello(hello("a1")),
            LinkEvent::Accepted(..) => {
                answered += 1;
                drop(server.take());
            }
            LinkEvent::Lost(..) if server.is_none() => {
                let listening = Listening::open(address).unwrap();
                server = Some(
                    listening
                        .start(
                            Arc::clone(&recorder) as Arc<dyn Host>,
                            AccessControl::new(None),
                            &control,
                        )
                        .unwrap(),
                );
            }
            LinkEvent::Lost(..) => {}
        }
    }
}

#[test]
fn a_malformed_hello_is_refused_with_a_message() {
    let (control, _messages) = Control::new();
    let recorder = Arc::new(Recorder::default());
    let listening = Listening::open(any()).unwrap();
    let address = listening.address().unwrap();
    let _server = listening
        .start(
            Arc::clone(&recorder) as Arc<dyn Host>,
            AccessControl::new(None),
            &control,
        )
        .unwrap();
    let old = Message::Hello(Hello {
        version: 9,
        ..hello("x")
    });
    let long = Message::Hello(hello(&"0".repeat(65)));
    for (line, outcome) in [
        ("GET / HTTP/1.1\r\n".to_owned(), "not a message of version 1"),
        (
            "{\"type\":\"keepalive\"}\n".to_owned(),
            "the first message must be a hello",
        ),
        (
            serde_json::to_string(&old).unwrap() + "\n",
            "supports version 1 of the exchange, not 9",
        ),
        (
            serde_json::to_string(&long).unwrap() + "\n",
            "an instance has 1 to 64 letters and digits",
        ),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("refused") && answer.contains(outcome), "{answer}");
    }
    assert!(recorder.read().is_empty());
}

#[test]
fn a_slow_peer_does_not_delay_others() {
    let listener = std::net::TcpListener::bind(any()).unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut lines = Connection::new(stream, TIMEOUT).unwrap();
    for octet in b"{\"type\":\"keepali" {
        sender.write_all(&[*octet]).unwrap();
        assert_eq!(
            lines.receive(),
            Received::Nothing,
            "each message is received once"
        );
    }
    sender.write_all(b"ve\"}\n{").unwrap();
    assert_eq!(lines.receive(), Received::Message(Box::new(Message::Keepalive)));
    drop(sender);
    let rest = [lines.receive(), lines.receive()];
    assert_eq!(
        rest,
        [Received::Nothing, Received::Closed],
        "what was begun is no message"
    );
}

#[test]
fn a_line_without_end_is_not_collected_for_ever() {
    let listener = std::net::TcpListener::bind(any()).unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut lines = Connection::new(stream, Duration::from_secs(5)).unwrap();
    lines.allow_long_lines();
    let writing = std::thread::spawn(move || {
        let block = vec![b'x'; 1 << 16];
        while sender.write_all(&block).is_ok() {}
    });
    let received = loop {
        match lines.receive() {
            Received::Nothing => {}
            other => break other,
        }
    };
    assert_eq!(
        received,
        Received::Malformed("a line is longer than 4 MiB".to_owned())
    );
    drop(lines);
    writing.join().unwrap();
}
