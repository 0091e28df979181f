//! DTA reports that the switch in this process intercepts for the translator, and the translator's replies (ACKs, NACKs,
//! congestion notifications), which the switch sends with the collector's address as their source.

use std::{net::SocketAddr, os::fd::BorrowedFd};

use collector::Senders;
use serde::{Deserialize, Serialize};
use translator::Translator;

use super::{Messages, reporter_address, transport::RdmaTransport};
use runtime::intercept::TranslatorEnd;

/// The translator's connection to the switch.
#[derive(Debug)]
pub(super) struct Intercepted {
    end: TranslatorEnd,
    /// Intercepted destinations, each with its collector's index.
    destinations: Vec<(SocketAddr, u8)>,
    messages: Messages,
    reports: u64,
    replies: u64,
    replies_dropped: u64,
}

/// The parts of the translator's thread that process intercepted reports.
pub(super) struct Stage<'a> {
    pub(super) now: u64,
    /// UDP port of reporters for replies; 0 selects the source port of their reports.
    pub(super) control_port: u16,
    /// Allowed senders; `None` admits everyone.
    pub(super) senders: Option<&'a Senders>,
    pub(super) not_allowed: &'a mut u64,
    pub(super) translator: &'a mut Translator,
    pub(super) links: &'a mut RdmaTransport,
}

impl Intercepted {
    pub(super) fn new(end: TranslatorEnd, destinations: Vec<(SocketAddr, u8)>) -> Self {
        let messages = Messages::default();
        Self {
            end,
            destinations,
            messages,
            reports: 0,
            replies: 0,
            replies_dropped: 0,
        }
    }

    /// Processes the reports that the switch has passed on, and queues the replies for it.
    pub(super) fn process(&mut self, stage: Stage<'_>) {
        let Stage {
            now,
            control_port,
            senders,
            not_allowed,
            translator,
            links,
        } = stage;
        let Self {
            end,
            destinations,
            messages,
            reports,
            replies,
            replies_dropped,
        } = self;
        for (destination, datagrams) in end.reports.receive().runs() {
            let Some((_, collector)) = destinations.get(destination) else {
                continue;
            };
            let allowed = datagrams.filter(|(source, _)| {
                let is_allowed = senders.is_none_or(|senders| senders.contains(source.ip()));
                *reports += 1;
                *not_allowed += u64::from(!is_allowed);
                is_allowed
            });
            translator.process_burst(now, *collector, allowed, links, messages);
            for (to, payload) in messages.to_reporters_of(usize::from(*collector)) {
                let accepted = end
                    .replies
                    .push(destination, reporter_address(to, control_port), payload);
                *replies += u64::from(accepted);
                *replies_dropped += u64::from(!accepted);
            }
            messages.clear();
        }
        end.replies.flush();
    }

    /// Closes the connection to the switch after the last reports. Datagrams left in its queues are lost, and logged.
    pub(super) fn close(&mut self) {
        let reports = self.end.reports.close();
        let messages = self.end.replies.close();
        self.replies -= messages;
        self.replies_dropped += messages;
        if reports + messages > 0 {
            tracing::warn!(
                reports,
                messages,
                "datagrams between the switch and the translator are lost at the stop"
            );
        }
    }

    /// Returns a descriptor that is readable when there are reports.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.reports.as_fd()
    }

    /// Returns whether replies wait for the switch.
    pub(super) fn is_pending(&self) -> bool {
        self.end.replies.is_pending()
    }

    pub(super) fn view(&self) -> InterceptedView {
        InterceptedView {
            destinations: self.destinations.iter().map(|(to, _)| to.to_string()).collect(),
            reports: self.reports,
            replies: self.replies,
            replies_dropped: self.replies_dropped,
        }
    }
}

/// Reports that the switch of this process intercepts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TranslatorIntercepted"))]
pub struct InterceptedView {
    /// Destinations whose reports the translator intercepts.
    destinations: Vec<String>,
    /// Reports from the switch, included in `reports` of the translator.
    pub reports: u64,
    /// Messages to reporters passed to the switch.
    pub replies: u64,
    /// Messages dropped because the switch did not keep up.
    pub replies_dropped: u64,
}
