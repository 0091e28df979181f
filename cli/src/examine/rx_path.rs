//! Predicts or probes the fastest receive path of an interface: AF_XDP zero-copy, native XDP, generic XDP, packet socket, UDP
//! socket. [`RxPath`] orders them, the fastest first.

use nic::device::{self, Facts, Machine};
use nic::{capabilities::Cap, receive::RxPath};

use super::{Check, Verdict};

/// Maximum MTU with which a frame fits into one page for XDP, bytes: 4096 minus 256 of headroom, 320 for `skb_shared_info`
/// and 14 for the Ethernet header, as `veth_xdp_set` in drivers/net/veth.c calculates.
pub(super) const PAGE_MTU: u32 = 3506;

/// Receive path expected for an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// Fastest path that certainly works.
    pub(crate) rx_path: RxPath,
    /// Faster paths that may work; the kernel does not reveal it.
    pub(crate) uncertain: Vec<RxPath>,
    /// Faster paths that do not work, each with the reason.
    pub(crate) excluded: Vec<(RxPath, String)>,
    /// True if the paths were probed instead of predicted.
    pub(crate) is_probed: bool,
}

impl Default for Expected {
    /// Returns the UDP socket, which always works.
    fn default() -> Self {
        Self {
            rx_path: RxPath::Udp,
            uncertain: Vec::new(),
            excluded: Vec::new(),
            is_probed: false,
        }
    }
}

/// Result for one receive path; `No` has the reason.
enum Prediction {
    Yes,
    No(String),
    Unknown,
}

/// Predicts the receive path from facts. `best` is the fastest allowed path.
pub(super) fn predict(facts: &Facts, machine: &Machine, best: RxPath) -> Expected {
    let mut expected = Expected::default();
    for rx_path in RxPath::ALL.into_iter().filter(|rx_path| *rx_path >= best) {
        match predict_path(rx_path, facts, machine) {
            Prediction::Yes => {
                expected.rx_path = rx_path;
                break;
            }
            Prediction::No(reason) => expected.excluded.push((rx_path, reason)),
            Prediction::Unknown => expected.uncertain.push(rx_path),
        }
    }
    expected
}

/// Judges a receive path by driver, attached programs and capabilities.
fn predict_path(rx_path: RxPath, facts: &Facts, machine: &Machine) -> Prediction {
    match rx_path {
        RxPath::ZeroCopy | RxPath::Native | RxPath::Generic => {
            let obstacle = missing_sockets(machine).or_else(|| attached_program(facts));
            if let Some(reason) = obstacle {
                return Prediction::No(reason);
            }
            if rx_path == RxPath::Generic {
                Prediction::Yes
            } else {
                driver_support(rx_path, facts)
            }
        }
        RxPath::Packet => match machine.capabilities {
            Some(capabilities) if capabilities.effective.has(Cap::NET_RAW) => Prediction::Yes,
            Some(_) => Prediction::No("CAP_NET_RAW is missing".to_owned()),
            None => Prediction::Unknown,
        },
        RxPath::Udp => Prediction::Yes,
    }
}

/// Returns whether the driver supports the zero-copy or the native path.
fn driver_support(rx_path: RxPath, facts: &Facts) -> Prediction {
    if let Some(reason) = veth(facts) {
        return Prediction::No(reason);
    }
    let Some(features) = facts.xdp_features else {
        return Prediction::Unknown;
    };
    let is_too_long = facts.mtu.is_some_and(|mtu| exceeds_page(facts, mtu));
    let driver = facts.driver.as_deref().unwrap_or("this kind of interface");
    if !(features.native() && features.redirect()) {
        return Prediction::No(format!("the driver ({driver}) runs no XDP programs"));
    }
    if rx_path == RxPath::ZeroCopy && !features.zero_copy() {
        return Prediction::No(format!(
            "the driver ({driver}) cannot write into a program's memory"
        ));
    }
    // With LRO or hardware GRO on, most drivers reject a program, and some disable the offload; no driver announces which.
    if is_on(facts.offloads.lro) || is_on(facts.offloads.gro_hw) || is_too_long {
        Prediction::Unknown
    } else {
        Prediction::Yes
    }
}

