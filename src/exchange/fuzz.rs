//! Fuzz bodies of what people and other programs write about stores: keys, fields, triggers, maps of collectors, messages of the exchange.
//! Plain functions over any bytes, and a driver that corrupts valid examples: 20,000 times each, or for `HOPWISE_FUZZ_SECONDS`.

use std::time::{Duration, Instant};

use wire::dta::{hash::MAX_KEY, layout::Geometry};

use dta::{
    collector_map::CollectorMap,
    fields::{Fields, hex, unhex},
    key::Key,
};
use translator::trigger_text as trigger;

use super::{
    Message, Received, Shape, read, read_nonce,
    secret::{Nonces, Seals, SecretFile, Side},
    write,
};

/// A key is refused in words, or has its limits and is the same when it is read as it is shown: a question goes to a server as text.
fn key(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Key>() {
        Ok(key) => {
            assert!((1..=MAX_KEY).contains(&key.bytes().len()), "{text:?}");
            let shown = key.to_string();
            assert_eq!(shown.parse::<Key>().as_ref().map(Key::bytes), Ok(key.bytes()), "{text:?} {shown:?}");
        }
        Err(error) => assert!(error.contains("write") || error.contains("bytes"), "{text:?}: {error}"),
    }
    // The same of any bytes at all.
    if (1..=MAX_KEY).contains(&data.len()) {
        let shown = Key::of(data).to_string();
        assert_eq!(shown.parse::<Key>().as_ref().map(Key::bytes), Ok(data), "{shown:?}");
    }
    assert_eq!(unhex(&hex(data)).as_deref(), Some(data));
}

/// Fields are refused in words, or read back as they are shown; behind a zero byte lie bytes to be decoded, of any length.
fn fields(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..end]);
    match text.parse::<Fields>() {
        Ok(fields) => {
            assert_eq!(fields.to_string().parse().as_ref(), Ok(&fields), "{text:?}");
            assert!((1..=256 * 256 * 16).contains(&fields.size()), "{text:?}");
            for bytes in [&data[end..], data] {
                let values = fields.decode(bytes);
                let names: Vec<String> = values.iter().map(|(name, _)| (*name).to_owned()).collect();
                for name in names {
                    let own = fields.bytes(bytes, &name).map(<[u8]>::len);
                    assert!(own > Some(0), "{text:?}: what was decoded is there");
                    assert_eq!(fields.number(bytes, &name).is_some(), own <= Some(8));
                    fields.list(bytes, &name);
                }
            }
        }
        Err(error) => assert!(!error.is_empty(), "{text:?}"),
    }
}

/// Conditions and entries of triggers are refused in words, or read.
fn triggers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for error in [trigger::conditions(&text).err(), trigger::parts(&text).err()].into_iter().flatten() {
        assert!(error.contains('`'), "{text:?}: {error}");
    }
}

/// A map is refused in words, or leads every key, list and sketch to a collector that it names; grown, only to the new one what moves.
fn map(data: &[u8]) {
    let Ok(map) = serde_json::from_slice::<CollectorMap>(data) else { return };
    assert_eq!(serde_json::from_str::<CollectorMap>(&map.to_text()).as_ref().ok(), Some(&map));
    let spread = match map.spread() {
        Ok(spread) => spread,
        Err(error) => return assert!(!error.is_empty()),
    };
    assert_eq!(map.shares().iter().sum::<usize>(), 256);
    assert!(map.of_sketches().is_some());
    let key = Key::of(&data[data.len().saturating_sub(13)..]);
    let asked = map.of_key(&key);
    assert!((1..=2).contains(&asked.len()));
    assert_eq!(*asked[0], map.collectors[usize::from(spread.of_key(key.bytes()))]);
    for list in [0, 1, data.len() as u32, u32::MAX] {
        assert!(map.of_list(list).is_some());
    }
    let new =
        dta::collector_map::Collector { name: "\u{1f}new".to_owned(), api: String::new(), reports: None };
    if let Ok((grown, moved)) = map.grown(new, 4) {
        let (before, after) = (spread.by_key(), grown.spread().map(|spread| *spread.by_key()));
        let after = after.unwrap_or_else(|error| panic!("{error}"));
        let differ: Vec<_> = before.iter().zip(&after).filter(|(old, new)| old != new).collect();
        assert_eq!(differ.len(), moved);
        assert!(differ.iter().all(|(_, new)| usize::from(**new) == map.collectors.len()));
        (0..4).for_each(|list| assert_eq!(grown.of_list(list), map.of_list(list)));
    }
}

