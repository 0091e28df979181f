//! Settings of the formats in which the driver `files` writes a device's rules: the tables `[manager.files.NAME]`.

use std::path::{Path, PathBuf};

use ::files::Format;
use ::p4runtime::{commands::commands, message::P4Info, program::Program, programs::INCLUDED};
use manager::{device::Capabilities, inventory::Device};
use settings::{choice, read, section};

use super::{
    gnmi::path_map,
    p4runtime::{P4MtuSettings, P4ReportSettings, P4RouteSettings, P4RuntimeSettings},
};

section! {
    /// Another format in which the driver `files` writes the rules of the device of `[inventory]` with this name, in addition to
    /// `desired.txt`.
    pub struct FilesSettings("[manager.files.NAME]") {
        /// The format of the rules.
        pub format: FilesFormat = FilesFormat::Bmv2,
        /// For `bmv2`, the pipeline map of the program: `hopwise-int`, `onos-int`, `geant-int`, or a file. For `config_db`, the path map: `sonic-tam`, or a
        /// file.
        pub map: String = String::new(),
        /// P4Info of the program as text. Not set: that of hopwise's program for `map`. For `bmv2`.
        pub p4info: Option<PathBuf> = None,
        /// Port and addresses of its reports, as `[manager.p4runtime.NAME.report]`. For `bmv2`.
        pub report: Option<P4ReportSettings> = None,
        /// Routes of programs whose map has them, as `[[manager.p4runtime.NAME.routes]]`. For `bmv2`.
        pub routes: Vec<P4RouteSettings> = Vec::new(),
        /// Longest packets of ports, as `[[manager.p4runtime.NAME.mtus]]`. For `bmv2`.
        pub mtus: Vec<P4MtuSettings> = Vec::new(),
    }
}

choice! {
    /// The form of rules.
    pub enum FilesFormat("\"bmv2\" or \"config_db\"") {
        /// `bmv2.txt`: commands of BMv2's `simple_switch_CLI`, which empty the tables of the map and fill them.
        Bmv2 = "bmv2",
        /// `config_db.json`: objects of SONiC's CONFIG_DB; `config_db.patch.json`: what leads there from `applied.txt`, as JSON Patch.
        ConfigDb = "config_db",
    }
}

/// A key of the settings, and the reason its value is invalid.
type Wrong = (&'static str, String);

impl FilesSettings {
    /// Builds the format and the capabilities of a device with this map. Reads the files that the settings name.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn format(&self, device: &Device) -> Result<(Format, Capabilities), Wrong> {
        match self.format {
            FilesFormat::Bmv2 => self.bmv2(device),
            FilesFormat::ConfigDb => self.config_db(),
        }
    }

    fn bmv2(&self, device: &Device) -> Result<(Format, Capabilities), Wrong> {
        let driver = self.p4().driver(device)?;
        let map = driver.map.1;
        let local = driver.local;
        let info = self.info()?;
        let program = Program::new(&map, &info, &local).map_err(|problems| {
            (
                "map",
                format!("it does not fit the program: {}", problems.join("; ")),
            )
        })?;
        let can = program.capabilities();
        let format =
            Format::new(move |_, after| Ok(vec![("bmv2.txt", commands(&map, &info, &local, after)?)]));
        Ok((format, can))
    }

    /// Returns the equivalent settings of the driver `p4runtime`, for `bmv2`.
    pub fn p4(&self) -> P4RuntimeSettings {
        P4RuntimeSettings {
            map: self.map.clone(),
            report: self.report.clone(),
            routes: self.routes.clone(),
            mtus: self.mtus.clone(),
            ..P4RuntimeSettings::default()
        }
    }

    fn info(&self) -> Result<P4Info, Wrong> {
        let Some(file) = &self.p4info else {
            let included = INCLUDED.iter().find(|program| program.map == Some(&*self.map));
            let Some(included) = included else {
                let message =
                    "the program is missing; add p4info = \"/etc/hopwise/int.p4info.txtpb\" or the like";
                return Err(("p4info", message.to_owned()));
            };
            return included.info().map_err(|error| ("p4info", error));
        };
        let text = read::file(file).map_err(|error| {
            (
                "p4info",
                format!("cannot read {}: {error}; correct the name", file.display()),
            )
        })?;
        p4runtime::binary::info(&text).map_err(|error| ("p4info", format!("{}: {error}", file.display())))
    }

    fn config_db(&self) -> Result<(Format, Capabilities), Wrong> {
        let bmv2 = [
            ("p4info", self.p4info.is_some()),
            ("report", self.report.is_some()),
            ("routes", !self.routes.is_empty()),
            ("mtus", !self.mtus.is_empty()),
        ];
        if let Some((key, _)) = bmv2.iter().find(|(_, is_written)| *is_written) {
            return Err((key, format!("`{key}` belongs to format = \"bmv2\"; remove it")));
        }
        let map = path_map(Path::new(&self.map)).map_err(|error| ("map", error))?;
        let can = map.capabilities().clone();
        let format = Format::new(move |before, after| {
            Ok(vec![
                ("config_db.json", format!("{:#}\n", map.config_db(after)?)),
                (
                    "config_db.patch.json",
                    format!("{:#}\n", map.config_db_patch(before, after)?),
                ),
            ])
        });
        Ok((format, can))
    }
}

