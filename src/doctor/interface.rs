//! Checks of an interface that is to be read by AF_XDP.

use nic::device::{Facts, Feature, Machine};

use super::{Check, Verdict, quoted, rung};
use terminal::units;

/// There is none of this name.
pub(super) fn missing(name: &str) -> Check {
    let why = "Until it is there, reports come in by UDP sockets alone.";
    Check::good("interface", format!("there is no {name}"), why)
        .with(Verdict::Blocking)
        .mended_by("ip -br link")
}

/// All checks, what the rest depends on first.
pub(super) fn checks(facts: &Facts, machine: &Machine) -> Vec<Check> {
    let mut checks = vec![link(facts), driver(facts), program(facts)];
    checks.extend(queues(facts, machine));
    checks.extend(peer_queues(facts));
    checks.extend(ring(facts));
    checks.extend(mtu(facts));
    checks.extend(joins(facts));
    checks.extend(vlan(facts));
    checks.extend(member(facts));
    checks.extend(lost(facts));
    checks
}

/// Those that matter to any program on it.
pub(super) fn of_programs(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![link(facts), driver(facts), program(facts)];
    checks.extend(peer_queues(facts));
    checks.extend(member(facts));
    checks
}

fn link(facts: &Facts) -> Check {
    let why = "Nothing arrives on an interface that is down or has nobody at its other end.";
    let check = |found: &str| Check::good("link", found, why);
    match (facts.up, facts.carrier) {
        (false, _) => check("down")
            .with(Verdict::Blocking)
            .mended_by(format!("ip link set dev {} up", quoted(&facts.name))),
        // Nothing to type: a cable, or the other end.
        (true, Some(false)) => check("up, but nobody is at the other end").with(Verdict::Blocking),
        (true, Some(true)) => check("up"),
        (true, None) => Check::unknown("link", why),
    }
}

fn driver(facts: &Facts) -> Check {
    let why = "A driver that runs programs itself is several times as fast as the kernel's generic way, which every interface has.";
    let driver = facts.driver.as_deref().unwrap_or("unnamed");
    let can = |what: &str| Check::good("driver", format!("{driver}: {what}"), why);
    match facts.xdp_features {
        None => {
            Check::unknown("driver", "Since Linux 6.3 the kernel says what a driver can; --try finds out.")
                .found(driver)
        }
        Some(features) if features.zero_copy() => can("native XDP, zero-copy"),
        Some(features) if features.native() && features.redirect() => can("native XDP, no zero-copy"),
        Some(_) => can("no native XDP").with(Verdict::Better),
    }
}

fn program(facts: &Facts) -> Check {
    let name = "xdp_program";
    let why = "An interface has room for one XDP program in the driver, or one in the kernel's stack.";
    let Some(programs) = &facts.xdp else { return Check::unknown(name, why) };
    let Some(first) = programs.first() else { return Check::good(name, "none", why) };
    let title = first.name.as_deref().unwrap_or("of unknown name");
    let found = format!("{title} (id {}, {})", first.id, first.mode.name());
    if first.ours == Some(true) {
        let why = "It is hopwise's own: another one reads this interface already, or this one does now.";
        return Check::good(name, found, why).with(Verdict::Blocking).mended_by("pgrep -a hopwise");
    }
    // `off` alone would not touch a program of another mode.
    let mode = match first.mode {
        nic::device::Mode::Native => "xdpdrv",
        nic::device::Mode::Generic => "xdpgeneric",
        nic::device::Mode::Offloaded => "xdpoffload",
    };
    let why = "An interface has room for one XDP program, and this is somebody else's: the command removes it, unless it is held \
               by a process (`bpftool link` names it).";
    Check::good(name, found, why)
        .with(Verdict::Blocking)
        .mended_by(format!("ip link set dev {} {mode} off", quoted(&facts.name)))
}

fn queues(facts: &Facts, machine: &Machine) -> Option<Check> {
    let name = "queues";
    let why = "Each queue is served by one processor; reports of one sender fill one queue, those of many spread over all.";
    let Some(queues) = facts.queues else {
        return facts.bus.is_some().then(|| Check::unknown(name, why));
    };
    let (now, max) = (queues.receiving(), queues.receiving_max());
    let check = Check::good(name, format!("{now} of at most {max}"), why);
    let useful = max.min(machine.cpus.unwrap_or(1));
    // The other end of a veth decides how many of its queues are used.
    if now >= useful || facts.peer.is_some() {
        return Some(check);
    }
    let kind = if queues.combined.max > 0 { "combined" } else { "rx" };
    let apart = if queues.combined.max > 0 { queues.rx.now } else { queues.combined.now };
    let wanted = useful.saturating_sub(apart).max(1);
    Some(check.with(Verdict::Better).mended_by(format!("ethtool -L {} {kind} {wanted}", quoted(&facts.name))))
}

