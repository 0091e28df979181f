//! Fuzz tests of trigger expressions, and of exchange messages with and without seals, over corrupted valid examples.

use testkit::texts::fuzz;
use translator::trigger_text as trigger;
use wire::dta::layout::Geometry;

use super::{
    Message, Received, Shape, read, read_nonce,
    secret::{Nonces, Seals, SecretFile, Side},
    write,
};

/// Trigger conditions and entry layouts either parse, or are refused with a message that quotes the problem.
fn triggers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for error in [trigger::conditions(&text).err(), trigger::parts(&text).err()]
        .into_iter()
        .flatten()
    {
        assert!(error.contains('`'), "{text:?}: {error}");
    }
}

/// The translator's and the collector's seals of a connection.
fn seals() -> [Seals; 2] {
    let nonces = Nonces {
        translator: [1; 32],
        collector: [2; 32],
    };
    let secret = SecretFile::fixed("0123456789abcdef").current();
    [Side::Translator, Side::Collector].map(|side| secret.seals(side, &nonces))
}

/// An unsealed line is either a message or refused with a reason. On a sealed connection only the line sealed for this
/// position is accepted.
fn line(data: &[u8]) {
    let [mut translator, mut collector] = seals();
    match read(data, None) {
        Received::Message(message) => {
            let sealed = write(&message, Some(&mut translator)).unwrap_or_default();
            assert_eq!(read(&sealed, Some(&mut collector)), Received::Message(message));
            assert_eq!(read(&sealed, Some(&mut collector)), Received::Forged, "repeated");
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

/// A message reads back as it was written. The geometry of an offered store fits into the offered length, or is refused.
fn message(data: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Message>(data) else {
        return;
    };
    let text = serde_json::to_vec(&message).unwrap_or_default();
    assert_eq!(
        serde_json::from_slice::<Message>(&text).ok().as_ref(),
        Some(&message)
    );
    let Message::Accept(accept) = message else { return };
    for offer in &accept.stores {
        offer.va();
        let Some(geometry) = offer.geometry() else {
            continue;
        };
        assert!(geometry.check().is_ok() && geometry.body_len() <= offer.length);
        let (next, swapped, reporters) = match &offer.shape {
            Shape::Append { next, swapped, .. } => (next.clone(), *swapped, 0),
            Shape::Sketch { reporters, .. } => (Vec::new(), false, *reporters),
            _ => (Vec::new(), false, 0),
        };
        assert_eq!(
            Shape::from_geometry(&geometry, next, swapped, reporters),
            offer.shape
        );
        if let Geometry::Append {
            lists, first_list, ..
        } = geometry
        {
            assert!(first_list.checked_add(lists - 1).is_some());
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn triggers_in_text_form() {
    let examples = [
        "value >= 1000 and data[0:4] != 0",
        "priority&1 == 0x1 and hop<3",
        "key[0:8] data[0:8] time",
        "value:4 7:1",
    ];
    fuzz(triggers, 3, &owned(&examples));
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
    let mut examples = owned(&[
        hello,
        refused,
        r#"{"type":"refused","reason":"no"}"#,
        r#"{"type":"keepalive"}"#,
    ]);
    examples.extend(stores.iter().map(|shape| accept(&store(shape))));
    examples.push(accept(&stores.map(store).join(",")));
    fuzz(message, 5, &examples);
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
    fuzz(line, 6, &examples);
}
