//! Alerts: what is and was wrong, from the stored events of rules; what people said about it; and what a rule would have done.

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
