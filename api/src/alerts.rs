//! `/alerts` and the requests below it: lists alerts, acknowledges and silences them, and tries or enables rules.
//!
//! An alert is a rule and a flow for which it is true. Past alerts come from stored `rule_on` and `rule_off` events; the live
//! collector corrects them, because a crash may have lost the last event.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use collector::{Collector, FlowView, Kind, Location};
use detect::{Metric, RuleSet};
use serde::Deserialize;
use store::{EventFilter, EventRow, RecordingRow};
use wire::FlowKey;

use super::{
    context::Context,
    filters::{fault_view, lazy_names},
    holds::{INTERVALS, nanos},
    names,
    page::{self, Prepared},
    params::{Body, EXACT_TO, Form, NoParams, PAST_FROM, Param, Params, Segment},
    query::{history_of, history_permit, respond},
    refusal::Refusal,
    session::Requester,
    stored::whole_number,
};
use history::{
    EventQuery, Permit, RecordingQuery,
    alerts::{Alert, ChangeError, Firing, Holding, Notes, Past, RuleEvent, Trial, TrialRange},
};
use runtime::slice::visit_firing_flows;
use view::{
    self as shown, AcknowledgedView, AlertView, Alerts, EpisodeView, FaultView, SilenceView, Silences,
    Trial as TrialView,
};

mod enable;
mod remind;

#[cfg(test)]
pub(super) use enable::NewRule;
pub(crate) use enable::enable;
pub(super) use remind::remind;

/// Query parameters of `/alerts`.
pub(super) const ALERTS: &[Param] = &[
    PAST_FROM,
    EXACT_TO,
    Param::new(
        "state",
        "Only those in this state.",
        Form::OneOf(|| vec!["firing", "resolved"]),
    ),
    Param::limit(200, 2_000),
];
const SECOND: u64 = 1_000_000_000;
/// Default length of a span, ns.
const DEFAULT_SPAN: u64 = 900 * SECOND;
/// Time without reports after which the flow of an alert counts as silent, ns.
const SILENT_AFTER: u64 = 5 * SECOND;
/// Maximum age of a span's end, ns, to count as ending now.
const MAX_LIVE_AGE: u64 = 30 * SECOND;
/// Time before a span in which the beginning of a lasting alert is searched, ns: 30 days.
const ALERT_LOOKBACK: u64 = 30 * 86_400 * SECOND;
/// Time before a span in which the last values that still hold are searched, ns.
const VALUE_LOOKBACK: u64 = 3_600 * SECOND;
/// Maximum number of events read of each kind: rule became true, rule became false.
const MAX_EVENTS: usize = 20_000;
/// Maximum number of events on which a rule is tried; about 30 MiB.
const MAX_TRIAL_EVENTS: usize = 100_000;
/// Maximum number of alerts that the collector reports once more at a time.
const REPEAT_BATCH: usize = 2_000;
/// Maximum number of recordings that are read.
const MAX_RECORDINGS: usize = 1_000;
/// Number of intervals of a span in which firings are counted.
const TRIAL_COLUMNS: u64 = 120;
/// Maximum length of a comment, characters.
const MAX_COMMENT_CHARS: usize = 500;
/// Default duration of a silence, seconds.
const DEFAULT_SILENCE_SECONDS: u64 = 3_600;
/// Maximum duration of a silence, seconds: a year.
const MAX_SILENCE_SECONDS: u64 = 31_536_000;
/// Note on the trial of a rule about queues or links.
const NOTE_QUEUES_AND_LINKS: &str = "The rule is about queues or links: flows through other queues of these nodes are counted, too. The counts are upper bounds.";
/// Note on the trial of a rule with `for`.
const NOTE_FOR_IGNORED: &str = "The rule has “for”, which counts reports, and most reports are not stored: the condition is assumed to hold from its first report on. The number of alerts and flows are upper bounds, and the times are the earliest possible.";
/// Note on every trial.
const NOTE_STORED_EVENTS: &str = "This trial uses stored events, not every report: changes within a threshold were not stored, and a flow sees the fullest queue and the busiest link of each node on its path. A flow without reports is not judged: the rule stays as it was until its next report, or until the flow expires.";