#[cfg(test)]
mod tests {
    use crate::for_tests;

    fn error(section: &str) -> String {
        error_of(section, "")
    }

    fn error_of(section: &str, device: &str) -> String {
        let file = format!(
            "[manager]\ncollectors = [{{ address = \"192.0.2.1:1\" }}]\n{section}\n[[inventory.devices]]\nname = \"a\"\nnode = 1\n\
             driver = \"files\"\naddress = \"/tmp\"\nports = 2\n{device}"
        );
        for_tests::problems(&file)
    }

    #[test]
    fn a_form_is_checked_with_the_configuration() {
        let report = "report = { port = 1, source = \"192.0.2.9\" }";
        for right in [
            "",
            "[manager.files.a]\nformat = \"config_db\"\nmap = \"sonic-tam\"",
            &format!("[manager.files.a]\nmap = \"hopwise-int\"\n{report}"),
        ] {
            assert_eq!(error(right), "", "{right}");
        }
        for (wrong, part) in [
            (
                "[manager.files.b]\nmap = \"hopwise-int\"",
                "no device `b` with driver = \"files\"",
            ),
            ("[manager.files.a]", "the program is missing"),
            ("[manager.files.a]\nmap = \"onos-int\"", "add p4info = "),
            (
                "[manager.files.a]\nformat = \"config_db\"\nmap = \"other\"",
                "there is no path map `other`",
            ),
            (
                "[manager.files.a]\nformat = \"config_db\"\nmap = \"sonic-tam\"\np4info = \"x\"",
                "belongs to format = \"bmv2\"",
            ),
            (
                "[manager.files.a]\nmap = \"hopwise-int\"\np4info = \"/nowhere\"",
                "cannot read /nowhere",
            ),
        ] {
            assert!(error(wrong).contains(part), "{wrong}\n{}", error(wrong));
        }
    }

    /// What a patch changes depends on what the device has.
    #[test]
    fn a_patch_needs_a_confirmation() {
        let section = "[manager.files.a]\nformat = \"config_db\"\nmap = \"sonic-tam\"";
        assert_eq!(error_of(section, "confirm = \"applied\"\n"), "");
        let refused = error_of(section, "confirm = \"written\"\n");
        assert!(
            refused.contains("h.toml:4") && refused.contains("remove `confirm` of `a`"),
            "{refused}"
        );
        let report = "report = { port = 1, source = \"192.0.2.9\" }";
        let bmv2 = format!("[manager.files.a]\nmap = \"hopwise-int\"\n{report}");
        assert_eq!(error_of(&bmv2, "confirm = \"written\"\n"), "");
    }
}
