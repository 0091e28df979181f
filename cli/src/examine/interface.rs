//! Checks of an interface that AF_XDP is to read: link, driver, attached programs, queues, ring, MTU and offloads.

use nic::device::{Facts, Feature, Machine};

use super::{Check, Verdict, quoted, rx_path};
use terminal::units;

/// Recommended ring size, descriptors: absorbs a burst of 1 ms at about 4 million frames/s.
const TARGET_RING: u32 = 4096;

/// Returns the check of an interface that does not exist.
pub(super) fn missing(name: &str) -> Check {
    let why = "Until the interface exists, only UDP sockets receive reports.";
    Check::ok("interface", format!("there is no {name}"), why)
        .with(Verdict::Blocking)
        .fixed_by("ip -br link")
}

/// Returns all checks, in an order in which later ones depend on earlier ones.
pub(super) fn checks(facts: &Facts, machine: &Machine) -> Vec<Check> {
    let mut checks = vec![link(facts), driver(facts), program(facts)];
    checks.extend(queues(facts, machine));
    checks.extend(peer_queues(facts));
    checks.extend(ring(facts));
    checks.extend(mtu(facts));
    checks.extend(coalescing(facts));
    checks.extend(vlan(facts));
    checks.extend(member(facts));
    checks.extend(nic_drops(facts));
    checks
}

/// Returns the checks that apply to any XDP program, also without AF_XDP sockets.
pub(super) fn program_checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![link(facts), driver(facts), program(facts)];
    checks.extend(peer_queues(facts));
    checks.extend(member(facts));
    checks
}

fn link(facts: &Facts) -> Check {
    let why = "An interface that is down or has no link partner receives nothing.";
    match (facts.up, facts.carrier) {
        (false, _) => Check::ok("link", "down", why)
            .with(Verdict::Blocking)
            .fixed_by(format!("ip link set dev {} up", quoted(&facts.name))),
        // No command fixes this: the cable or the other end is the cause.
        (true, Some(false)) => Check::ok("link", "up, no carrier", why).with(Verdict::Blocking),
        (true, Some(true)) => Check::ok("link", "up", why),
        (true, None) => Check::unknown("link", why),
    }
}

fn driver(facts: &Facts) -> Check {
    let why =
        "A driver with native XDP is several times as fast as generic XDP, which works on every interface.";
    let driver = facts.driver.as_deref().unwrap_or("unnamed");
    match facts.xdp_features {
        None => Check::unknown(
            "driver",
            "Linux 6.3 and later report the XDP features of a driver; --try tests them.",
        )
        .with_finding(driver),
        Some(features) if features.zero_copy() => {
            Check::ok("driver", format!("{driver}: native XDP, zero-copy"), why)
        }
        Some(features) if features.native() && features.redirect() => {
            Check::ok("driver", format!("{driver}: native XDP, no zero-copy"), why)
        }
        Some(_) => Check::ok("driver", format!("{driver}: no native XDP"), why).with(Verdict::Suboptimal),
    }
}

fn program(facts: &Facts) -> Check {
    let name = "xdp_program";
    let why = "An interface holds one XDP program, in the driver or in the kernel's stack.";
    let Some(programs) = &facts.xdp else {
        return Check::unknown(name, why);
    };
    let Some(attached) = programs.first() else {
        return Check::ok(name, "none", why);
    };
    let program_name = attached.name.as_deref().unwrap_or("of unknown name");
    let other_program = format!("{program_name} (id {}, {})", attached.id, attached.mode.name());
    if attached.ours == Some(true) {
        let why = "The program is hopwise's own: another or this hopwise reads the interface.";
        return Check::ok(name, other_program, why)
            .with(Verdict::Blocking)
            .fixed_by("pgrep -a hopwise");
    }
    // `xdp off` alone does not remove a program that is attached in another mode.
    let mode = match attached.mode {
        nic::device::Mode::Native => "xdpdrv",
        nic::device::Mode::Generic => "xdpgeneric",
        nic::device::Mode::Offloaded => "xdpoffload",
    };
    let why = "An interface holds one XDP program, and another program owns this one: the command removes it, unless a process \
               holds it (`bpftool link` shows it).";
    Check::ok(name, other_program, why)
        .with(Verdict::Blocking)
        .fixed_by(format!("ip link set dev {} {mode} off", quoted(&facts.name)))
}

