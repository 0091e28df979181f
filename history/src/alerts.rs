//! Alerts: current and past firings of rules, rebuilt from stored events; acknowledgements and silences; and trial runs of a
//! rule over stored data.

mod firing;
mod notes;
mod past;
mod trial;

pub use self::{
    firing::Firing,
    notes::{ChangeError, Notes},
    past::{Alert, AlertSource, Past, RuleEvent},
    trial::{Holding, Trial, TrialRange},
};
