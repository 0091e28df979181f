//! Facts about an interface from rtnetlink (`RTM_GETLINK`) and from the generic netlink family `netdev`.

use super::netlink::{Attributes, Netlink, put, u16_at, u32_at, u64_at};
use super::{Attached, Member, Mode, Peer, RxErrors, XdpFeatures};
use crate::error::Error;

/// Message type of linux/rtnetlink.h.
const RTM_GETLINK: u16 = 18;
/// Bytes of `ifinfomsg` before the attributes.
const INFO: usize = 16;
/// Bytes of `genlmsghdr`: command, version, reserved.
const GENERIC: usize = 4;

/// The fields of the reply to `RTM_GETLINK` that are used here.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) carrier: Option<bool>,
    pub(crate) mtu: Option<u32>,
    pub(crate) kind: Option<String>,
    /// (Bus, name on the bus) of the parent device.
    pub(crate) parent: Option<(String, String)>,
    pub(crate) peer: Option<Peer>,
    pub(crate) member: Option<Member>,
    pub(crate) xdp: Option<Vec<Attached>>,
    pub(crate) lost: Option<RxErrors>,
}

/// Selects an interface by index or name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkSelector<'a> {
    Name(&'a str),
    Index(u32),
}

/// Link attributes of linux/if_link.h.
mod ifla {
    pub(crate) const IFNAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const LINK: u16 = 5;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const LINKINFO: u16 = 18;
    pub(crate) const INFO_KIND: u16 = 1;
    pub(crate) const INFO_SLAVE_KIND: u16 = 4;
    pub(crate) const STATS64: u16 = 23;
    pub(crate) const CARRIER: u16 = 33;
    pub(crate) const LINK_NETNSID: u16 = 37;
    pub(crate) const XDP: u16 = 43;
    pub(crate) const XDP_ATTACHED: u16 = 2;
    pub(crate) const XDP_PROG_ID: u16 = 4;
    pub(crate) const XDP_DRV_PROG_ID: u16 = 5;
    pub(crate) const XDP_SKB_PROG_ID: u16 = 6;
    pub(crate) const XDP_HW_PROG_ID: u16 = 7;
    pub(crate) const PARENT_DEV_NAME: u16 = 56;
    pub(crate) const PARENT_DEV_BUS_NAME: u16 = 57;
}