/// A veth's native mode wants a receive queue for each that its peer sends on.
fn peer_queues(facts: &Facts) -> Option<Check> {
    let peer = facts.peer.as_ref()?;
    let why = "The driver runs no program when its peer sends on more queues than it receives on, or sends packets longer than a page.";
    let check = |found: String| Check::good("peer", found, why);
    if peer.elsewhere {
        let found = format!("number {} of another namespace, which cannot be seen from here", peer.index);
        return Some(Check::unknown("peer", why).found(found));
    }
    let named = peer.name.clone().unwrap_or_else(|| format!("number {}", peer.index));
    let (Some(sends), Some(queues)) = (peer.tx_queues, facts.queues) else {
        return Some(Check::unknown("peer", why).found(named));
    };
    if sends > queues.receiving() {
        let found =
            format!("{named} sends on {sends} queues, {} receives on {}", facts.name, queues.receiving());
        let mend = if queues.receiving_max() >= sends {
            format!("ethtool -L {} rx {sends}", quoted(&facts.name))
        } else {
            format!("ethtool -L {} tx {}", quoted(&named), queues.receiving())
        };
        return Some(check(found).with(Verdict::Blocking).mended_by(mend));
    }
    if peer.mtu.is_some_and(|mtu| rung::too_long(facts, mtu)) {
        let found = format!("{named} has an MTU of {}", peer.mtu.unwrap_or_default());
        let mend = format!("ip link set dev {} mtu {}", quoted(&named), rung::PAGE_MTU);
        return Some(check(found).with(Verdict::Blocking).mended_by(mend));
    }
    Some(check(format!("{named}, sends on {}", units::counted(sends.into(), "queue"))))
}

/// As many descriptors as a burst of a millisecond at some millions per second takes.
const RING: u32 = 4096;

fn ring(facts: &Facts) -> Option<Check> {
    let why = "Frames that arrive while the processor is elsewhere wait in the card's ring; what finds it full is lost.";
    let Some(level) = facts.rx_ring else {
        return facts.bus.is_some().then(|| Check::unknown("rx_ring", why));
    };
    let check = Check::good("rx_ring", format!("{} of at most {}", level.now, level.max), why);
    let wanted = level.max.min(RING);
    if level.now >= wanted {
        return Some(check);
    }
    Some(check.with(Verdict::Better).mended_by(format!("ethtool -G {} rx {wanted}", quoted(&facts.name))))
}

fn mtu(facts: &Facts) -> Option<Check> {
    let mtu = facts.mtu?;
    let why = "Most drivers that give programs no frames in several buffers refuse a program when a packet does not fit into one page.";
    let check = Check::good("mtu", mtu.to_string(), why);
    // Of a veth the peer's counts.
    if !rung::too_long(facts, mtu) || facts.peer.is_some() {
        return Some(check);
    }
    Some(check.with(Verdict::Better).mended_by(format!(
        "ip link set dev {} mtu {}",
        facts.name,
        rung::PAGE_MTU
    )))
}

/// Offloads that join packets before a program sees them.
fn joins(facts: &Facts) -> Vec<Check> {
    let offloads = &facts.offloads;
    let refuses = "Most drivers refuse programs while the card joins packets.";
    let blind = "Joined datagrams look like one long datagram to programs and packet sockets.";
    let all = [
        ("lro", offloads.lro, "lro", refuses, Verdict::Blocking),
        ("gro_hw", offloads.gro_hw, "rx-gro-hw", refuses, Verdict::Blocking),
        ("gro_list", offloads.gro_list, "rx-gro-list", blind, Verdict::Better),
        ("udp_gro_forwarding", offloads.udp_gro_forwarding, "rx-udp-gro-forwarding", blind, Verdict::Better),
    ];
    let known = all.into_iter().filter_map(|(name, feature, option, why, verdict)| {
        Some(switch(facts, name, feature?, (option, why, verdict)))
    });
    known.collect()
}

fn vlan(facts: &Facts) -> Option<Check> {
    let why = "The card takes the VLAN tag away before programs see the frame, so reports of all VLANs look alike; without VLANs it does no harm.";
    Some(switch(facts, "rx_vlan", facts.offloads.rx_vlan?, ("rxvlan", why, Verdict::Better)))
}

/// Something that is better off: `ethtool`'s name for it, why, and what it means that it is on.
fn switch(
    facts: &Facts,
    name: &'static str,
    feature: Feature,
    (option, why, verdict): (&str, &str, Verdict),
) -> Check {
    match feature {
        Feature { on: false, .. } => Check::good(name, "off", why),
        // Nothing to do about it: the next rung is what there is.
        Feature { on: true, fixed: true } => {
            Check::good(name, "on, cannot be changed", why).with(Verdict::Better)
        }
        Feature { on: true, fixed: false } => Check::good(name, "on", why)
            .with(verdict)
            .mended_by(format!("ethtool -K {} {option} off", quoted(&facts.name))),
    }
}

fn member(facts: &Facts) -> Option<Check> {
    let member = facts.member.as_ref()?;
    let of = member.of.as_deref().unwrap_or("(unknown)");
    let why = match member.kind.as_str() {
        "bond" | "team" => {
            "A member sees only its share of the frames; listen on each member, or on the whole."
        }
        _ => "Reports that are only forwarded here are taken, too: whatever goes to a telemetry port is.",
    };
    Some(Check::good("member", format!("of the {} {of}", member.kind), why).with(Verdict::Better))
}

fn lost(facts: &Facts) -> Option<Check> {
    let lost = facts.lost?;
    let why = "Frames that the card could not hand over were lost before any program could count them: more queues or a longer ring help.";
    let all = lost.missed + lost.overruns;
    let found = format!("{} since the interface exists", units::counted(all, "frame"));
    let check = Check::good("lost_by_card", found, why);
    if all == 0 {
        return Some(check);
    }
    Some(check.with(Verdict::Better).mended_by(format!("ethtool -S {}", quoted(&facts.name))))
}
