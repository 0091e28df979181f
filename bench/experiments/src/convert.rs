//! Converts plots from SVG to PNG and PDF with `rsvg-convert`.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use terminal::CliError;

/// The external program that converts SVG files; part of librsvg.
const CONVERTER: &str = "rsvg-convert";

wire::named! {
    /// Format of a plot.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
    pub(super) enum Format, name {
        /// Scalable, drawn by any browser
        Svg => "svg",
        /// 1520 pixels wide; needs rsvg-convert
        Png => "png",
        /// For papers; needs rsvg-convert
        Pdf => "pdf",
    }
}

impl Format {
    /// Returns the path of a plot in this format, beside its SVG file.
    fn file(self, svg: &Path) -> PathBuf {
        svg.with_extension(self.name())
    }
}

/// Fails if a format needs the converter and it is missing, before a command measures for minutes.
pub(super) fn check(formats: &[Format]) -> Result<(), CliError> {
    if formats.iter().all(|format| *format == Format::Svg) {
        return Ok(());
    }
    run(CONVERTER, &["--version".as_ref()])
}

/// Converts a plot to another format, beside its SVG file.
pub(super) fn convert(svg: &Path, format: Format) -> Result<(), CliError> {
    if format == Format::Svg {
        return Ok(());
    }
    let out = format.file(svg);
    let kind = format!("--format={}", format.name());
    let to = "--output".as_ref();
    run(
        CONVERTER,
        &[
            kind.as_ref(),
            "--zoom=2".as_ref(),
            to,
            out.as_os_str(),
            svg.as_os_str(),
        ],
    )
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), CliError> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(CliError::new(format!("{program} failed: {}", text.trim())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CliError::new(format!(
            "PNG and PDF need `{program}`, which is not installed; install librsvg2-bin (Debian, Ubuntu) or \
             librsvg2-tools (Fedora), or use SVG, which needs no other program"
        ))),
        Err(error) => Err(CliError::new(format!("cannot run {program}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_needs_no_converter_and_its_absence_is_named() {
        assert!(check(&[Format::Svg]).is_ok() && convert(Path::new("none.svg"), Format::Svg).is_ok());
        let error = run("hopwise-no-such-program", &[]).unwrap_err().to_string();
        assert!(
            error.contains("not installed") && error.contains("librsvg2-bin"),
            "{error}"
        );
        assert_eq!(Format::Pdf.file(Path::new("/a/b-1.svg")), Path::new("/a/b-1.pdf"));
    }
}
