//! JSON output of `hopwise doctor`. Field names are stable; they are documented in `docs/reference/cli-json.md`.

use nic::device::{Facts, Feature, Level, Machine};

use crate::examine::{Check, Examined, Expected, Report};
use terminal::json::{Object, object};

/// Formats a report as one JSON object and a newline.
pub(super) fn report(report: &Report) -> String {
    let mut out = String::new();
    object(&mut out, |o| {
        o.field("verdict", report.verdict().name());
        o.object("machine", |o| {
            machine(o, &report.machine);
            checks(o, &report.checks);
        });
        o.objects("inputs", &report.inputs, |examined, o| input(o, examined));
    });
    out.push('\n');
    out
}

/// Converts a limit in bytes; -1 means unlimited.
fn limit(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(-1)
}

fn machine(o: &mut Object<'_>, machine: &Machine) {
    o.field("kernel", machine.kernel.as_deref())
        .field("cpus", machine.cpus)
        .field("rmem_max", machine.rmem_max)
        .field("rmem_default", machine.rmem_default)
        .field("netdev_max_backlog", machine.backlog)
        .field("backlog_drops", machine.backlog_drops)
        .field("memlock_soft", machine.memlock.map(|limits| limit(limits.soft)))
        .field("memlock_hard", machine.memlock.map(|limits| limit(limits.hard)))
        .field("huge_pages_total", machine.huge_pages.map(|pages| pages.total))
        .field("huge_pages_free", machine.huge_pages.map(|pages| pages.free))
        .field("huge_page_size", machine.huge_pages.map(|pages| pages.size))
        .field(
            "transparent_huge_pages",
            machine.transparent_huge_pages.as_deref(),
        )
        .field("btf", machine.btf)
        .field("bpf_jit", machine.bpf_jit)
        .field("unprivileged_bpf_disabled", machine.unprivileged_bpf_disabled)
        .field("xdp_sockets", machine.xdp_sockets);
    let names = machine.capabilities.map(|capabilities| {
        capabilities
            .effective
            .iter()
            .map(|cap| cap.name())
            .collect::<Vec<_>>()
    });
    o.field("capabilities", names);
}

fn input(o: &mut Object<'_>, examined: &Examined) {
    o.field("input", examined.input.listen.as_str())
        .field("requested", examined.input.requested);
    match &examined.facts {
        Some(interface) => o.object("interface", |o| facts(o, interface)),
        None => o.field("interface", None::<&str>),
    };
    match &examined.expected {
        Some(rx_path) => o.object("expected", |o| expected(o, rx_path)),
        None => o.field("expected", None::<&str>),
    };
    checks(o, &examined.checks);
}

fn facts(o: &mut Object<'_>, facts: &Facts) {
    o.field("name", facts.name.as_str())
        .field("index", facts.index)
        .field("up", facts.up)
        .field("carrier", facts.carrier)
        .field("mtu", facts.mtu)
        .field("kind", facts.kind.as_deref())
        .field("driver", facts.driver.as_deref())
        .field("bus", facts.bus.as_deref())
        .field("numa", facts.numa);
    let queues = facts.queues;
    for (name, queues) in [
        ("rx_queues", queues.map(|queues| queues.rx)),
        ("tx_queues", queues.map(|queues| queues.tx)),
        ("combined_queues", queues.map(|queues| queues.combined)),
        ("rx_ring", facts.rx_ring),
    ] {
        level(o, name, queues);
    }
    o.object("offloads", |o| {
        let offloads = &facts.offloads;
        for (name, feature) in [
            ("lro", offloads.lro),
            ("gro", offloads.gro),
            ("gro_hw", offloads.gro_hw),
            ("gro_list", offloads.gro_list),
            ("udp_gro_forwarding", offloads.udp_gro_forwarding),
            ("rx_vlan", offloads.rx_vlan),
            ("ntuple", offloads.ntuple),
        ] {
            offload(o, name, feature);
        }
    });
    xdp(o, facts);
    if let Some(peer) = &facts.peer {
        o.object("peer", |o| {
            o.field("index", peer.index)
                .field("elsewhere", peer.elsewhere)
                .field("name", peer.name.as_deref())
                .field("mtu", peer.mtu)
                .field("tx_queues", peer.tx_queues);
        });
    }
    if let Some(member) = &facts.member {
        o.object("member", |o| {
            o.field("kind", member.kind.as_str())
                .field("of", member.of.as_deref());
        });
    }
    o.field("dropped", facts.lost.map(|lost| lost.dropped))
        .field("overruns", facts.lost.map(|lost| lost.overruns))
        .field("missed", facts.lost.map(|lost| lost.missed));
}

fn level(o: &mut Object<'_>, name: &str, level: Option<Level>) {
    match level {
        Some(level) => o.object(name, |o| {
            o.field("now", level.now).field("max", level.max);
        }),
        None => o.field(name, None::<u32>),
    };
}

fn offload(o: &mut Object<'_>, name: &str, feature: Option<Feature>) {
    match feature {
        Some(feature) => o.object(name, |o| {
            o.field("on", feature.on).field("fixed", feature.fixed);
        }),
        None => o.field(name, None::<bool>),
    };
}

fn xdp(o: &mut Object<'_>, facts: &Facts) {
    match facts.xdp_features {
        Some(features) => o.object("xdp_features", |o| {
            o.field("native", features.native())
                .field("redirect", features.redirect())
                .field("zero_copy", features.zero_copy())
                .field("frags", features.frags());
        }),
        None => o.field("xdp_features", None::<bool>),
    };
    match &facts.xdp {
        Some(programs) => o.objects("xdp_programs", programs, |program, o| {
            o.field("id", program.id)
                .field("name", program.name.as_deref())
                .field("mode", program.mode.name())
                .field("ours", program.ours);
        }),
        None => o.field("xdp_programs", None::<u32>),
    };
}

fn expected(o: &mut Object<'_>, expected: &Expected) {
    let uncertain: Vec<&str> = expected.uncertain.iter().map(|rx_path| rx_path.name()).collect();
    o.field("rx_path", expected.rx_path.name())
        .field("perhaps", uncertain);
    o.objects("not", &expected.excluded, |(rx_path, reason), o| {
        o.field("rx_path", rx_path.name())
            .field("reason", reason.as_str());
    });
    o.field("tried", expected.is_probed);
}

fn checks(o: &mut Object<'_>, checks: &[Check]) {
    o.objects("checks", checks, |check, o| {
        o.field("check", check.name)
            .field("verdict", check.verdict.name())
            .field("found", check.finding.as_str())
            .field("why", check.reason.as_str())
            .field("fix", check.fix.as_deref());
    });
}