/// State of a collector beside its alerts. A console has none.
#[derive(Default)]
struct CollectorState {
    notes: Option<Arc<Notes>>,
    recordings: Vec<RecordingRow>,
    confirmation: Confirmation,
}

/// Returns the alerts of a time span, the worst first.
pub(crate) async fn alerts(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(ALERTS)?;
    let settings = context.active_config.get();
    let now = nic::time::now();
    let to: u64 = params.number("to")?.unwrap_or(now).min(now);
    let from: u64 = params
        .number("from")?
        .unwrap_or(to.saturating_sub(DEFAULT_SPAN))
        .min(to);
    let wanted_state = params.text("state").map(str::to_owned);
    let limit = params.limit()?;
    let permit = history_permit(&context).await?;
    let (mut alerts, known_since) = read_alerts(&context, (from, to), &permit).await?;
    let mut collector = CollectorState::default();
    if settings.console.is_none() {
        let query = RecordingQuery {
            span: (from, to),
            location: Location::default(),
            limit: MAX_RECORDINGS,
        };
        collector = CollectorState {
            notes: Some(notes_of(&context)?),
            confirmation: confirm(&context, &mut alerts, to, now, &permit).await?,
            recordings: history_of(&context)?
                .recordings(query, Arc::clone(&permit))
                .await?,
        };
    }
    names::look_up(
        &context,
        alerts.iter().filter_map(|alert| alert.last.flow.as_ref()),
    );
    respond(permit, move || {
        let mut views = views(&alerts, &collector, &settings, now);
        let confirmation = collector.confirmation;
        let unlisted = confirmation.unlisted;
        let silent = views
            .iter()
            .filter_map(|view| view.last_seen)
            .filter(|last_seen| is_silent(*last_seen, now))
            .count()
            + confirmation.silent_unlisted;
        let firing = views.iter().filter(|view| view.state == *"firing").count() + unlisted;
        let unacknowledged = views.iter().filter(|view| is_open(view)).count() + unlisted;
        // A stable sort: the order of `alerts`, worst first, is kept within each group.
        views.sort_by_key(|view| (view.state != *"firing", !is_open(view)));
        views.retain(|view| wanted_state.as_ref().is_none_or(|state| view.state == **state));
        let is_about_firing = wanted_state.as_deref() != Some("resolved");
        let total = views.len() + if is_about_firing { unlisted } else { 0 };
        let (alerts, _) = page::fill(views.into_iter(), limit);
        Alerts {
            from,
            to,
            alerts,
            total,
            firing,
            unacknowledged,
            silent,
            silent_after_s: SILENT_AFTER / SECOND,
            known_since,
            confirmed: confirmation.is_confirmed,
        }
    })
    .await
}

/// Builds the views of all alerts, in their order.
fn views(
    alerts: &[Alert],
    collector: &CollectorState,
    settings: &config::Settings,
    now: u64,
) -> Vec<AlertView> {
    let conditions: HashMap<&str, &str> = settings
        .rules
        .iter()
        .map(|rule| (rule.name.as_str(), rule.when.as_str()))
        .collect();
    let last_seen = &collector.confirmation.last_seen;
    alerts
        .iter()
        .map(|alert| AlertView {
            last_seen: alert
                .last
                .flow
                .and_then(|flow| last_seen.get(&flow).copied())
                .filter(|_| alert.is_firing()),
            ..view(alert, collector, &conditions, now)
        })
        .collect()
}

/// Reads the alerts of a span from events. The second element is the time since which the events are complete, if there were
/// too many to read all of them.
async fn read_alerts(
    context: &Context,
    span: (u64, u64),
    permit: &Permit,
) -> Result<(Vec<Alert>, Option<u64>), Refusal> {
    let from = Some(span.0.saturating_sub(ALERT_LOOKBACK));
    let before = Some(span.1.saturating_add(1));
    let (mut rows, mut known_since): (Vec<RuleEvent>, Option<u64>) = (Vec::new(), None);
    for kind in [Kind::RuleOn, Kind::RuleOff] {
        let filter = EventFilter {
            from,
            before,
            kind: Some(kind),
            limit: MAX_EVENTS,
            ..EventFilter::default()
        };
        let query = EventQuery {
            filter,
            condition: None,
        };
        let rule_events = history_of(context)?
            .rule_events(query, Arc::clone(permit))
            .await?;
        if rule_events.len() == MAX_EVENTS {
            known_since = known_since.max(rule_events.last().map(|oldest| oldest.row.event.ts));
        }
        rows.extend(rule_events.into_iter().rev());
    }
    rows.retain(|event| known_since.is_none_or(|since| event.row.event.ts >= since));
    rows.sort_by_key(|event| event.row.event.ts);
    let mut past = Past::new(span);
    past.read(rows.into_iter());
    Ok((past.alerts(), known_since))
}