/// The translator's and the collector's seals of some connection.
fn seals() -> [Seals; 2] {
    let nonces = Nonces { translator: [1; 32], collector: [2; 32] };
    let secret = SecretFile::fixed("0123456789abcdef").current();
    [Side::Translator, Side::Collector].map(|side| secret.seals(side, &nonces))
}

/// A line without seals is a message or refused in words; behind a seal nothing counts but what was sealed, byte for byte, in its place.
fn line(data: &[u8]) {
    let [mut translator, mut collector] = seals();
    match read(data, None) {
        Received::Message(message) => {
            let sealed = write(&message, Some(&mut translator)).unwrap_or_default();
            assert_eq!(read(&sealed, Some(&mut collector)), Received::Message(message));
            assert_eq!(read(&sealed, Some(&mut collector)), Received::Forged, "once more");
        }
        Received::Malformed(error) => assert!(!error.is_empty()),
        other => panic!("{other:?}"),
    }
    let [mut translator, mut collector] = seals();
    let own = write(&Message::Keepalive, Some(&mut translator)).unwrap_or_default();
    let expected = if data.eq_ignore_ascii_case(&own) && data[64..] == own[64..] {
        Received::Message(Box::new(Message::Keepalive))
    } else {
        Received::Forged
    };
    assert_eq!(read(data, Some(&mut collector)), expected);
    let nonce = read_nonce(&String::from_utf8_lossy(data));
    assert!(nonce.is_none() || data.len() == 64);
}

/// A message reads back as it is written, and a store that is offered has a structure that fits into what is offered, or none.
fn message(data: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Message>(data) else { return };
    let text = serde_json::to_vec(&message).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<Message>(&text).ok().as_ref(), Some(&message));
    let Message::Accept(accept) = message else { return };
    for offer in &accept.stores {
        offer.va();
        let Some(geometry) = offer.geometry() else { continue };
        assert!(geometry.check().is_ok() && geometry.body_len() <= offer.length);
        let (next, swapped, reporters) = match &offer.shape {
            Shape::Append { next, swapped, .. } => (next.clone(), *swapped, 0),
            Shape::Sketch { reporters, .. } => (Vec::new(), false, *reporters),
            _ => (Vec::new(), false, 0),
        };
        assert_eq!(Shape::of(&geometry, next, swapped, reporters), offer.shape);
        if let Geometry::Append { lists, first_list, .. } = geometry {
            assert!(first_list.checked_add(lists - 1).is_some());
        }
    }
}

use testkit::rng::Rng;

/// Words that mean something to one of the parsers.
const WORDS: [&str; 30] = [
    ":",
    ">",
    "/6",
    ",",
    "u8:",
    "u16:",
    "u64:",
    "0x",
    "::ffff:10.0.0.1",
    "[",
    "]",
    "256",
    "-1",
    "4294967296",
    "null",
    "[]",
    "{}",
    "u32[5]",
    "hex[256]",
    "ipv6",
    "data[0:4]",
    " and ",
    "&0xff",
    ">=",
    "time",
    "\"slots\":16",
    "18446744073709551615",
    "tcp",
    "\0",
    "1e9",
];

/// Takes some bytes out, puts some in, changes some, or exchanges a number for another.
fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() + 1);
        match rng.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => {
                let end = (at + 1 + rng.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let word = WORDS[rng.below(WORDS.len())].as_bytes();
                bytes.splice(at..at, word.iter().copied());
            }
            _ => {
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
                if let Some(place) = digit.map(|digit| at + digit) {
                    let end = bytes[place..].iter().position(|byte| !byte.is_ascii_digit());
                    let end = end.map_or(bytes.len(), |end| place + end);
                    let word = ["0", "1", "255", "65536", "4294967295", "99999999999"][rng.below(6)];
                    bytes.splice(place..end, word.bytes());
                }
            }
        }
    }
}

