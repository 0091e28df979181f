//! The methods to read an interface, and the fastest that works on this machine.

use nic::capabilities::Cap;
use nic::device::{self, Facts, Machine};
use nic::ladder::Rung;

use super::{Check, Verdict};

/// How an input will be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// The best that is sure.
    pub(crate) rung: Rung,
    /// Faster ones that may work: the kernel does not say.
    pub(crate) perhaps: Vec<Rung>,
    /// Faster ones that do not work, and why.
    pub(crate) not: Vec<(Rung, String)>,
    /// It was really tried.
    pub(crate) tried: bool,
}

impl Default for Expected {
    /// By a socket, which is always possible.
    fn default() -> Self {
        Self { rung: Rung::Udp, perhaps: Vec::new(), not: Vec::new(), tried: false }
    }
}

enum Possible {
    Yes,
    No(String),
    Unknown,
}

/// What follows from the facts, where `best` is the first rung that is allowed.
pub(super) fn expect(facts: &Facts, machine: &Machine, best: Rung) -> Expected {
    let mut expected = Expected::default();
    for rung in Rung::ALL.into_iter().filter(|rung| *rung >= best) {
        match possible(rung, facts, machine) {
            Possible::Yes => {
                expected.rung = rung;
                break;
            }
            Possible::No(reason) => expected.not.push((rung, reason)),
            Possible::Unknown => expected.perhaps.push(rung),
        }
    }
    expected
}

fn possible(rung: Rung, facts: &Facts, machine: &Machine) -> Possible {
    match rung {
        Rung::ZeroCopy | Rung::Native | Rung::Generic => {
            let common = no_sockets(machine).or_else(|| taken(facts));
            if let Some(reason) = common {
                return Possible::No(reason);
            }
            if rung == Rung::Generic { Possible::Yes } else { in_driver(rung, facts) }
        }
        Rung::Packet => match machine.capabilities {
            Some(capabilities) if capabilities.effective.has(Cap::NET_RAW) => Possible::Yes,
            Some(_) => Possible::No("CAP_NET_RAW is missing".to_owned()),
            None => Possible::Unknown,
        },
        Rung::Udp => Possible::Yes,
    }
}

/// Zero-copy, or native.
fn in_driver(rung: Rung, facts: &Facts) -> Possible {
    if let Some(reason) = veth(facts) {
        return Possible::No(reason);
    }
    let Some(features) = facts.xdp_features else { return Possible::Unknown };
    let long = facts.mtu.is_some_and(|mtu| too_long(facts, mtu));
    let driver = facts.driver.as_deref().unwrap_or("this kind of interface");
    if !(features.native() && features.redirect()) {
        return Possible::No(format!("the driver ({driver}) runs no XDP programs"));
    }
    if rung == Rung::ZeroCopy && !features.zero_copy() {
        return Possible::No(format!("the driver ({driver}) cannot write into a program's memory"));
    }
    // Most drivers refuse then, some switch it off themselves, and none says which it is.
    let on = |feature: Option<device::Feature>| feature.is_some_and(|feature| feature.on);
    if on(facts.offloads.lro) || on(facts.offloads.gro_hw) || long {
        Possible::Unknown
    } else {
        Possible::Yes
    }
}

/// Capabilities that AF_XDP takes and this process lacks.
pub(super) fn missing_capabilities(machine: &Machine) -> Option<Vec<&'static str>> {
    let capabilities = machine.capabilities?;
    let has = |cap| capabilities.effective.has(cap);
    let wanted = [
        ("CAP_BPF", capabilities.may_load()),
        ("CAP_NET_ADMIN", has(Cap::NET_ADMIN)),
        ("CAP_NET_RAW", has(Cap::NET_RAW)),
    ];
    Some(wanted.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect())
}

fn no_sockets(machine: &Machine) -> Option<String> {
    if machine.xdp_sockets == Some(false) {
        return Some("this kernel has no AF_XDP sockets".to_owned());
    }
    let missing = missing_capabilities(machine).filter(|missing| !missing.is_empty())?;
    Some(format!("{} missing", missing.join(", ")))
}

fn taken(facts: &Facts) -> Option<String> {
    let program = facts.xdp.as_ref()?.first()?;
    let name = program.name.as_deref().map_or(String::new(), |name| format!(" {name}"));
    Some(format!("the XDP program{name} (id {}) is on it already", program.id))
}

/// Longest packet that one page holds beside what programs and the kernel put into it: 4096 bytes without 256 of headroom, 320
/// of the kernel's own and 14 of the Ethernet header, as `veth_xdp_set` of drivers/net/veth.c counts.
pub(super) const PAGE_MTU: u32 = 3506;

/// Packets of this length may need several buffers, and the driver says that it gives none such to programs.
pub(super) fn too_long(facts: &Facts, mtu: u32) -> bool {
    mtu > PAGE_MTU && facts.xdp_features.is_some_and(|features| !features.frags())
}

/// The two conditions of `veth_xdp_set`, as far as the other end can be seen.
fn veth(facts: &Facts) -> Option<String> {
    let peer = facts.peer.as_ref()?;
    if let Some(mtu) = peer.mtu.filter(|mtu| too_long(facts, *mtu)) {
        return Some(format!("the MTU of its peer is {mtu}, more than {PAGE_MTU}"));
    }
    let (sends, receives) = (peer.tx_queues?, facts.queues?.receiving());
    (sends > receives).then(|| format!("its peer sends on {sends} queues, and it receives on {receives}"))
}

/// Tries it out. Where zero-copy works but is not allowed, native works, too.
pub(super) fn tried(facts: &Facts, best: Rung) -> Expected {
    let device::Attempt { zero_copy, native, generic, packet } = device::attempt(facts.index);
    let tried = [(Rung::ZeroCopy, Some(zero_copy)), (Rung::Native, native), (Rung::Generic, generic)];
    let mut expected = Expected { tried: true, ..Expected::default() };
    for (rung, result) in tried.into_iter().chain([(Rung::Packet, packet)]) {
        match result {
            Some(Ok(())) => return Expected { rung: rung.max(best), ..expected },
            Some(Err(error)) if rung >= best => expected.not.push((rung, error.to_string())),
            Some(Err(_)) => {}
            None => {}
        }
    }
    expected
}

/// Is what is expected less than was asked for?
pub(super) fn low(expected: &Expected, lowest: Rung) -> Option<Check> {
    (expected.rung > lowest && expected.perhaps.first().is_none_or(|best| *best > lowest)).then(|| {
        let found = format!("{} at best, {} asked for", expected.rung.name(), lowest.name());
        let why = "`[collector.xdp] lowest` names the slowest acceptable method; the input is not opened by a slower one.";
        Check::good("rung", found, why).with(Verdict::Blocking)
    })
}
