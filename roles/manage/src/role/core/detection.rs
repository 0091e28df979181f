//! Delegates detection to the collector in this process: rules of intents, and thresholds without a filter on devices.

use std::{collections::BTreeMap, sync::Arc};

use detect::Match;
use manager::{
    flows::{ANY_PORT, FlowMatch},
    intent::Intent,
};

use super::{Core, Error, Origin};
use crate::{
    program::Configuration,
    settings::{asked, asks, matches},
};
use runtime::control::{Control, IntentDetection};

/// The rules and thresholds that intents delegate to the collector.
#[derive(Debug)]
pub(super) struct DetectionRequests {
    /// The configuration, whose own rules and thresholds take precedence over the intents'.
    settings: Arc<Configuration>,
    control: Control,
    /// The rules and thresholds that the collector last received.
    sent: Arc<IntentDetection>,
    /// Intents whose rules and thresholds do not fit, with the reasons.
    left_out: BTreeMap<String, String>,
    /// Intents or their flows may have changed since the last request.
    pub(super) is_due: bool,
}

impl DetectionRequests {
    /// Creates the state without requests.
    pub(super) fn new(settings: Arc<Configuration>, control: Control) -> Self {
        Self {
            settings,
            control,
            sent: Arc::default(),
            left_out: BTreeMap::new(),
            is_due: true,
        }
    }

    /// Adopts a reloaded configuration.
    pub(super) fn set_settings(&mut self, settings: Arc<Configuration>) {
        self.settings = settings;
        self.is_due = true;
    }

    /// Returns whether this process has a collector.
    pub(super) fn collects(&self) -> bool {
        self.settings.collects()
    }

    /// Returns the reason the collector does not evaluate an intent's rule and thresholds, or `None` if it does.
    pub(super) fn left_out(&self, name: &str) -> Option<&str> {
        self.left_out.get(name).map(String::as_str)
    }

    fn refusal(&self, asking: &[(&Intent, Vec<Match>)]) -> Option<String> {
        let requested = asked(asking.iter().map(|(intent, flows)| (*intent, flows.clone())));
        self.settings.detection.check(&requested).err()
    }
}

impl Core {
    /// Checks that an intent's rule and thresholds fit beside the existing ones.
    ///
    /// # Errors
    /// The reason they do not.
    pub(super) fn check_asked(&self, intent: &Intent) -> Result<(), Error> {
        if !asks(intent) {
            return Ok(());
        }
        let flows = matches(&self.manager.compiler().flows(intent)?);
        let mut all = self.all_asking();
        all.retain(|(other, _)| other.name != intent.name);
        all.push((intent, flows));
        self.detection
            .refusal(&all)
            .map_or(Ok(()), |reason| Err(Error::Wrong(reason)))
    }

    /// Returns the intents that a flow's reports serve.
    pub fn served(&self, flow: &wire::FlowKey) -> Vec<String> {
        if flow.known_id().is_some() {
            return Vec::new();
        }
        self.manager
            .compiler()
            .served(&key_of(flow))
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the effective intents that delegate to the collector, with their flows.
    fn all_asking(&self) -> Vec<(&Intent, Vec<Match>)> {
        let compiler = self.manager.compiler();
        let intents = self
            .intents
            .values()
            .map(|managed| self.budgets.effective_intent(managed));
        let asking = intents.filter(|intent| asks(intent));
        let in_force = asking.filter(|intent| compiler.outcome(&intent.name).is_some());
        in_force
            .filter_map(|intent| Some((intent, matches(&compiler.flows(intent).ok()?))))
            .collect()
    }

    /// Sends changed rules and thresholds of intents to the collector. If they do not all fit, the last ones are omitted.
    pub(super) fn ask_collector(&mut self) {
        if !std::mem::take(&mut self.detection.is_due) || !self.detection.collects() {
            return;
        }
        self.matches.renew();
        let mut all = self.all_asking();
        let mut left_out = BTreeMap::new();
        if self.detection.refusal(&all).is_some() {
            let mut fitting = Vec::new();
            for (intent, flows) in all {
                let name = intent.name.clone();
                fitting.push((intent, flows));
                if let Some(reason) = self.detection.refusal(&fitting) {
                    fitting.pop();
                    left_out.insert(name, reason);
                }
            }
            all = fitting;
        }
        let requested = Arc::new(asked(all));
        self.detection.left_out = left_out;
        if requested != self.detection.sent {
            self.detection.control.detect(Arc::clone(&requested));
            self.detection.sent = requested;
        }
    }
}

/// Returns the match entry for exactly this flow.
pub(in crate::role) fn key_of(flow: &wire::FlowKey) -> FlowMatch {
    FlowMatch {
        src: Some(flow.src().into()),
        dst: Some(flow.dst().into()),
        sport: flow.src_port().map_or(ANY_PORT, |port| (port, port)),
        dport: flow.dst_port().map_or(ANY_PORT, |port| (port, port)),
        proto: Some(flow.proto()),
        dscp: None,
    }
}

impl Origin {
    /// Returns whether a person or file requested the intent. Other intents are drill-downs, which expire.
    pub(super) fn is_asked(&self) -> bool {
        !matches!(self, Self::DrillDown(_))
    }

    /// Returns the name of this origin in the API.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::DrillDown(_) => "drill_down",
        }
    }
}
