use super::*;
use crate::dta::Condition;
use crate::dta::context::{Counter, PacketFacts, Trigger, Window};

fn field(text: &str) -> Field {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn data(text: &str, context: &Context<'_>) -> Result<Vec<u8>, ValueError> {
    let mut bytes = [0xa5; 64];
    let subject = ReportedHop {
        hop: context.last_hop(),
        number: 3,
    };
    let len = write_data(
        &[field(text)],
        context,
        &subject,
        0x1122_3344_5566_7788,
        &mut bytes,
    )?;
    Ok(bytes[..len].to_vec())
}

fn key(text: &str, context: &Context<'_>) -> Result<Vec<u8>, ValueError> {
    let mut bytes = [0xa5; 64];
    let subject = ReportedHop {
        hop: context.last_hop(),
        number: 3,
    };
    let len = write_key(
        &[field(text)],
        context,
        &subject,
        0x1122_3344_5566_7788,
        &mut bytes,
    )?;
    Ok(bytes[..len].to_vec())
}

#[test]
fn a_field_reads_back_as_it_is_written() {
    for text in [
        "flow",
        "flow6",
        "src",
        "dst6",
        "key",
        "key[13]",
        "top_key[4]",
        "node",
        "node[5]",
        "7:u32",
    ] {
        assert_eq!(field(text).to_string(), text);
    }
    assert_eq!(field(" hop_latency : u16 ").to_string(), "hop_latency:u16");
    assert_eq!(field("hop_latency[3]:u24").to_string(), "hop_latency[3]:u24");
    assert_eq!(field("sport:u16").to_string(), "sport");
    assert_eq!(field("0xff:u8").to_string(), "255:u8");
    for (name, ..) in NUMBERS.iter().filter(|(name, ..)| !name.starts_with("pint")) {
        assert_eq!(field(name).to_string(), *name);
    }
}

#[test]
fn invalid_fields_are_refused_with_the_cause() {
    let reported = |text: &str| text.parse::<Field>().map(|field| field.to_string()).unwrap_err();
    assert_eq!(reported("flwo"), FieldError::Unknown("flwo".to_owned()));
    assert_eq!(reported("node:32"), FieldError::Width("32".to_owned()));
    assert_eq!(reported("node:u12"), FieldError::Width("u12".to_owned()));
    assert_eq!(reported("300:u8"), FieldError::Width("300:u8".to_owned()));
    assert_eq!(reported("7"), FieldError::Width("7".to_owned()));
    assert_eq!(reported("flow:u8"), FieldError::Fixed("flow:u8".to_owned()));
    assert_eq!(reported("sport[2]"), FieldError::Fixed("sport[2]".to_owned()));
    assert_eq!(reported("node[0]"), FieldError::Brackets("node".to_owned(), 255));
    assert_eq!(reported("pint_n"), FieldError::Brackets("pint_n".to_owned(), 255));
    assert_eq!(
        reported("top_key"),
        FieldError::Brackets("top_key".to_owned(), 40)
    );
    assert_eq!(reported("key[41]"), FieldError::Brackets("key".to_owned(), 40));
}

#[test]
fn the_canonical_key_is_that_of_wire_formats_5_6() {
    let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1234, 80)), 6);
    let context = Context {
        flow: Some(&flow),
        ..Context::new(Trigger::Path, 7)
    };
    let bytes = [0x0a, 0, 0, 1, 0x0a, 0, 0, 2, 0x04, 0xd2, 0, 0x50, 6];
    assert_eq!(key("flow", &context).as_deref(), Ok(&bytes[..]));
    assert_eq!(data("flow", &context).as_deref(), Ok(&bytes[..]));
    assert_eq!(data("src", &context), Ok(vec![10, 0, 0, 1]));
    assert_eq!(
        data("dst6", &context),
        Ok([[0; 12], [0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]]
            .concat()
            .split_at(8)
            .1
            .iter()
            .enumerate()
            .map(|(i, byte)| if i == 10 || i == 11 { 0xff } else { *byte })
            .collect())
    );
}

#[test]
fn ipv6_has_a_long_key_and_no_place_in_short_data() {
    let flow = FlowKey::v6([0x20; 16], [0x21; 16], Some((1, 2)), 17);
    let context = Context {
        flow: Some(&flow),
        ..Context::new(Trigger::Path, 7)
    };
    assert_eq!(key("flow", &context).map(|key| key.len()), Ok(37));
    assert_eq!(key("src", &context), Ok(vec![0x20; 16]));
    assert_eq!(
        (data("flow", &context), data("src", &context)),
        (Err(ValueError::Size), Err(ValueError::Size))
    );
    assert_eq!(data("flow6", &context).map(|key| key.len()), Ok(37));
    let id = FlowKey::of_id(7);
    let context = Context {
        flow: Some(&id),
        ..context
    };
    assert_eq!(
        (key("flow", &context), data("flow6", &context)),
        (Err(ValueError::Absent), Err(ValueError::Absent))
    );
}

