//! LLDPDUs: known bytes, known values, in both directions, and truncated at every length.

use testkit::vectors::{self, Kind};
use wire::lldp::{Id, Lldpdu, chassis, port};
use wire::{EmitError, Refusal};

const BYTES: &[u8] =
    b"\x02\x07\x04\x02\x68\0\0\0\x0b\x04\x05\x05s1p2\x06\x02\0\x79\x08\x06port 2\x0a\x02s1\0\0";

fn lldpdu() -> Lldpdu<'static> {
    Lldpdu {
        chassis: Id {
            subtype: chassis::MAC,
            bytes: &[2, 0x68, 0, 0, 0, 0x0b],
        },
        port: Id {
            subtype: port::INTERFACE_NAME,
            bytes: b"s1p2",
        },
        ttl: 121,
        port_description: Some(b"port 2"),
        system_name: Some(b"s1"),
    }
}

#[test]
fn an_lldpdu_is_read_and_written() {
    assert_eq!(Lldpdu::parse(BYTES), Ok(lldpdu()));
    let mut out = [0xa5; 64];
    assert_eq!(lldpdu().emit(&mut out), Ok(BYTES.len()));
    assert_eq!(&out[..BYTES.len()], BYTES);
    assert_eq!(
        out[BYTES.len()..],
        [0xa5; 64][BYTES.len()..],
        "nothing behind it is written"
    );
    let mut short = [0xa5; 30];
    assert_eq!(lldpdu().emit(&mut short), Err(EmitError::Short(BYTES.len())));
    assert_eq!(short, [0xa5; 30]);
    let long = [b'x'; 256];
    let invalid = Err(EmitError::Invalid(Refusal::BadLldp));
    for wrong in [
        Lldpdu {
            system_name: Some(&long),
            ..lldpdu()
        },
        Lldpdu {
            port: Id {
                subtype: port::LOCAL,
                bytes: &long,
            },
            ..lldpdu()
        },
        Lldpdu {
            chassis: Id {
                subtype: chassis::LOCAL,
                bytes: &[],
            },
            ..lldpdu()
        },
    ] {
        assert_eq!(wrong.emit(&mut [0; 1500]), invalid);
    }
}

#[test]
fn a_truncated_lldpdu_is_refused() {
    let mut cut = 0;
    for vector in vectors::all()
        .into_iter()
        .filter(|vector| vector.kind == Kind::Lldp)
    {
        let lldpdu = &vector.bytes[wire::ethernet::HEADER_LEN..];
        // Of one with padding, only what ends before the padding is truncated.
        let padding = lldpdu
            .iter()
            .rev()
            .take_while(|byte| **byte == 0)
            .count()
            .saturating_sub(2);
        for len in 0..lldpdu.len() - padding.min(10) {
            assert!(
                Lldpdu::parse(&lldpdu[..len]).is_err(),
                "{} cut at {len}",
                vector.name
            );
            cut += 1;
        }
    }
    assert!(cut > 1000, "{cut}");
}
