//! Parsers for values in the collector's settings: node ranges, links and Flow IDs.

use settings::{
    read::{Node, Reader, Value},
    setting::{Setting, Shown},
    values::{from_text, id_range, integer, refuse},
};

/// A range of node IDs, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange(pub u32, pub u32);

impl Setting for NodeRange {
    const KIND: &'static str = "a node ID, or from-to such as \"1-20\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Integer(_) = node.get_ref() {
            let single_id = integer(node.get_ref()).and_then(|number| u32::try_from(number).ok());
            return single_id
                .map(|id| Self(id, id))
                .or_else(|| refuse::<Self>(node, reader));
        }
        from_text(node, reader, |text| {
            id_range(text).map(|(first, last)| Self(first, last))
        })
    }

    fn show(&self) -> Shown {
        match self {
            Self(first, last) if first == last => Shown::Plain((*first).into()),
            Self(first, last) => Shown::Plain(format!("{first}-{last}").into()),
        }
    }
}

/// One direction of a link, from an egress interface of one node to an ingress interface of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSetting(pub collector::config::Link);

impl Setting for LinkSetting {
    const KIND: &'static str = "a link as \"NODE:EGRESS-NODE:INGRESS\", such as \"7:3-5:1\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let (from, to) = text.split_once('-')?;
            Some(Self(collector::config::Link {
                from: link_end(from)?,
                to: link_end(to)?,
            }))
        })
    }

    fn show(&self) -> Shown {
        let collector::config::Link { from, to } = self.0;
        Shown::Plain(format!("{}:{}-{}:{}", from.0, from.1, to.0, to.1).into())
    }
}

/// Parses one end of a link, `NODE:INTERFACE`.
fn link_end(text: &str) -> Option<(u32, u32)> {
    let (node, interface) = text.split_once(':')?;
    Some((node.trim().parse().ok()?, interface.trim().parse().ok()?))
}

/// A postcard's Flow ID and the flow (5-tuple) that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowIdSetting(pub u32, pub wire::FlowKey);

impl Setting for FlowIdSetting {
    const KIND: &'static str =
        "a Flow ID and its flow as \"ID=FLOW\", such as \"0xf10a=10.0.0.1:5000>10.0.0.2:80/17\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| {
            let (id, flow) = text.split_once('=')?;
            let id: wire::FlowKey = format!("flow-id:{}", id.trim()).parse().ok()?;
            let flow: wire::FlowKey = flow.trim().parse().ok()?;
            Some(Self(id.known_id()?, flow)).filter(|_| flow.known_id().is_none())
        })
    }

    fn show(&self) -> Shown {
        Shown::Plain(format!("{:#x}={}", self.0, self.1).into())
    }
}