#[test]
fn numbers_are_encoded_in_the_given_width() {
    let metadata = Hop {
        node_id: Some(11),
        hop_latency: Some(0x0102_0304),
        queue_id: Some(5),
        ingress_ts: Some(0x1_0000_0002),
        ..Hop::default()
    };
    let context = Context {
        metadata: Some(&metadata),
        reason: Some(0xff),
        ..Context::new(Trigger::Drop, 11)
    };
    assert_eq!(data("hop_latency", &context), Ok(vec![1, 2, 3, 4]));
    assert_eq!(data("hop_latency:u48", &context), Ok(vec![0, 0, 1, 2, 3, 4]));
    assert_eq!(
        data("hop_latency:u16", &context),
        Ok(vec![0xff, 0xfe]),
        "too large is not the same as unknown"
    );
    assert_eq!(
        data("ingress_ts:u32", &context),
        Ok(vec![0, 0, 0, 2]),
        "of times the low bits"
    );
    assert_eq!(data("time:u16", &context), Ok(vec![0x77, 0x88]));
    assert_eq!(data("egress_ts:u16", &context), Ok(vec![0xff, 0xff]), "unknown");
    assert_eq!(key("egress_ts:u16", &context), Err(ValueError::Absent));
    assert_eq!(data("reason", &context), Ok(vec![0xff]));
    assert_eq!(data("hop", &context), Ok(vec![3]));
    assert_eq!(data("0x1234:u24", &context), Ok(vec![0, 0x12, 0x34]));
}

#[test]
fn a_list_is_the_path_from_its_source() {
    let layout = wire::int::Layout::int_2(0xa000, 2, false).unwrap();
    // Node and hop latency; the most recent hop first.
    let bytes = [0, 0, 0, 12, 0, 0, 0, 200, 0, 0, 0, 11, 0xff, 0xff, 0xff, 0xff];
    let stack = wire::int::Stack {
        bytes: &bytes,
        layout,
        count: 2,
    };
    let metadata = Hop {
        node_id: Some(13),
        hop_latency: Some(70_000),
        ..Hop::default()
    };
    let context = Context {
        stack,
        metadata: Some(&metadata),
        ..Context::new(Trigger::Path, 13)
    };
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<_>>()
    };
    assert_eq!(data("node[5]", &context), Ok(words(&[11, 12, 13, 0, 0])));
    assert_eq!(data("node[2]", &context), Ok(words(&[11, 12])));
    assert_eq!(
        data("hop_latency[3]:u16", &context),
        Ok(vec![0xff, 0xff, 0, 200, 0xff, 0xfe])
    );
    assert_eq!(data("path_len", &context), Ok(vec![3]));
    assert_eq!(
        data("flow_latency", &context),
        Ok(vec![0xff; 4]),
        "one hop has no value"
    );
    let context = Context {
        stack: wire::int::Stack {
            bytes: &bytes[..8],
            count: 1,
            ..stack
        },
        ..context
    };
    assert_eq!(data("flow_latency", &context), Ok(words(&[70_200])));
}

#[test]
fn a_tables_record_and_window_can_be_fields() {
    let since = Sums {
        packets: 90,
        bytes: 9000,
        drops: 10,
    };
    let total = Sums {
        packets: 1000,
        bytes: 90_000,
        drops: 10,
    };
    let counter = Counter {
        key: &[1, 2, 3, 4],
        since,
        total,
        first: 1,
        last: 2,
    };
    let context = Context {
        counter: Some(&counter),
        ..Context::new(Trigger::Evicted, 7)
    };
    assert_eq!(
        (key("key", &context), data("key[4]", &context)),
        (Ok(vec![1, 2, 3, 4]), Ok(vec![1, 2, 3, 4]))
    );
    assert_eq!(data("key[13]", &context), Err(ValueError::Size));
    assert_eq!(data("packets:u8", &context), Ok(vec![90]));
    assert_eq!(data("total_packets:u16", &context), Ok(vec![3, 0xe8]));
    assert_eq!(
        data("loss_rate", &context),
        Ok(100_000_u32.to_be_bytes().to_vec())
    );
    let window = Window {
        keys: 3,
        sums: since,
        top_key: &[9, 8],
        top: total,
    };
    let context = Context {
        window: Some(&window),
        ..Context::new(Trigger::Window, 7)
    };
    assert_eq!(data("top_key[4]", &context), Ok(vec![9, 8, 0, 0]));
    assert_eq!(
        (data("keys:u8", &context), data("top_packets:u16", &context)),
        (Ok(vec![3]), Ok(vec![3, 0xe8]))
    );
    assert_eq!(
        data("total_packets:u8", &context),
        Ok(vec![0xff]),
        "a window has no such"
    );
}

#[test]
fn conditions_compare_what_is_known() {
    let metadata = Hop {
        node_id: Some(11),
        hop_latency: Some(500_000),
        ..Hop::default()
    };
    let packet = PacketFacts {
        bytes: 64,
        ..PacketFacts::default()
    };
    let context = Context {
        metadata: Some(&metadata),
        packet,
        ..Context::new(Trigger::Hop, 11)
    };
    let subject = ReportedHop {
        hop: context.last_hop(),
        number: 0,
    };
    let met = |text: &str| text.parse::<Condition>().unwrap().is_met(&context, &subject, 0);
    for text in [
        "hop_latency >= 500us",
        "hop_latency == 500_000",
        "hop_latency<1ms",
        "packet_bytes <= 64",
    ] {
        assert!(met(text), "{text}");
    }
    for text in [
        "hop_latency != 500us",
        "hop_latency > 500us",
        "queue_occupancy >= 0",
        "reason == 1",
    ] {
        assert!(!met(text), "{text}");
    }
    let shown = "hop_latency>=500us".parse::<Condition>().unwrap().to_string();
    assert_eq!(shown, "hop_latency >= 500000");
    for text in [
        "",
        "hop_latency",
        "hop_latency = 5",
        "flow > 5",
        "node[3] > 5",
        "hop_latency > 5 weeks",
    ] {
        assert!(text.parse::<Condition>().is_err(), "{text}");
    }
}
