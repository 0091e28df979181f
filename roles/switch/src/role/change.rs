//! Parses changes at run time: JSON with the keys of the configuration file, validated by the same code.

use serde_json::Value;

use crate::settings::{
    self as switch, PortSettings, SwitchSettings, WatchSettings,
    filter::{self, FilterSettings},
};
use settings::{json::read, setting::Setting};

/// Checks that no port was added, removed or moved to another interface, and that no `edge` has changed.
pub fn same_ports(old: &[PortSettings], new: &[PortSettings]) -> Result<(), String> {
    if old.iter().map(fixed_settings).eq(new.iter().map(fixed_settings)) {
        Ok(())
    } else {
        Err("ports cannot be added, removed or moved to other interfaces, nor `edge` changed, while it runs; restart".to_owned())
    }
}

fn fixed_settings(port: &PortSettings) -> (u16, &str, bool) {
    (port.number, &port.interface, port.edge)
}

/// Parses flows to watch, from a list of tables as in `[[switch.watch]]`.
///
/// # Errors
/// A message for the user.
pub fn watch(settings: &SwitchSettings, body: Value) -> Result<Vec<WatchSettings>, String> {
    if !body.is_array() {
        return Err("write a list of tables as in [[switch.watch]], such as [{\"dport\": 80}]".to_owned());
    }
    let watch = read::<Vec<WatchSettings>>(&body)?;
    let changed = SwitchSettings {
        watch: watch.clone(),
        ..settings.clone()
    };
    checked(&changed).map(|()| watch)
}

/// Parses filters, from a list of tables as in `[[switch.filter]]`.
///
/// # Errors
/// A message for the user.
pub fn filters(settings: &SwitchSettings, body: Value) -> Result<Vec<FilterSettings>, String> {
    if !body.is_array() {
        let example = r#"[{"algorithm": "per_flow", "metric": "flow_latency", "threshold": "100us"}]"#;
        return Err(format!(
            "write a list of tables as in [[switch.filter]], such as {example}"
        ));
    }
    let filter = read::<Vec<FilterSettings>>(&body)?;
    let changed = SwitchSettings {
        filter: filter.clone(),
        ..settings.clone()
    };
    checked(&changed).map(|()| filter)
}

/// Parses a changed port, from a table with some keys of `[[switch.ports]]`; null restores a default.
///
/// # Errors
/// A message for the user.
pub fn port(settings: &SwitchSettings, number: u16, body: Value) -> Result<PortSettings, String> {
    let index = settings.ports.iter().position(|port| port.number == number);
    let index = index.ok_or_else(|| format!("there is no port {number}"))?;
    let before = &settings.ports[index];
    let (Value::Object(mut table), Value::Object(body)) = (before.show().to_json(), body) else {
        return Err("write a table of keys of [[switch.ports]], such as {\"up\": false}".to_owned());
    };
    for (key, value) in body {
        table.insert(key, value);
    }
    let after = read::<PortSettings>(&Value::Object(table))?;
    same_ports(std::slice::from_ref(before), std::slice::from_ref(&after))?;
    let mut changed = settings.clone();
    changed.ports[index] = after.clone();
    checked(&changed).map(|()| after)
}

/// Validates changed settings like the settings of a file.
pub(super) fn checked(settings: &SwitchSettings) -> Result<(), String> {
    let mut problems = Vec::new();
    switch::check(settings, &mut |path, message| {
        problems.push(format!("{}: {message}", path.join(".")))
    });
    for (index, error) in filter::rule_errors(&settings.filter) {
        problems.push(format!(
            "switch.filter.{index}.rule, character {}: {}",
            error.position + 1,
            error.message
        ));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> SwitchSettings {
        let text =
            "[switch]\nnode = 1\n[[switch.ports]]\nnumber = 2\ninterface = \"a\"\nrate = \"1Mbit/s\"\n";
        crate::for_tests::parse(text).unwrap()
    }

    #[test]
    fn a_port_changes_the_given_keys_and_keeps_the_rest() {
        let after = port(&settings(), 2, json!({"up": false, "delay": "2ms", "loss": 0.25})).unwrap();
        assert_eq!(
            (after.up, after.delay.as_millis(), after.loss.0),
            (false, 2, 250_000)
        );
        assert_eq!(after.rate.map(|rate| rate.0), Some(1_000_000));
        let free = port(&settings(), 2, json!({"rate": null})).unwrap();
        assert_eq!(free.rate, None);
    }

    #[test]
    fn invalid_changes_are_refused_with_a_message() {
        let error = |body| port(&settings(), 2, body).map(|_| ()).unwrap_err();
        assert_eq!(
            error(json!({"spd": 1})),
            "there is no key `spd` in [[switch.ports]]; did you mean `up`?"
        );
        assert!(error(json!({"loss": 2})).contains("write a number from 0 to 1"));
        assert!(error(json!({"interface": "b"})).contains("restart"));
        assert!(error(json!([])).contains("write a table"));
        assert_eq!(
            port(&settings(), 3, json!({})).map(|_| ()).unwrap_err(),
            "there is no port 3"
        );
        let watched = |body| watch(&settings(), body).map(|list| list.len());
        assert_eq!(watched(json!([{"dport": 80, "mode": "mx"}, {}])), Ok(2));
        assert!(watched(json!({})).unwrap_err().contains("write a list"));
        assert!(watched(json!([{"mode": "what"}])).unwrap_err().contains("\"md\""));
        assert!(
            watched(json!([{"items": []}]))
                .unwrap_err()
                .contains("no metadata selected")
        );
    }

    #[test]
    fn filters_are_read_as_in_the_file() {
        let read = |body| filters(&settings(), body).map(|list| list.len());
        let good = json!([
            {"dport": 80, "algorithm": "per_flow", "metric": "flow_latency", "threshold": "100us"},
            {"algorithm": "rule", "rule": "flow_latency > 5 ms"},
            {"algorithm": "change", "keep_alive": "2s", "queue_bits": 64},
        ]);
        assert_eq!((read(good), read(json!([]))), (Ok(3), Ok(0)));
        assert!(read(json!({})).unwrap_err().contains("write a list"));
        assert!(
            read(json!([{"algorithm": "per_day"}]))
                .unwrap_err()
                .contains("\"per_hop\"")
        );
        let error = read(json!([{"algorithm": "rule", "rule": "flow_latency > 5 parsecs"}])).unwrap_err();
        assert!(error.starts_with("switch.filter.0.rule, character "), "{error}");
    }
}