fn queues(facts: &Facts, machine: &Machine) -> Option<Check> {
    let name = "queues";
    let why =
        "One CPU serves each queue; the reports of one sender use one queue, those of many senders use all.";
    let Some(queues) = facts.queues else {
        return facts.bus.is_some().then(|| Check::unknown(name, why));
    };
    let active = queues.receiving();
    let max = queues.receiving_max();
    let check = Check::ok(name, format!("{active} of at most {max}"), why);
    let usable = max.min(machine.cpus.unwrap_or(1));
    // With a veth, the peer determines how many queues are used.
    if active >= usable || facts.peer.is_some() {
        return Some(check);
    }
    let kind = if queues.combined.max > 0 { "combined" } else { "rx" };
    let separate = if queues.combined.max > 0 {
        queues.rx.now
    } else {
        queues.combined.now
    };
    let target = usable.saturating_sub(separate).max(1);
    Some(
        check
            .with(Verdict::Suboptimal)
            .fixed_by(format!("ethtool -L {} {kind} {target}", quoted(&facts.name))),
    )
}

/// Checks a veth's peer: native mode needs as many RX queues here as the peer has TX queues, and a peer MTU within a page.
fn peer_queues(facts: &Facts) -> Option<Check> {
    let peer = facts.peer.as_ref()?;
    let why = "The veth driver runs no program if its peer has more TX queues than it has RX queues, or an MTU larger than a page.";
    if peer.elsewhere {
        let found = format!("index {} in another namespace, not visible from here", peer.index);
        return Some(Check::unknown("peer", why).with_finding(found));
    }
    let name = peer
        .name
        .clone()
        .unwrap_or_else(|| format!("number {}", peer.index));
    let (Some(sends), Some(queues)) = (peer.tx_queues, facts.queues) else {
        return Some(Check::unknown("peer", why).with_finding(name));
    };
    if sends > queues.receiving() {
        let found = format!(
            "{name} sends on {sends} queues, {} receives on {}",
            facts.name,
            queues.receiving()
        );
        let fix = if queues.receiving_max() >= sends {
            format!("ethtool -L {} rx {sends}", quoted(&facts.name))
        } else {
            format!("ethtool -L {} tx {}", quoted(&name), queues.receiving())
        };
        return Some(
            Check::ok("peer", found, why)
                .with(Verdict::Blocking)
                .fixed_by(fix),
        );
    }
    if peer.mtu.is_some_and(|mtu| rx_path::exceeds_page(facts, mtu)) {
        let found = format!("{name} has an MTU of {}", peer.mtu.unwrap_or_default());
        let fix = format!("ip link set dev {} mtu {}", quoted(&name), rx_path::PAGE_MTU);
        return Some(
            Check::ok("peer", found, why)
                .with(Verdict::Blocking)
                .fixed_by(fix),
        );
    }
    let queues = units::counted(sends.into(), "queue");
    Some(Check::ok("peer", format!("{name}, sends on {queues}"), why))
}

fn ring(facts: &Facts) -> Option<Check> {
    let why =
        "Frames wait in the NIC's RX ring while the CPU is busy; the NIC drops frames when the ring is full.";
    let Some(level) = facts.rx_ring else {
        return facts.bus.is_some().then(|| Check::unknown("rx_ring", why));
    };
    let check = Check::ok("rx_ring", format!("{} of at most {}", level.now, level.max), why);
    let target = level.max.min(TARGET_RING);
    if level.now >= target {
        return Some(check);
    }
    Some(
        check
            .with(Verdict::Suboptimal)
            .fixed_by(format!("ethtool -G {} rx {target}", quoted(&facts.name))),
    )
}