/// Outcome of comparing alerts with the collector's current state.
#[derive(Default)]
struct Confirmation {
    /// True if the collector has confirmed what fires now.
    is_confirmed: bool,
    /// Number of further firing alerts that are not listed.
    unlisted: usize,
    /// Number of these whose flow is silent.
    silent_unlisted: usize,
    /// Times of the latest reports of flows for which a rule is true.
    last_seen: HashMap<FlowKey, u64>,
}

/// Corrects alerts from events by the collector's current state. For a span that ends now, exactly the rules that are true
/// now fire. For an earlier span, alerts whose end cannot be known do not fire.
async fn confirm(
    context: &Context,
    alerts: &mut Vec<Alert>,
    to: u64,
    now: u64,
    permit: &Permit,
) -> Result<Confirmation, Refusal> {
    let is_now = now.saturating_sub(to) < MAX_LIVE_AGE;
    if !is_now && !alerts.iter().any(Alert::is_firing) {
        return Ok(Confirmation::default());
    }
    let Ok((firing, last_seen)) = firing(context, now).await else {
        return Ok(Confirmation::default());
    };
    if is_now {
        let confirmation = Confirmation {
            is_confirmed: true,
            unlisted: firing.beyond,
            silent_unlisted: firing.silent_beyond,
            last_seen,
        };
        firing.correct(alerts);
        return Ok(confirmation);
    }
    let filter = EventFilter {
        from: Some(to.saturating_add(1)),
        kind: Some(Kind::RuleOff),
        limit: MAX_EVENTS,
        ..EventFilter::default()
    };
    let query = EventQuery {
        filter,
        condition: None,
    };
    let ends = history_of(context)?
        .rule_events(query, Arc::clone(permit))
        .await?;
    firing.correct_past(alerts, &ends, ends.len() < MAX_EVENTS);
    Ok(Confirmation::default())
}

/// Asks the collector which rules are true now, and of which flows. Also returns the times of these flows' latest reports.
async fn firing(context: &Context, now: u64) -> Result<(Firing, HashMap<FlowKey, u64>), Refusal> {
    let mut firing = Firing::default();
    let mut last_seen = HashMap::new();
    let visit = context.monitor.walk(
        |collector, first| {
            // Of each flow: its rules that are true, as bits, and the time of its latest report.
            let mut firing_flows: Vec<(FlowKey, u64, u64)> = Vec::new();
            let detection = Arc::clone(collector.detection());
            let mut next = None;
            if !detection.rules.is_empty() {
                next = visit_firing_flows(collector, first, |flow| {
                    firing_flows.push((flow.row.flow, flow.rules, flow.row.last_seen))
                });
            }
            ((detection, firing_flows), next)
        },
        |_, (detection, firing_flows)| {
            for (flow, rules, flow_last_seen) in firing_flows {
                firing.add(&detection, flow, rules, is_silent(flow_last_seen, now));
                // Alerts beyond the limit of `firing` are not listed.
                if firing.beyond == 0 {
                    last_seen.insert(flow, flow_last_seen);
                }
            }
        },
    );
    visit.await?;
    Ok((firing, last_seen))
}

/// Returns the index of a rule and the flow's view, if the rule is true of the flow.
fn true_rule<'c>(collector: &'c Collector, flow: &FlowKey, rule: &str) -> Option<(usize, FlowView<'c>)> {
    let rules = &collector.detection().rules;
    let index = (0..rules.len()).find(|index| rules.name(*index) == rule)?;
    let flow = collector.flow(flow)?;
    (flow.rules >> index & 1 == 1).then_some((index, flow))
}

/// Returns whether a flow with this latest report has sent none for [`SILENT_AFTER`].
fn is_silent(last_seen: u64, now: u64) -> bool {
    now.saturating_sub(last_seen) >= SILENT_AFTER
}

