//! Fuzz bodies of keys, fields and maps of collectors in text form.

use dta::{
    collector_map::CollectorMap,
    fields::{Fields, hex, unhex},
    key::Key,
};
use testkit::texts::fuzz;
use wire::dta::hash::MAX_KEY;

/// A key is within its limits and reads back from its text, or is refused with a message: queries send keys as text.
fn key(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Key>() {
        Ok(key) => {
            assert!((1..=MAX_KEY).contains(&key.bytes().len()), "{text:?}");
            let shown = key.to_string();
            assert_eq!(
                shown.parse::<Key>().as_ref().map(Key::bytes),
                Ok(key.bytes()),
                "{text:?} {shown:?}"
            );
        }
        Err(error) => assert!(
            error.contains("write") || error.contains("bytes"),
            "{text:?}: {error}"
        ),
    }
    // The same for arbitrary bytes.
    if (1..=MAX_KEY).contains(&data.len()) {
        let shown = Key::new(data).to_string();
        assert_eq!(
            shown.parse::<Key>().as_ref().map(Key::bytes),
            Ok(data),
            "{shown:?}"
        );
    }
    assert_eq!(unhex(&hex(data)).as_deref(), Some(data));
}

/// Fields read back from their text, or are refused with a message. After a zero byte: bytes to decode, of any length.
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
                    assert!(own > Some(0), "{text:?}: a decoded field has bytes");
                    assert_eq!(fields.number(bytes, &name).is_some(), own <= Some(8));
                    fields.list(bytes, &name);
                }
            }
        }
        Err(error) => assert!(!error.is_empty(), "{text:?}"),
    }
}

/// A map assigns each key, list and sketch to one of its collectors, or is refused with a message. Growth moves keys only to the new
/// collector.
fn map(data: &[u8]) {
    let Ok(map) = serde_json::from_slice::<CollectorMap>(data) else {
        return;
    };
    assert_eq!(
        serde_json::from_str::<CollectorMap>(&map.to_text()).as_ref().ok(),
        Some(&map)
    );
    let spread = match map.spread() {
        Ok(spread) => spread,
        Err(error) => return assert!(!error.is_empty()),
    };
    assert_eq!(map.shares().iter().sum::<usize>(), 256);
    assert!(map.collector_of_sketches().is_some());
    let key = Key::new(&data[data.len().saturating_sub(13)..]);
    let queried = map.collectors_of_key(&key);
    assert!((1..=2).contains(&queried.len()));
    assert_eq!(
        *queried[0],
        map.collectors[usize::from(spread.of_key(key.bytes()))]
    );
    for list in [0, 1, data.len() as u32, u32::MAX] {
        assert!(map.collector_of_list(list).is_some());
    }
    let new = dta::collector_map::Collector {
        name: "\u{1f}new".to_owned(),
        api: String::new(),
        reports: None,
    };
    if let Ok((grown, moved)) = map.grown(new, 4) {
        let (before, after) = (spread.by_key(), grown.spread().map(|spread| *spread.by_key()));
        let after = after.unwrap_or_else(|error| panic!("{error}"));
        let differ: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|(old, new)| old != new)
            .collect();
        assert_eq!(differ.len(), moved);
        assert!(
            differ
                .iter()
                .all(|(_, new)| usize::from(**new) == map.collectors.len())
        );
        (0..4).for_each(|list| assert_eq!(grown.collector_of_list(list), map.collector_of_list(list)));
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn keys_in_text_form() {
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
    fuzz(key, 1, &owned(&examples));
}

#[test]
fn fields_in_text_form() {
    let examples = [
        "src:ipv4 dst:ipv4 sport:u16 dport:u16 proto:u8 node:u32 reason:u8\0\x0a\0\0\x01\x0a\0\0\x02 and more",
        "u32[5]\0twenty bytes of data",
        "a:u64, b:ipv6 c:mac d:hex[3]\0short",
        "x:u8[256]",
    ];
    fuzz(fields, 2, &owned(&examples));
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
        map.grown(named(&format!("n{number}")), number)
            .unwrap_or_else(|error| panic!("{error}"))
            .0
    });
    fuzz(map, 4, &[one.to_text(), grown.to_text()]);
}