fn mtu(facts: &Facts) -> Option<Check> {
    let mtu = facts.mtu?;
    let why = "Most drivers without multi-buffer XDP refuse a program if the MTU is larger than a page.";
    let check = Check::ok("mtu", mtu.to_string(), why);
    // For a veth, the peer's MTU matters, and `peer_queues` checks it.
    if !rx_path::exceeds_page(facts, mtu) || facts.peer.is_some() {
        return Some(check);
    }
    Some(check.with(Verdict::Suboptimal).fixed_by(format!(
        "ip link set dev {} mtu {}",
        facts.name,
        rx_path::PAGE_MTU
    )))
}

/// Checks the offloads that coalesce packets before an XDP program sees them.
fn coalescing(facts: &Facts) -> Vec<Check> {
    let offloads = &facts.offloads;
    let refusal = "Most drivers refuse XDP programs while the NIC coalesces packets.";
    let merging = "Coalesced datagrams look like one long datagram to XDP programs and packet sockets.";
    let offload_checks = [
        ("lro", offloads.lro, "lro", refusal, Verdict::Blocking),
        ("gro_hw", offloads.gro_hw, "rx-gro-hw", refusal, Verdict::Blocking),
        (
            "gro_list",
            offloads.gro_list,
            "rx-gro-list",
            merging,
            Verdict::Suboptimal,
        ),
        (
            "udp_gro_forwarding",
            offloads.udp_gro_forwarding,
            "rx-udp-gro-forwarding",
            merging,
            Verdict::Suboptimal,
        ),
    ];
    let checks = offload_checks
        .into_iter()
        .filter_map(|(name, feature, option, reason, verdict)| {
            Some(offload(facts, name, feature?, option, reason, verdict))
        });
    checks.collect()
}

fn vlan(facts: &Facts) -> Option<Check> {
    let why = "The NIC strips the VLAN tag before XDP programs see the frame, so reports of all VLANs look alike; without VLANs this is harmless.";
    Some(offload(
        facts,
        "rx_vlan",
        facts.offloads.rx_vlan?,
        "rxvlan",
        why,
        Verdict::Suboptimal,
    ))
}

/// Checks an offload that should be off. `option` is its `ethtool` name; `verdict` applies if it is on and can be changed.
fn offload(
    facts: &Facts,
    name: &'static str,
    feature: Feature,
    option: &str,
    why: &str,
    verdict: Verdict,
) -> Check {
    match feature {
        Feature { on: false, .. } => Check::ok(name, "off", why),
        // Cannot be fixed; the receive path is chosen accordingly.
        Feature {
            on: true,
            fixed: true,
        } => Check::ok(name, "on, cannot be changed", why).with(Verdict::Suboptimal),
        Feature {
            on: true,
            fixed: false,
        } => Check::ok(name, "on", why)
            .with(verdict)
            .fixed_by(format!("ethtool -K {} {option} off", quoted(&facts.name))),
    }
}

fn member(facts: &Facts) -> Option<Check> {
    let member = facts.member.as_ref()?;
    let master = member.of.as_deref().unwrap_or("(unknown)");
    let why = match member.kind.as_str() {
        "bond" | "team" => {
            "A member receives only its share of the frames; listen on every member, or on the bond or team."
        }
        _ => {
            "hopwise also receives reports that this machine would only forward: everything to a telemetry port."
        }
    };
    Some(Check::ok("member", format!("of the {} {master}", member.kind), why).with(Verdict::Suboptimal))
}

fn nic_drops(facts: &Facts) -> Option<Check> {
    let lost = facts.lost?;
    let why =
        "The NIC dropped frames before any program could count them: more queues or a longer ring help.";
    let frames = lost.missed + lost.overruns;
    let found = format!(
        "{} since the interface was created",
        units::counted(frames, "frame")
    );
    let check = Check::ok("lost_by_nic", found, why);
    if frames == 0 {
        return Some(check);
    }
    Some(
        check
            .with(Verdict::Suboptimal)
            .fixed_by(format!("ethtool -S {}", quoted(&facts.name))),
    )
}