/// Returns whether an alert fires and is neither acknowledged nor silenced.
fn is_open(alert: &AlertView) -> bool {
    alert.state == *"firing" && alert.acknowledged.is_none() && alert.silence.is_none()
}

fn view(alert: &Alert, collector: &CollectorState, conditions: &HashMap<&str, &str>, now: u64) -> AlertView {
    let last = &alert.last;
    let notes = collector.notes.as_deref();
    let recording = collector
        .recordings
        .iter()
        .find(|recording| recording.rule.as_deref() == Some(&*last.rule) && recording.flow == last.flow);
    AlertView {
        id: shown::id(last.alert()),
        rule: last.rule.to_string(),
        when: conditions.get(&*last.rule).map(|when| (*when).to_owned()),
        flow: last.flow.map(Into::into),
        text: last.flow.map(|flow| flow.to_string()),
        state: if alert.is_firing() { "firing" } else { "resolved" }.into(),
        ended: alert.ended.map(|ended| ended.name().into()),
        since: alert.since(),
        until: alert.until(),
        count: alert.count,
        episodes: alert
            .episodes
            .iter()
            .map(|episode| EpisodeView {
                since: episode.since,
                until: episode.until,
            })
            .collect(),
        metric: last.metric.map(|metric| metric.name().into()),
        value: last.value,
        threshold: last.threshold,
        node: last.node,
        interface: last.interface,
        queue: last.queue,
        recorded: recording.map(|recording| EpisodeView {
            since: Some(recording.since),
            until: Some(recording.until),
        }),
        acknowledged: notes.and_then(|notes| notes.acknowledged(last.alert(), alert.since())),
        silence: notes.and_then(|notes| notes.covering(last, now)),
        collectors: alert.source_names(),
        ..AlertView::default()
    }
}

fn notes_of(context: &Context) -> Result<Arc<Notes>, Refusal> {
    history_of(context)?;
    context.notes.clone().ok_or_else(|| {
        Refusal::not_found(
            "alerts are only in the store of a collector; ask the one that receives the flow's reports",
        )
    })
}

/// The body of `/alerts/acknowledge`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Acknowledge"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Acknowledge {
    /// Id of the alert: 16 hexadecimal digits.
    #[cfg_attr(test, schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    id: String,
    /// Comment, shown with the alert.
    #[serde(default)]
    #[cfg_attr(test, schemars(length(max = 500)))]
    comment: String,
    /// `false` withdraws the acknowledgement.
    #[serde(default = "default_true")]
    acknowledged: bool,
}

fn default_true() -> bool {
    true
}

/// Acknowledges an alert until it fires again, or withdraws the acknowledgement.
pub(crate) async fn acknowledge(
    State(context): State<Arc<Context>>,
    Requester(by): Requester,
    _: NoParams,
    Body(Acknowledge {
        id,
        comment,
        acknowledged,
    }): Body<Acknowledge>,
) -> Result<Json<AcknowledgedView>, Refusal> {
    let alert_id = super::cursor::parse_id(&id).ok_or_else(|| {
        Refusal::bad_request(format!(
            "invalid alert id {id:?}; write its 16 hexadecimal digits"
        ))
    })?;
    let note = AcknowledgedView {
        by,
        at: nic::time::now(),
        comment: validate_comment(comment)?,
    };
    let notes = notes_of(&context)?;
    let saved_note = acknowledged.then(|| note.clone());
    change(move || notes.acknowledge(alert_id, saved_note)).await?;
    Ok(Json(note))
}

/// Returns the active silences, and those that ended recently.
pub(crate) async fn silences(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<Silences>, Refusal> {
    Ok(Json(Silences {
        silences: notes_of(&context)?.silences(nic::time::now()),
    }))
}

/// The body of a new silence.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NewSilence"))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSilence {
    /// Filter of events that selects the alerts: `rule == slow and src in 10.0.1.0/24`.
    #[cfg_attr(test, schemars(extend("format" = "silence")))]
    filter: String,
    /// Duration from now on, seconds; default: an hour.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(min = 1, max = 31_536_000)))]
    seconds: Option<u64>,
    /// Reason for the silence, shown with it.
    #[serde(default)]
    #[cfg_attr(test, schemars(length(max = 500)))]
    comment: String,
}