fn run(body: fn(&[u8]), seed: u64, examples: &[String]) {
    let seconds = std::env::var("HOPWISE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    examples.iter().for_each(|example| body(example.as_bytes()));
    let (mut rng, mut count) = (Rng(seed), 0_u64);
    while end.map_or(count < 20_000, |end| Instant::now() < end) {
        for _ in 0..100 {
            let mut bytes = examples[rng.below(examples.len())].clone().into_bytes();
            spoil(&mut rng, &mut bytes);
            let shown = String::from_utf8_lossy(&bytes).into_owned();
            let outcome = std::panic::catch_unwind(|| body(&bytes));
            assert!(outcome.is_ok(), "mutation {count} under seed {seed}: {shown:?}");
            count += 1;
        }
    }
    println!("{count} mutations");
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn keys_as_people_write_them() {
    let examples = [
        "10.0.0.1:1234 > 10.0.0.2:80 tcp",
        "10.0.0.1:1234>10.0.0.2:80/6",
        "[2001:db8::1]:1>[2001:db8::2]:2/17",
        "[::ffff:10.0.0.1]:1>[::ffff:10.0.0.2]:2/17",
        "10.0.0.1>10.0.0.2/1",
        "10.0.0.1,u16:80,u8:6,u64:7,258",
        "0x0a0000010a00000204d2005006",
        "::1",
        "thirteenbytes",
    ];
    run(key, 1, &owned(&examples));
}

#[test]
fn fields_as_people_write_them() {
    let examples = [
        "src:ipv4 dst:ipv4 sport:u16 dport:u16 proto:u8 node:u32 reason:u8\0\x0a\0\0\x01\x0a\0\0\x02 and more",
        "u32[5]\0twenty bytes of data",
        "a:u64, b:ipv6 c:mac d:hex[3]\0short",
        "x:u8[256]",
    ];
    run(fields, 2, &owned(&examples));
}

#[test]
fn triggers_as_people_write_them() {
    let examples = [
        "value >= 1000 and data[0:4] != 0",
        "priority&1 == 0x1 and hop<3",
        "key[0:8] data[0:8] time",
        "value:4 7:1",
    ];
    run(triggers, 3, &owned(&examples));
}

#[test]
fn maps_of_collectors() {
    let named = |name: &str| dta::collector_map::Collector {
        name: name.to_owned(),
        api: format!("http://{name}:8080"),
        reports: "10.0.0.9:40040".parse().ok(),
    };
    let one = CollectorMap::even(vec![named("a")]).unwrap_or_else(|error| panic!("{error}"));
    let grown = (1..4).fold(one.clone(), |map, number| {
        map.grown(named(&format!("n{number}")), number).unwrap_or_else(|error| panic!("{error}")).0
    });
    run(map, 4, &[one.to_text(), grown.to_text()]);
}

#[test]
fn messages_of_the_exchange() {
    let hello = r#"{"type":"hello","version":1,"instance":"00ff","link":0,"address":"10.0.0.7","port":5000,"mtu":1024,"unreliable":{"queue_pair":2,"psn":7},"reliable":{"queue_pair":3,"psn":16777215}}"#;
    let store = |shape: &str| {
        format!(
            r#"{{"name":"s","region":1,"id":4,"address":"7f0000001000","length":16777216,"key":8002,{shape}}}"#
        )
    };
    let stores = [
        r#""kind":"key-write","slots":65536,"data":20,"hash":"v1""#,
        r#""kind":"append","lists":2,"entry":18,"entries":64,"batch":16,"tagged":true,"swapped":false,"next":[1,9]"#,
        r#""kind":"key-increment","slots":16,"hash":"artifact""#,
        r#""kind":"sketch","sketch":"count-min","depth":4,"columns":9,"width":8,"reporters":3"#,
        r#""kind":"postcarding","slots":16,"hops":5,"hash":"v1""#,
    ];
    let accept = |stores: &str| {
        format!(
            r#"{{"type":"accept","version":1,"instance":"00ff","address":"10.0.0.9","port":4791,"mtu":1024,"unreliable":17,"reliable":18,"atomics":16,"stores":[{stores}]}}"#
        )
    };
    let refused = r#"{"type":"refused","reason":"no","cause":"no_secret"}"#;
    let mut examples =
        owned(&[hello, refused, r#"{"type":"refused","reason":"no"}"#, r#"{"type":"keepalive"}"#]);
    examples.extend(stores.iter().map(|shape| accept(&store(shape))));
    examples.push(accept(&stores.map(store).join(",")));
    run(message, 5, &examples);
}

#[test]
fn lines_with_and_without_seals() {
    let digits = "0f".repeat(32);
    let sealed = write(&Message::Keepalive, Some(&mut seals()[0])).unwrap_or_default();
    let examples = [
        format!(r#"{{"type":"begin","version":1,"nonce":"{digits}"}}"#),
        format!(r#"{{"type":"challenge","nonce":"{digits}"}}"#),
        format!(r#"{{"type":"proof","proof":"{digits}"}}"#),
        r#"{"type":"keepalive"}"#.to_owned(),
        String::from_utf8_lossy(&sealed).into_owned(),
        format!("{digits} {{\"type\":\"keepalive\"}}"),
        digits,
    ];
    run(line, 6, &examples);
}
