//! `hopwise lab fault` and `hopwise lab mode`: change the conditions of a running lab.

use std::time::Duration;

use terminal::CliError;

use crate::conditions::{ActiveFault, Conditions, Fault};
use crate::{managed, remote::Lab};

/// Time from the cut of a link to the change of routes, as with a routing protocol that has to converge.
const CONVERGENCE: Duration = Duration::from_millis(200);

/// Injects a fault. Returns its description.
///
/// # Errors
/// There is no such link, or a switch does not answer or rejects the change.
pub(crate) fn inject(lab: &mut Lab, link: &str, fault: Fault) -> Result<String, CliError> {
    let active = ActiveFault {
        link: link_name(lab, link)?,
        fault,
    };
    check_supported(lab, &active)?;
    let description = active.describe();
    if fault == (Fault::Cut { reroute: true }) {
        let cut_only = ActiveFault {
            fault: Fault::Cut { reroute: false },
            ..active.clone()
        };
        apply_change(lab, |conditions| conditions.add(cut_only))?;
        std::thread::sleep(CONVERGENCE);
    }
    apply_change(lab, |conditions| conditions.add(active))?;
    Ok(description)
}

/// Rejects faults that need BMv2: it forwards packets without impairments, by routes that do not change.
fn check_supported(lab: &Lab, active: &ActiveFault) -> Result<(), CliError> {
    let ends = lab
        .topology
        .find_link(&active.link)
        .map(|index| lab.topology.links[index].ends)?;
    if let Some(end) = ends.iter().find(|end| lab.topology.is_bmv2_node(**end)) {
        return Err(CliError::new(format!(
            "`{}` is of kind \"bmv2\" and injects no faults; name a link between switches of kind \"hopwise\"",
            lab.topology.node_name(*end)
        )));
    }
    if active.fault == (Fault::Cut { reroute: true }) && lab.topology.has_bmv2() {
        return Err(CliError::new(
            "the routes of switches of kind \"bmv2\" stay as they are; add --keep-routes to cut the link alone",
        ));
    }
    Ok(())
}

/// Restores a link that was cut. Returns its name.
///
/// # Errors
/// There is no such link, or a switch does not answer or rejects the change.
pub(crate) fn restore(lab: &mut Lab, link: &str) -> Result<String, CliError> {
    let link = link_name(lab, link)?;
    apply_change(lab, |conditions| {
        conditions
            .faults
            .retain(|active| active.link != link || !matches!(active.fault, Fault::Cut { .. }));
    })?;
    Ok(link)
}

/// Applies changed conditions; restores the previous ones if that fails.
fn apply_change(lab: &mut Lab, update: impl FnOnce(&mut Conditions)) -> Result<(), CliError> {
    let previous = lab.state.conditions.clone();
    update(&mut lab.state.conditions);
    lab.apply().inspect_err(|_| {
        lab.state.conditions = previous;
        // The first failure is the one to report.
        let _ = lab.apply();
    })
}

fn link_name(lab: &Lab, link: &str) -> Result<String, CliError> {
    lab.topology
        .find_link(link)
        .map(|index| lab.topology.links[index].interfaces[0].clone())
}

/// Removes all faults of the lab.
///
/// # Errors
/// A switch does not answer or rejects the change.
pub(crate) fn clear(lab: &mut Lab) -> Result<(), CliError> {
    apply_change(lab, |conditions| conditions.faults.clear())
}

/// Changes how flows are measured; `None` restores the topology file's mode. In a managed lab this changes the intents.
///
/// # Errors
/// The lab is managed and the mode is INT 1.0, or a switch does not answer or rejects the change.
pub(crate) fn set_mode(lab: &mut Lab, mode: Option<&str>) -> Result<(), CliError> {
    if mode == Some("md10") && managed::is_managed(&lab.topology.file) {
        return Err(CliError::new(
            "an intent does not choose INT 1.0; write [[watch]] mode = \"md10\" instead of [[intents]] into the topology file",
        ));
    }
    apply_change(lab, |conditions| conditions.mode = mode.map(str::to_owned))
}

/// Clears the SF-INT registers of a switch, or of all if `switch` is `None`. Returns the names of the cleared switches.
///
/// # Errors
/// There is no such switch, or it does not answer or rejects the request.
pub(crate) fn wipe(lab: &Lab, switch: Option<&str>) -> Result<Vec<String>, CliError> {
    let mut wiped = Vec::new();
    for (index, candidate) in lab.topology.switches.iter().enumerate() {
        let has_registers = !lab.topology.is_bmv2(index);
        if has_registers && switch.is_none_or(|name| name == candidate.name) {
            lab.post(index, "/switch/registers/wipe")?;
            wiped.push(candidate.name.clone());
        }
    }
    if wiped.is_empty() {
        let names = lab
            .topology
            .switches
            .iter()
            .enumerate()
            .filter(|(index, _)| !lab.topology.is_bmv2(*index));
        let names: Vec<&str> = names.map(|(_, switch)| switch.name.as_str()).collect();
        let message = format!(
            "there is no switch `{}` with such registers; there are {}",
            switch.unwrap_or(""),
            names.join(", ")
        );
        return Err(CliError::new(message));
    }
    Ok(wiped)
}