/// Adds a silence of the alerts that match a filter.
pub(crate) async fn silence(
    State(context): State<Arc<Context>>,
    Requester(by): Requester,
    _: NoParams,
    Body(NewSilence {
        filter,
        seconds,
        comment,
    }): Body<NewSilence>,
) -> Result<Json<SilenceView>, Refusal> {
    let seconds = seconds.unwrap_or(DEFAULT_SILENCE_SECONDS);
    if filter.trim().is_empty() {
        return Err(Refusal::bad_request(
            "a silence needs a filter, such as rule == slow; one of all alerts is rule != \"\"",
        ));
    }
    if !(1..=MAX_SILENCE_SECONDS).contains(&seconds) {
        return Err(Refusal::bad_request(format!(
            "seconds = {seconds} is out of range; write 1 to {MAX_SILENCE_SECONDS}"
        )));
    }
    let from = nic::time::now();
    let comment = validate_comment(comment)?;
    let until = from.saturating_add(seconds.saturating_mul(SECOND));
    let new_silence = SilenceView {
        filter,
        from,
        until,
        by,
        comment,
        ..SilenceView::default()
    };
    let notes = notes_of(&context)?;
    let names = lazy_names(&context);
    change(move || notes.silence(new_silence, &names)).await.map(Json)
}

/// Ends a silence before its time.
pub(crate) async fn unsilence(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    _: NoParams,
) -> Result<Json<SilenceView>, Refusal> {
    let notes = notes_of(&context)?;
    let not_found =
        || Refusal::not_found("no active silence has this number; /api/v1/alerts/silences lists them");
    let number = id.parse::<u64>().map_err(|_| not_found())?;
    change(move || notes.end(number, nic::time::now()))
        .await?
        .map(Json)
        .ok_or_else(not_found)
}

/// Runs a change of notes on a blocking thread, since it writes to disk.
async fn change<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChangeError> + Send + 'static,
) -> Result<T, Refusal> {
    let result = tokio::task::spawn_blocking(work).await.map_err(|_| {
        Refusal::unavailable("nothing was saved; this is a fault in hopwise, please report it")
    })?;
    result.map_err(|failure| match failure {
        ChangeError::InvalidFilter { position, message } => {
            Refusal::bad_request(format!("the filter is wrong at character {position}: {message}"))
        }
        ChangeError::TooManySilences => {
            Refusal::conflict("the maximum number of silences is active; end one first")
        }
        ChangeError::NotSaved(error) if error.kind() == std::io::ErrorKind::Other => Refusal::conflict(
            format!("nothing was saved: alerts.json in the directory of the store: {error}"),
        ),
        ChangeError::NotSaved(error) => Refusal::unavailable(format!(
            "nothing was saved: alerts.json in the directory of the store cannot be written ({error}); {}",
            settings::remedy(&error).unwrap_or("correct its permissions")
        )),
    })
}

/// The body of `/alerts/try`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "TryRule"))]
#[serde(deny_unknown_fields)]
pub(crate) struct TryRule {
    /// The condition, as in `[[rules]]`.
    when: String,
    /// Start of the span, nanoseconds since the Unix epoch; default: 15 minutes before its end.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(max = u64::MAX)))]
    from: Option<u64>,
    /// End of the span, nanoseconds since the Unix epoch; default: now.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(test, schemars(range(max = u64::MAX)))]
    to: Option<u64>,
}

/// Evaluates a rule that is not in use over the stored events of a span.
pub(crate) async fn try_rule(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(TryRule { when, from, to }): Body<TryRule>,
) -> Result<Prepared, Refusal> {
    let now = nic::time::now();
    let to = to.unwrap_or(now).min(now);
    let from = from.unwrap_or(to.saturating_sub(DEFAULT_SPAN)).min(to);
    let permit = history_permit(&context).await?;
    let (rules, is_for_ignored) = match compile(&when) {
        Ok(compiled) => compiled,
        Err(fault) => {
            return respond(permit, move || TrialView {
                fault: Some(fault),
                from,
                to,
                ..TrialView::default()
            })
            .await;
        }
    };
    let filter = EventFilter {
        from: Some(from.saturating_sub(VALUE_LOOKBACK)),
        before: Some(to.saturating_add(1)),
        limit: MAX_TRIAL_EVENTS,
        ..EventFilter::default()
    };
    let query = EventQuery {
        filter,
        condition: None,
    };
    let rows = history_of(&context)?
        .events(query, Arc::clone(&permit))
        .await?
        .rows;
    let collector = &context.active_config.get().collector;
    let push_interval = collector.push_interval;
    let holding = Holding {
        longest: nanos(push_interval.saturating_mul(INTERVALS)),
        timeout: nanos(collector.flow_timeout),
    };
    respond(permit, move || {
        run_trial(rules, is_for_ignored, rows, from, to, holding)
    })
    .await
}

