//! The fuzz target of capture files, as a plain function that any driver, or a test, can call.

use super::{MAX_PACKET, Reader, Writer};

/// Maximum number of frames checked per input: a small gzipped file can contain very many.
const MAX_FRAMES: usize = 4096;

/// Reads `data` as a capture and checks these properties: no frame exceeds the length limit; at most one error is returned, as
/// the last item; and the frames survive being written and read again.
///
/// # Panics
/// Panics if one of these properties does not hold.
pub fn capture(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else { return };
    let mut copies = Vec::new();
    let mut accepted = Vec::new();
    for _ in 0..MAX_FRAMES {
        match reader.next() {
            None => break,
            Some(Err(error)) => {
                assert!(!error.to_string().is_empty());
                assert!(reader.next().is_none(), "nothing comes after an error");
                break;
            }
            Some(Ok(frame)) => {
                assert!(frame.data.len() <= MAX_PACKET);
                assert_eq!(frame.truncated, frame.length as usize > frame.data.len());
                let _ = frame.layer();
                copies.push((frame.ts, frame.data.to_vec(), frame.length, frame.link));
            }
        }
    }
    assert!(reader.bytes_read() <= data.len() as u64);
    // A pcap file has one link type.
    let Some(link) = copies.first().map(|first| first.3) else {
        return;
    };
    let mut writer = Writer::new(Vec::new(), link).expect("memory takes everything");
    for (ts, data, length, _) in &copies {
        if writer.write_cut(*ts, data, *length).is_ok() {
            accepted.push((*ts, data.as_slice(), *length));
        } else {
            assert!(
                *ts / 1_000_000_000 > u64::from(u32::MAX),
                "only times after 2106 are refused"
            );
        }
    }
    let written = writer.finish().expect("memory takes everything");
    let mut again = Reader::new(written.as_slice()).expect("what we write is a capture");
    for expected in accepted {
        let frame = again
            .next()
            .expect("no frame is lost")
            .expect("no frame is damaged");
        assert_eq!((frame.ts, frame.data, frame.length), expected);
    }
    assert!(again.next().is_none());
}