/// Queries one interface. Returns `None` if there is no such interface.
pub(crate) fn get(netlink: &Netlink, which: LinkSelector<'_>) -> Result<Option<Link>, Error> {
    let mut body = vec![0; INFO];
    match which {
        // `ifi_index` of `ifinfomsg`.
        LinkSelector::Index(index) => body[4..8].copy_from_slice(&index.to_ne_bytes()),
        LinkSelector::Name(name) => put(&mut body, ifla::IFNAME, &[name.as_bytes(), &[0]].concat()),
    }
    match netlink.query(RTM_GETLINK, &body) {
        Ok(answer) => Ok(parse(&answer)),
        // ERANGE, EINVAL: the name is longer than any interface's.
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::ENODEV | libc::ERANGE | libc::EINVAL | libc::ENXIO)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Parses the reply after its netlink header: `ifinfomsg` and attributes.
fn parse(answer: &[u8]) -> Option<Link> {
    let index = u32_at(answer, 4)?;
    let flags = u32_at(answer, 8)?;
    let attributes = Attributes(answer.get(INFO..)?);
    let info = attributes.nested(ifla::LINKINFO);
    let kind = info.and_then(|info| info.text(ifla::INFO_KIND));
    let peer = (kind.as_deref() == Some("veth"))
        .then(|| attributes.u32(ifla::LINK))
        .flatten();
    let member = info.and_then(|info| info.text(ifla::INFO_SLAVE_KIND));
    let stats = attributes.value(ifla::STATS64);
    let parent = attributes
        .text(ifla::PARENT_DEV_BUS_NAME)
        .zip(attributes.text(ifla::PARENT_DEV_NAME));
    Some(Link {
        name: attributes.text(ifla::IFNAME)?,
        index,
        up: flags & libc::IFF_UP as u32 != 0,
        carrier: attributes.u8(ifla::CARRIER).map(|carrier| carrier != 0),
        mtu: attributes.u32(ifla::MTU),
        peer: peer.map(|index| Peer {
            index,
            elsewhere: attributes.value(ifla::LINK_NETNSID).is_some(),
            name: None,
            mtu: None,
            tx_queues: None,
        }),
        member: member.map(|kind| Member {
            kind,
            of: None,
            index: attributes.u32(ifla::MASTER),
        }),
        kind,
        parent,
        xdp: attributes.nested(ifla::XDP).map(attached),
        lost: stats.and_then(lost),
    })
}

/// Returns the XDP programs on the interface, by mode.
fn attached(xdp: Attributes<'_>) -> Vec<Attached> {
    let mut programs: Vec<Attached> = [
        (ifla::XDP_HW_PROG_ID, Mode::Offloaded),
        (ifla::XDP_DRV_PROG_ID, Mode::Native),
        (ifla::XDP_SKB_PROG_ID, Mode::Generic),
    ]
    .into_iter()
    .filter_map(|(kind, mode)| attached_in(xdp, kind, mode))
    .collect();
    if programs.is_empty() {
        // Kernels before 4.19 report the mode separately from the program.
        let mode = match xdp.u8(ifla::XDP_ATTACHED) {
            Some(1) => Some(Mode::Native),
            Some(2) => Some(Mode::Generic),
            Some(3) => Some(Mode::Offloaded),
            _ => None,
        };
        programs.extend(mode.and_then(|mode| attached_in(xdp, ifla::XDP_PROG_ID, mode)));
    }
    programs
}

/// Returns the program whose ID is the attribute of type `kind`.
fn attached_in(xdp: Attributes<'_>, kind: u16, mode: Mode) -> Option<Attached> {
    xdp.u32(kind).map(|id| Attached {
        id,
        name: None,
        mode,
        ours: None,
    })
}

/// Reads the receive errors from `rtnl_link_stats64`, an array of 64-bit counters.
fn lost(stats: &[u8]) -> Option<RxErrors> {
    Some(RxErrors {
        dropped: u64_at(stats, 6 * 8)?,
        overruns: u64_at(stats, 14 * 8)?,
        missed: u64_at(stats, 15 * 8)?,
    })
}

/// The generic netlink family that reports a driver's XDP features (since Linux 6.3).
mod netdev {
    pub(crate) const FAMILY: &[u8] = b"netdev\0";
    pub(crate) const DEV_GET: u8 = 1;
    pub(crate) const IFINDEX: u16 = 1;
    pub(crate) const XDP_FEATURES: u16 = 3;
}

/// The generic netlink family that resolves the IDs of the others.
mod ctrl {
    pub(crate) const ID: u16 = 16;
    pub(crate) const GETFAMILY: u8 = 3;
    pub(crate) const FAMILY_ID: u16 = 1;
    pub(crate) const FAMILY_NAME: u16 = 2;
}

/// Returns the XDP features of the driver, or `None` if this kernel does not report them.
pub(crate) fn xdp_features(index: u32) -> Option<XdpFeatures> {
    let netlink = Netlink::open(libc::NETLINK_GENERIC).ok()?;
    let mut body = vec![ctrl::GETFAMILY, 2, 0, 0];
    put(&mut body, ctrl::FAMILY_NAME, netdev::FAMILY);
    let answer = netlink.query(ctrl::ID, &body).ok()?;
    let family = Attributes(answer.get(GENERIC..)?)
        .value(ctrl::FAMILY_ID)
        .and_then(|id| u16_at(id, 0))?;
    let mut body = vec![netdev::DEV_GET, 1, 0, 0];
    put(&mut body, netdev::IFINDEX, &index.to_ne_bytes());
    features(&netlink.query(family, &body).ok()?)
}

fn features(answer: &[u8]) -> Option<XdpFeatures> {
    let bits = Attributes(answer.get(GENERIC..)?).value(netdev::XDP_FEATURES)?;
    u64_at(bits, 0).map(XdpFeatures)
}

#[cfg(test)]
mod tests {
    use super::super::netlink::tests::nest;
    use super::*;

    fn answer(index: u32, flags: u32, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&index.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(attributes);
        bytes
    }

    fn with(list: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, value) in list {
            put(&mut out, *kind, value);
        }
        out
    }

    #[test]
    fn a_veth_in_a_bridge_with_a_program() {
        let stats: Vec<u8> = (0..24u64).flat_map(u64::to_ne_bytes).collect();
        let mut attributes = with(&[
            (ifla::IFNAME, b"veth0\0"),
            (ifla::MTU, &1500u32.to_ne_bytes()),
            (ifla::LINK, &9u32.to_ne_bytes()),
            (ifla::MASTER, &4u32.to_ne_bytes()),
            (ifla::CARRIER, &[1]),
            (ifla::LINK_NETNSID, &0u32.to_ne_bytes()),
            (ifla::STATS64, &stats),
        ]);
        attributes.extend(nest(
            ifla::LINKINFO,
            &[(ifla::INFO_KIND, b"veth\0"), (ifla::INFO_SLAVE_KIND, b"bridge\0")],
        ));
        attributes.extend(nest(
            ifla::XDP,
            &[
                (ifla::XDP_ATTACHED, &[1]),
                (ifla::XDP_DRV_PROG_ID, &77u32.to_ne_bytes()),
            ],
        ));
        let expected = Link {
            name: "veth0".to_owned(),
            index: 8,
            up: true,
            carrier: Some(true),
            mtu: Some(1500),
            kind: Some("veth".to_owned()),
            parent: None,
            peer: Some(Peer {
                index: 9,
                elsewhere: true,
                name: None,
                mtu: None,
                tx_queues: None,
            }),
            member: Some(Member {
                kind: "bridge".to_owned(),
                of: None,
                index: Some(4),
            }),
            xdp: Some(vec![Attached {
                id: 77,
                name: None,
                mode: Mode::Native,
                ours: None,
            }]),
            lost: Some(RxErrors {
                dropped: 6,
                overruns: 14,
                missed: 15,
            }),
        };
        assert_eq!(
            parse(&answer(8, libc::IFF_UP as u32, &attributes)),
            Some(expected)
        );
    }

    #[test]
    fn missing_attributes_are_unknown() {
        let nic = with(&[
            (ifla::IFNAME, b"eth0\0"),
            // For a VLAN interface this is the interface below it, not a peer.
            (ifla::LINK, &2u32.to_ne_bytes()),
            (ifla::PARENT_DEV_NAME, b"0000:01:00.0\0"),
            (ifla::PARENT_DEV_BUS_NAME, b"pci\0"),
        ]);
        let expected = Link {
            name: "eth0".to_owned(),
            index: 2,
            parent: Some(("pci".to_owned(), "0000:01:00.0".to_owned())),
            ..Link::default()
        };
        assert_eq!(parse(&answer(2, 0, &nic)), Some(expected));
        assert_eq!(parse(&answer(2, 0, &[])), None);
        assert_eq!(parse(&[0; 10]), None);
    }

    #[test]
    fn programs_are_distinguished_by_mode_on_old_kernels_too() {
        let id = 5u32.to_ne_bytes();
        let found = |list: &[(u16, &[u8])]| {
            let programs = attached(Attributes(&with(list)));
            programs
                .iter()
                .map(|program| (program.id, program.mode))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&[(ifla::XDP_ATTACHED, &[0])]), []);
        assert_eq!(
            found(&[(ifla::XDP_ATTACHED, &[2]), (ifla::XDP_PROG_ID, &id)]),
            [(5, Mode::Generic)]
        );
        let newer = [
            (ifla::XDP_ATTACHED, &[1][..]),
            (ifla::XDP_PROG_ID, &id),
            (ifla::XDP_DRV_PROG_ID, &id),
        ];
        assert_eq!(found(&newer), [(5, Mode::Native)]);
        let both = [(ifla::XDP_HW_PROG_ID, &id[..]), (ifla::XDP_DRV_PROG_ID, &id)];
        assert_eq!(found(&both), [(5, Mode::Offloaded), (5, Mode::Native)]);
    }

    #[test]
    fn features_are_bits() {
        let bytes = [
            &[0; GENERIC][..],
            &with(&[(netdev::XDP_FEATURES, &0b1011u64.to_ne_bytes())]),
        ]
        .concat();
        let features = features(&bytes).unwrap();
        assert!(features.native() && features.redirect() && features.zero_copy() && !features.frags());
        assert!(super::features(&bytes[..8]).is_none());
    }
}