/// Evaluates a rule over events, newest first. `is_for_ignored` is true if the rule's `for` clause was left out of `rules`.
fn run_trial(
    rules: RuleSet,
    is_for_ignored: bool,
    rows: Vec<EventRow>,
    from: u64,
    to: u64,
    holding: Holding,
) -> TrialView {
    let mut notes = vec![NOTE_STORED_EVENTS.to_owned()];
    let queue_and_link_metrics = [
        Metric::QueueOccupancy,
        Metric::QueueCongestion,
        Metric::LinkUtilization,
    ];
    let uses_queue_or_link = queue_and_link_metrics
        .into_iter()
        .any(|metric| rules.uses(metric));
    if uses_queue_or_link {
        notes.push(NOTE_QUEUES_AND_LINKS.to_owned());
    }
    if is_for_ignored {
        notes.push(NOTE_FOR_IGNORED.to_owned());
    }
    let events = rows.len() as u64;
    let is_truncated = rows.len() == MAX_TRIAL_EVENTS;
    let oldest = rows.last().map_or(from, |row| row.event.ts);
    // Before the oldest event, the values that have not changed since are unknown.
    let judged_from = if is_truncated { from.max(oldest) } else { from };
    if judged_from > from {
        notes.push(format!(
            "The span has more than {MAX_TRIAL_EVENTS} events: only its end is judged. Choose a shorter one to judge all of it."
        ));
    }
    let column = to.saturating_sub(judged_from).div_ceil(TRIAL_COLUMNS).max(SECOND);
    let mut trial = Trial::new(
        rules,
        TrialRange {
            from: judged_from,
            to,
            column,
        },
    );
    let mut firing_at_start = None;
    let mut judged_until = to;
    let ends = holding.ends(&rows, to);
    for (row, end) in rows.iter().zip(ends).rev() {
        if row.event.ts >= judged_from && firing_at_start.is_none() {
            firing_at_start = Some(trial.firing());
        }
        if !trial.read(row, end) {
            judged_until = row.event.ts;
            notes.push("Too many events to evaluate: only the beginning of the span was evaluated. Choose a shorter span.".to_owned());
            break;
        }
    }
    let firing_at_start = firing_at_start.unwrap_or_else(|| trial.firing());
    let at_most = uses_queue_or_link || is_for_ignored;
    TrialView {
        to: judged_until,
        at_most,
        events,
        notes,
        ..trial.finish(firing_at_start)
    }
}

/// Compiles a rule to be tried. The second element is true if its `for` clause was left out.
fn compile(when: &str) -> Result<(RuleSet, bool), FaultView> {
    let rules = RuleSet::compile(&[("rule".to_owned(), when.to_owned())])
        .map_err(|error| fault_view(when, error.position, error.length, error.message))?;
    if !rules.is_stateful(0) {
        return Ok((rules, false));
    }
    let message = "previous, change and average cannot be tried, nor can `for` after `not` or beside `or`: they depend on every report, and most reports are not stored";
    let bound = rules.without_counts();
    bound
        .map(|bound| (bound, true))
        .ok_or_else(|| fault_view(when, 0, when.len(), message.to_owned()))
}

/// Checks the length of a comment and puts it on one line.
fn validate_comment(comment: String) -> Result<String, Refusal> {
    if comment.chars().count() > MAX_COMMENT_CHARS {
        return Err(Refusal::bad_request(format!(
            "the comment is longer than {MAX_COMMENT_CHARS} characters; shorten it"
        )));
    }
    Ok(comment
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect())
}
