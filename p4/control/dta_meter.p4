// SPDX-License-Identifier: Apache-2.0 OR MIT
// Meters: leaky buckets that fill with operations or reports, and leak with time; their levels are the time that they need to run empty. A full
// bucket is congestion, of which senders get notices. Registers, not the target's meters: they have the arithmetic of the translator in Rust.

#ifndef DTA_METER_P4
#define DTA_METER_P4

/// Fractional bits of a level in ns, and its maximum in ns.
#define METER_FRACTION 16
const bit<64> METER_LONGEST = 64w1 << 46;
/// Bytes of a write around its data, as far as the meter counts them.
const bit<64> METER_OVERHEAD = 74;

/// Of a collector: operations, bytes, when they leaked last, and the level of congestion.
register<bit<64>>(DTA_COLLECTORS) messages_of;
register<bit<64>>(DTA_COLLECTORS) bytes_of;
register<bit<48>>(DTA_COLLECTORS) leaked_at;
register<bit<2>>(DTA_COLLECTORS) congestion_of;

/// Of a sender: its bucket, and when it leaked; the last notice: level, end, time and cause; its reports that were dropped since, and when it was
/// seen. The last place is of all others together.
register<bit<64>>(DTA_SENDERS + 1) rate_of;
register<bit<48>>(DTA_SENDERS + 1) rate_at;
register<bit<2>>(DTA_SENDERS) notified_of;
register<bit<48>>(DTA_SENDERS) notified_until;
register<bit<48>>(DTA_SENDERS) notified_at;
register<bit<1>>(DTA_SENDERS) notified_by_rate;
register<bit<32>>(DTA_SENDERS) dropped_of;
register<bit<48>>(DTA_SENDERS) sender_seen_at;

/// What leaks in a time of microseconds, and what remains.
#define LEAK(level, elapsed) { \
    bit<64> leaked = (bit<64>)(elapsed) * 1000; \
    if (leaked > METER_LONGEST) { leaked = METER_LONGEST; } \
    leaked = leaked << METER_FRACTION; \
    level = level > leaked ? level - leaked : 0; \
}
#define FILL(level, more) { level = level + (more); if (level < (more)) { level = 0xffffffffffffffff; } }

/// Whether a sender's rate admits one more report. `cost` 0: no limit.
control Rate(in bit<32> sender, in bit<48> now, in bit<48> idle, in bit<64> cost, in bit<64> most, out bit<1> exceeds) {
    apply {
        exceeds = 0;
        if (sender < DTA_SENDERS) {
            bit<48> seen;
            sender_seen_at.read(seen, sender);
            if (now - seen >= idle) {
                rate_of.write(sender, 0);
                rate_at.write(sender, 0);
                notified_of.write(sender, 0);
                notified_until.write(sender, 0);
                dropped_of.write(sender, 0);
            }
        }
        if (cost != 0) {
            bit<64> level;
            bit<48> at;
            rate_of.read(level, sender);
            rate_at.read(at, sender);
            LEAK(level, now - at)
            FILL(level, cost)
            if (level > most) {
                exceeds = 1;
                level = level - cost;
            }
            rate_of.write(sender, level);
            rate_at.write(sender, now);
            if (sender < DTA_SENDERS) { sender_seen_at.write(sender, now); }
        }
    }
}

/// The level of a collector's congestion, 0 to 3. It rises at once, and falls with hysteresis.
control Level(in bit<32> collector, in bit<48> now, in bit<1> evaluates, out bit<2> level, out bit<64> message_cost, out bit<64> byte_cost) {
    bit<64> full = 0;

    /// Costs of an operation and of a byte, and the burst, in ns with 16 bits of fraction; 0: no limit.
    @name("meter_by") @id(0x0100004a)
    action meter_by(@id(1) bit<64> message, @id(2) bit<64> byte, @id(3) bit<64> burst) {
        message_cost = message;
        byte_cost = byte;
        full = burst;
    }

    /// Rates of collectors.
    @name("collector_rate") @id(0x02000048)
    table collector_rate {
        key = { collector : exact @name("collector"); }
        actions = { meter_by; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DTA_COLLECTORS;
    }

    apply {
        level = 0;
        message_cost = 0;
        byte_cost = 0;
        collector_rate.apply();
        if (evaluates == 1 && (message_cost | byte_cost) != 0) {
            bit<64> messages;
            bit<64> bytes;
            bit<48> at;
            messages_of.read(messages, collector);
            bytes_of.read(bytes, collector);
            leaked_at.read(at, collector);
            congestion_of.read(level, collector);
            LEAK(messages, now - at)
            LEAK(bytes, now - at)
            messages_of.write(collector, messages);
            bytes_of.write(collector, bytes);
            leaked_at.write(collector, now);
            bit<64> fill = messages > bytes ? messages : bytes;
            bit<64> slack = full >> 3;
            bit<64> first = full >> 1;
            bit<64> second = (full >> 2) * 3;
            bit<64> third = (full >> 4) * 15;
            bit<2> above = 0;
            if (fill > first) { above = 1; }
            if (fill > second) { above = 2; }
            if (fill > third) { above = 3; }
            bit<2> near = 0;
            if (fill > first - slack) { near = 1; }
            if (fill > second - slack) { near = 2; }
            if (fill > third - slack) { near = 3; }
            if (level > near) { level = near; }
            if (level < above) { level = above; }
            congestion_of.write(collector, level);
        }
    }
}

/// Counts operations to a collector, each with so many bytes of data.
control Spend(in bit<32> collector, in bit<64> message_cost, in bit<64> byte_cost, in bit<64> operations, in bit<64> data) {
    apply {
        if ((message_cost | byte_cost) != 0) {
            bit<64> level;
            messages_of.read(level, collector);
            FILL(level, message_cost * operations)
            messages_of.write(collector, level);
            bytes_of.read(level, collector);
            FILL(level, byte_cost * (operations * (data + METER_OVERHEAD)))
            bytes_of.write(collector, level);
        }
    }
}

/// A report was dropped because of congestion, or met none: whether its sender gets a notice, and how many of its reports were dropped since the
/// last one. A notice is repeated after half of its time; another level sooner, but not with each report. The end of congestion ends no notice of
/// the sender's own rate.
control Notices(in bit<32> sender, in bit<48> now, in bit<48> hold, in bit<2> level, in bit<1> by_rate, in bit<1> is_dropped,
        out bit<1> is_due, out bit<32> dropped) {
    apply {
        bit<2> notified;
        bit<48> until;
        bit<48> at;
        notified_of.read(notified, sender);
        notified_until.read(until, sender);
        notified_at.read(at, sender);
        dropped_of.read(dropped, sender);
        bit<48> since = now - at;
        is_due = 0;
        if (is_dropped == 1) {
            sender_seen_at.write(sender, now);
            if (dropped != 0xffffffff) { dropped = dropped + 1; }
            bit<48> wait = notified == level ? hold >> 1 : hold >> 4;
            if (until == 0 || since >= wait) {
                is_due = 1;
                notified_of.write(sender, level);
                notified_until.write(sender, now + hold);
                notified_by_rate.write(sender, by_rate);
            }
        } else {
            bit<1> was_by_rate;
            notified_by_rate.read(was_by_rate, sender);
            if (notified != 0 && was_by_rate == 0 && now < until) {
                is_due = 1;
                notified_of.write(sender, 0);
            }
        }
        dropped_of.write(sender, is_due == 1 ? 32w0 : dropped);
        if (is_due == 1) { notified_at.write(sender, now); }
    }
}

#endif