fn is_on(feature: Option<device::Feature>) -> bool {
    feature.is_some_and(|feature| feature.on)
}

/// Returns the capabilities that AF_XDP requires and this process lacks; `None` if they are unknown.
pub(super) fn missing_capabilities(machine: &Machine) -> Option<Vec<&'static str>> {
    let capabilities = machine.capabilities?;
    let required = [
        ("CAP_BPF", capabilities.may_load()),
        ("CAP_NET_ADMIN", capabilities.effective.has(Cap::NET_ADMIN)),
        ("CAP_NET_RAW", capabilities.effective.has(Cap::NET_RAW)),
    ];
    Some(
        required
            .into_iter()
            .filter(|(_, is_present)| !is_present)
            .map(|(name, _)| name)
            .collect(),
    )
}

fn missing_sockets(machine: &Machine) -> Option<String> {
    if machine.xdp_sockets == Some(false) {
        return Some("this kernel has no AF_XDP sockets".to_owned());
    }
    let missing = missing_capabilities(machine).filter(|missing| !missing.is_empty())?;
    Some(format!("{} missing", missing.join(", ")))
}

fn attached_program(facts: &Facts) -> Option<String> {
    let program = facts.xdp.as_ref()?.first()?;
    let name = program
        .name
        .as_deref()
        .map_or(String::new(), |name| format!(" {name}"));
    Some(format!(
        "the XDP program{name} (id {}) is on it already",
        program.id
    ))
}

/// Returns whether frames of this MTU may need several buffers while the driver does not support multi-buffer XDP.
pub(super) fn exceeds_page(facts: &Facts, mtu: u32) -> bool {
    mtu > PAGE_MTU && facts.xdp_features.is_some_and(|features| !features.frags())
}

/// Checks the two conditions of `veth_xdp_set`, as far as the peer is visible. Returns the reason if one is not met.
fn veth(facts: &Facts) -> Option<String> {
    let peer = facts.peer.as_ref()?;
    if let Some(mtu) = peer.mtu.filter(|mtu| exceeds_page(facts, *mtu)) {
        return Some(format!("the MTU of its peer is {mtu}, more than {PAGE_MTU}"));
    }
    let sends = peer.tx_queues?;
    let receives = facts.queues?.receiving();
    (sends > receives).then(|| format!("its peer sends on {sends} queues, and it receives on {receives}"))
}

/// Probes the receive paths. If zero-copy works but is not allowed, `best` is returned, since slower paths work too.
pub(super) fn probe(facts: &Facts, best: RxPath) -> Expected {
    let device::Probe {
        zero_copy,
        native,
        generic,
        packet,
    } = device::probe(facts.index);
    let results = [
        (RxPath::ZeroCopy, Some(zero_copy)),
        (RxPath::Native, native),
        (RxPath::Generic, generic),
    ];
    let mut expected = Expected {
        is_probed: true,
        ..Expected::default()
    };
    for (rx_path, result) in results.into_iter().chain([(RxPath::Packet, packet)]) {
        match result {
            Some(Ok(())) => {
                return Expected {
                    rx_path: rx_path.max(best),
                    ..expected
                };
            }
            Some(Err(error)) if rx_path >= best => expected.excluded.push((rx_path, error.to_string())),
            Some(Err(_)) => {}
            None => {}
        }
    }
    expected
}

/// Returns a failed check if the expected receive path is slower than the slowest accepted one.
pub(super) fn check_lowest(expected: &Expected, lowest: RxPath) -> Option<Check> {
    (expected.rx_path > lowest && expected.uncertain.first().is_none_or(|best| *best > lowest)).then(|| {
        let found = format!("{} at best, {} requested", expected.rx_path.name(), lowest.name());
        let explanation = "`[collector.xdp] lowest` names the slowest acceptable receive path; hopwise does not open the input by a slower one.";
        Check::ok("rx_path", found, explanation).with(Verdict::Blocking)
    })
}
