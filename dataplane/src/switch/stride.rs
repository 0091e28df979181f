//! The common packets in one stride: what a transit node and a sink do with INT-MD 2.x and SF-INT where [`direct`] has read the
//! headers, there is room, and nothing else is asked for. All of them could go the general way too, and come out the same:
//! the tests of the switch send every packet both ways.
//!
//! Checksums are mended by sums of what went in and out (RFC 1624), which are made where the bytes are written.
//!
//! [`direct`]: crate::packet::direct

use wire::checksum::{less, mended, words};
use wire::int::header::{self, Header};
use wire::int::{Sf, Stack, shim};
use wire::packet::Mark;
use wire::{tcp, udp};

use super::{Done, Measured, Switch, Verdict, Visit};
use crate::packet::direct::{Common, Int};
use crate::packet::{Headers, UDP};
use crate::report::{Outbox, Told};
use crate::sf::{self, Arrival, Form, Traded};

const HEADS: usize = shim::LEN + header::LEN_2;

impl Switch {
    /// Does what is to be done with a common packet; `None`: nothing is done yet, and the general way is to be gone.
    #[inline(always)]
    pub(super) fn stride(
        &mut self,
        frame: &mut Vec<u8>,
        common: Common,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Option<Measured> {
        let int = common.int.filter(|_| self.strides && self.roles.entries().is_empty())?;
        if visit.to_edge {
            if self.dta.is_some() {
                return None;
            }
            self.tell_at_once(frame, common, int, visit, out)
        } else if int.is_single() {
            self.trade_at_once(frame, common, int, visit)
        } else {
            self.push_at_once(frame, common, int, visit)
        }
    }

    /// INT-MD, or SF-INT that is urgent: this node's record before the others.
    #[inline(always)]
    fn push_at_once(&self, frame: &mut Vec<u8>, common: Common, int: Int, visit: &Visit) -> Option<Measured> {
        let len = usize::from(int.hop_ml) * 4;
        let headers = common.headers;
        let fits = int.remaining > 0
            && common.ip_end - headers.ip + len <= usize::from(visit.mtu)
            && usize::from(int.words) + usize::from(int.hop_ml) <= 0xff;
        if !fits || headers.has_option() {
            return None;
        }
        let at = int.shim + HEADS;
        open(frame, at, len);
        let (head, rest) = frame.split_at_mut_checked(at)?;
        let sum = visit.write_record(self.node, int.bitmap, self.config.available, rest.get_mut(..len)?);
        let heads = head.last_chunk_mut::<HEADS>()?;
        heads[1] = int.words.wrapping_add(int.hop_ml);
        heads[shim::LEN + 3] = int.remaining.wrapping_sub(1);
        let grown = sum + u64::from(int.hop_ml) + less(1);
        lengthen(head, headers, common.ip_end - headers.ip + len, None);
        mend_l4(head, headers, Some(len as u16), grown, None);
        Some(Measured { sf: int.sf(), ..Measured::forward(Done::Recorded) })
    }

    /// SF-INT: the record that arrives against the one in the register.
    #[inline(always)]
    fn trade_at_once(
        &mut self,
        frame: &mut [u8],
        common: Common,
        int: Int,
        visit: &Visit,
    ) -> Option<Measured> {
        let Self { registers, stats, node, config, .. } = self;
        let sf = int.sf().filter(|_| int.remaining > 0)?;
        let tag = common.flow_id(frame)?;
        let (head, rest) = frame.split_at_mut_checked(int.shim + HEADS)?;
        let record = rest.get_mut(..usize::from(int.hop_ml) * 4)?;
        let arrival = Arrival { tag, sf, bitmap: int.bitmap, record, now: visit.egress_ts };
        let own = |record: &mut [u8]| visit.write_record(*node, int.bitmap, config.available, record);
        let Traded { rule, sf: after, sums } = registers.trade(arrival, own);
        stats.sf_rules[usize::from(rule.number) % 10] += 1;
        let own = rule.forward.0 == sf::Forward::Own;
        let heads = head.last_chunk_mut::<{ header::LEN_2 }>()?;
        if let Ok(mut head) = Header::new_checked(&mut heads[..]) {
            head.set_sf(after);
            head.set_remaining(int.remaining - u8::from(own));
        }
        if !common.headers.has_option() {
            const STATE: u32 = 5; // where its bits are in the first 16
            let said = |sf: Sf| (u64::from(sf.state as u8) << STATE) + u64::from(sf.packet_id);
            let changed = said(after) + sums.1 + less(said(sf) + sums.0 + u64::from(own));
            mend_l4(head, common.headers, None, changed, None);
        }
        let done = if own { Done::Recorded } else { Done::Traded };
        Some(Measured { sf: Some(after), ..Measured::forward(done) })
    }

    /// The sink of either: reports, if no filter hides it, and takes INT out.
    #[inline(always)]
    fn tell_at_once(
        &mut self,
        frame: &mut Vec<u8>,
        common: Common,
        int: Int,
        visit: &Visit,
        out: &mut Outbox,
    ) -> Option<Measured> {
        let other_form =
            if int.is_single() { self.config.sf.form != Form::Full } else { self.config.format.own_on_stack };
        let told = Told::at_once(frame, common, int);
        if other_form || common.headers.has_option() || !self.exporter.is_direct(&told) {
            return None;
        }
        let hidden =
            !self.filters.is_empty() && int.sf().is_none() && self.hides_at_once(frame, common, int, visit);
        if !hidden {
            let (node, bits) = (self.node, int.bitmap & self.config.available);
            let own = |bits, record: &mut [u8]| {
                visit.write_record(node, bits, u16::MAX, record);
            };
            if !self.exporter.flow_report_direct(frame, &told, (bits, visit.egress_if), own, out) {
                return None;
            }
        }
        let done = if hidden { Done::Filtered } else { Done::Reported };
        strip(frame, common, int)?;
        let discard = int.flags().contains(wire::int::Flags::DISCARD);
        let verdict = if discard { Verdict::Discard } else { Verdict::Forward };
        Some(Measured { done, verdict, sf: int.sf().filter(|_| !hidden) })
    }

    /// Do the filters hide a packet?
    #[inline]
    fn hides_at_once(&mut self, frame: &[u8], common: Common, int: Int, visit: &Visit) -> bool {
        let Some(flow) = common.flow(frame) else { return false };
        let bytes = frame.get(int.shim + HEADS..int.end).unwrap_or_default();
        let layout = *self.cache.layout();
        let count = layout.records(bytes.len() / 4) as u8;
        self.hides_path(&flow, int.flags(), &Stack { bytes, layout, count }, int.bitmap, visit)
    }
}

/// Opens a gap of `len` bytes at `at`.
#[inline]
fn open(frame: &mut Vec<u8>, at: usize, len: usize) {
    let before = frame.len();
    if before - at >= len {
        frame.extend_from_within(before - len..);
        frame.copy_within(at..before - len, at + len);
    } else {
        frame.resize(before + len, 0);
        frame.copy_within(at..before, at + len);
    }
}

/// Takes INT out, and gives back port or DSCP.
#[inline(always)]
fn strip(frame: &mut Vec<u8>, common: Common, int: Int) -> Option<()> {
    let headers = common.headers;
    let len = int.end - int.shim;
    let gone = less(words(frame.get(int.shim..int.end)?));
    lengthen(
        frame,
        headers,
        common.ip_end - headers.ip - len,
        int.original.dscp.filter(|_| int.mark == Mark::Dscp),
    );
    mend_l4(
        frame,
        headers,
        Some((len as u16).wrapping_neg()),
        gone,
        int.original.port.filter(|_| int.mark == Mark::Port),
    );
    let end = frame.len();
    frame.copy_within(int.end..end, int.shim);
    frame.truncate(end - len);
    Some(())
}

/// Sets the length of the IP packet, and its DSCP if there is a new one.
#[inline(always)]
fn lengthen(frame: &mut [u8], headers: Headers, len: usize, dscp: Option<u8>) {
    const ECN: u8 = 0x03;
    const V4: usize = wire::ipv4::HEADER_LEN;
    const V6: usize = wire::ipv6::HEADER_LEN;
    let Some(rest) = frame.get_mut(headers.ip..) else { return };
    if headers.v6 {
        let Some(head) = rest.first_chunk_mut::<V6>() else { return };
        [head[4], head[5]] = (len.wrapping_sub(V6) as u16).to_be_bytes();
        if let Some(dscp) = dscp {
            head[0] = head[0] & 0xf0 | dscp >> 2;
            head[1] = dscp << 6 | head[1] & (ECN << 4 | 0x0f);
        }
        return;
    }
    let Some(head) = rest.first_chunk_mut::<V4>() else { return };
    let before = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
    [head[2], head[3]] = (len as u16).to_be_bytes();
    if let Some(dscp) = dscp {
        head[1] = dscp << 2 | head[1] & ECN;
    }
    let after = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
    let sum = mended(u16::from_be_bytes([head[10], head[11]]), after + less(before));
    [head[10], head[11]] = sum.to_be_bytes();
}

/// Mends the L4 checksum after what it covers has become more by `more`, and its length by `by`; UDP has that once more.
/// `dport` is UDP's new destination port. What is said at [`Headers`] of sums that are 0 goes for this too.
#[inline(always)]
fn mend_l4(frame: &mut [u8], headers: Headers, by: Option<u16>, more: u64, dst_port: Option<u16>) {
    let Some(rest) = frame.get_mut(headers.l4..) else { return };
    let by = by.unwrap_or(0);
    // A length that has become less has become more by its complement, less one.
    let longer = if by >> 15 == 0 { u64::from(by) } else { less(u64::from(by.wrapping_neg())) };
    if headers.proto != UDP {
        if let Some(head) = rest.first_chunk_mut::<{ tcp::HEADER_LEN }>() {
            let sum = mended(u16::from_be_bytes([head[16], head[17]]), more + longer);
            [head[16], head[17]] = sum.to_be_bytes();
        }
        return;
    }
    let Some(head) = rest.first_chunk_mut::<{ udp::HEADER_LEN }>() else { return };
    [head[4], head[5]] = u16::from_be_bytes([head[4], head[5]]).wrapping_add(by).to_be_bytes();
    let mut more = more + longer * 2;
    if let Some(port) = dst_port {
        more += u64::from(port) + less(u64::from(u16::from_be_bytes([head[2], head[3]])));
        [head[2], head[3]] = port.to_be_bytes();
    }
    let old = u16::from_be_bytes([head[6], head[7]]);
    if old != 0 {
        let sum = mended(old, more);
        [head[6], head[7]] = if sum == 0 { 0xffff } else { sum }.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use detect::Match;

    use super::*;
    use crate::switch::{Config, Stats, Step};
    use crate::watchlist::{Mode, Watch, Watchlist};
    use crate::workload::{Task, Workload, template};

    /// What a switch has made of a packet.
    type Made = (Step, Vec<u8>, Vec<Vec<u8>>, Stats);

    struct Way {
        switch: Switch,
        outbox: Outbox,
    }

    impl Way {
        fn new(strides: bool, port: Option<u16>, single: bool) -> Self {
            let mut config =
                Config { sf: sf::Config { single, ..sf::Config::default() }, ..Config::default() };
            config.mark.port = port;
            let mut switch = Switch::new(9, config, Watchlist::default()).unwrap();
            switch.strides = strides;
            Self { switch, outbox: Outbox::default() }
        }

        fn go(&mut self, frame: &[u8], visit: &Visit) -> Made {
            let mut frame = frame.to_vec();
            self.outbox.clear();
            let step = self.switch.forward(&mut frame, visit, &mut self.outbox);
            let told = self.outbox.datagrams().map(|datagram| datagram.payload.to_vec()).collect();
            (step, frame, told, *self.switch.stats())
        }
    }

    /// Packets of UDP and TCP behind a few nodes, with both marks, urgent ones too.
    fn frames(visit: &Visit) -> Vec<Vec<u8>> {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for (_, task) in Task::ALL {
            for v6 in [false, true] {
                frames.extend(Workload::new(task, v6).unwrap().frames().iter().take(3).cloned());
            }
        }
        for (mode, port, v6) in [
            (Mode::Md21, Some(5000), false),
            (Mode::Md21, Some(5000), true),
            (Mode::Sf, Some(5000), false),
            (Mode::Sf, None, false),
            (Mode::Sf, None, true),
        ] {
            let watch = Watch { mode, ..Watch::new(Match::default()) };
            let mut config = Config::default();
            config.mark.port = port;
            config.sf.urgent.every = Some(2);
            let mut source = Switch::new(1, config, Watchlist::from(watch)).unwrap();
            for flow in [1, 1, 2] {
                let mut frame = template(flow, v6);
                source.forward(&mut frame, &Visit { from_edge: true, ..*visit }, &mut Outbox::default());
                frames.push(frame);
            }
        }
        frames.push(template(7, false));
        // TCP: the bytes of UDP's length and checksum are part of the sequence number there.
        for at in 0..frames.len() {
            let (proto, v6) = (frames[at][23], frames[at][14] >> 4 == 6);
            if proto == UDP && !v6 {
                let mut tcp = frames[at].clone();
                tcp[23] = 6;
                let place = 42..42;
                tcp.splice(place, [0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0x12, 0x34, 0, 0]);
                let len = (tcp.len() - 14) as u16;
                tcp[16..18].copy_from_slice(&len.to_be_bytes());
                wire::ipv4::Packet::new_checked(&mut tcp[14..]).unwrap().fill_checksum();
                frames.push(tcp);
            }
        }
        frames
    }

    #[test]
    fn at_once_is_as_the_general_way() {
        let mut state = 3_u64;
        let mut dice = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let visit = Visit {
            ingress_if: 1,
            egress_if: 0,
            ingress_ts: 0x17a3_b2c1_ffff_ff00,
            egress_ts: 0x17a3_b2c2_0000_05dc,
            queue_id: 1,
            queue_occupancy: 0xffff_ffff,
            tx_utilization: 0xffff_0000,
            mtu: 1500,
            from_edge: false,
            to_edge: false,
        };
        let frames = frames(&visit);
        let mut done = Stats::default();
        for (port, single) in [(None, false), (Some(5000), false), (None, true)] {
            let [mut fast, mut slow] = [true, false].map(|strides| Way::new(strides, port, single));
            for round in 0..400 {
                for frame in &frames {
                    let mut frame = frame.clone();
                    for _ in 0..round % 4 {
                        let at = dice() % frame.len().min(110);
                        frame[at] = [0, 0xff, dice() as u8, frame[at] ^ 1 << (dice() % 8)][dice() % 4];
                    }
                    if round % 4 > 0
                        && let Ok(mut header) = wire::ipv4::Packet::new_checked(&mut frame[14..])
                    {
                        header.fill_checksum();
                    }
                    let mtu = [1500, 160 + dice() as u16 % 64][dice() % 2];
                    let egress_ts = visit.egress_ts + dice() as u64 % (1 << 31);
                    let visit = Visit { mtu, egress_ts, to_edge: dice() % 3 == 0, ..visit };
                    assert_eq!(fast.go(&frame, &visit), slow.go(&frame, &visit), "{frame:02x?}");
                }
            }
            let stats = fast.switch.stats();
            done.recorded += stats.recorded;
            done.traded += stats.traded;
            done.reported += stats.reported;
            done.refused += stats.refused;
        }
        let least = [done.recorded, done.traded, done.reported, done.refused].into_iter().min();
        assert!(least > Some(500), "{done:?}");
    }
}
