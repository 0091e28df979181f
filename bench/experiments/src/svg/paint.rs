//! Colours and line widths of the elements of a plot, by class.
//!
//! Elements get presentation attributes, which every SVG renderer supports. A style sheet holds only what attributes cannot
//! express: the colours of the dark colour scheme, as plain values without CSS variables.

use std::fmt::Write as _;

use super::STYLES;

/// The style of a series. The colours are after Okabe and Ito (distinguishable with colour blindness).
pub(super) struct SeriesStyle {
    /// Colour on light background.
    light: &'static str,
    /// Colour on dark background.
    dark: &'static str,
    /// Dash pattern of lines, so that they differ in print too.
    pub(super) dash: &'static str,
}

impl SeriesStyle {
    const fn new(light: &'static str, dark: &'static str, dash: &'static str) -> Self {
        Self { light, dark, dash }
    }
}

pub(super) const SERIES: [SeriesStyle; STYLES] = [
    SeriesStyle::new("#0072b2", "#56b4e9", ""),
    SeriesStyle::new("#d55e00", "#ff8c42", ""),
    SeriesStyle::new("#009e73", "#2fd4a3", ""),
    SeriesStyle::new("#a3478a", "#e69fce", "7 3"),
    SeriesStyle::new("#8a6d00", "#f0d442", "7 3"),
    SeriesStyle::new("#444444", "#d0d0d0", "2 3"),
    SeriesStyle::new("#5b3ea8", "#b39ddb", "2 3"),
    SeriesStyle::new("#a01c1c", "#ff7f7f", "9 3 2 3"),
];
const INK: &str = "#1f2328";
const SOFT: &str = "#59636e";
const GRID: &str = "#e3e6ea";
/// Font stack of all text.
pub(super) const FONT: &str = "system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif";

/// Adds the presentation attributes of its class to an element.
pub(super) fn painted(element: &str) -> String {
    let parts = element
        .split_once(r#"class=""#)
        .and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    match parts {
        Some((before, (class, after))) => {
            format!(r#"{before}class="{class}"{}{after}"#, attributes(class))
        }
        None => element.to_owned(),
    }
}

fn attributes(class: &str) -> String {
    let (kind, index) = class.split_once(" s").unwrap_or((class, ""));
    let colour = index
        .parse()
        .ok()
        .and_then(|index: usize| SERIES.get(index))
        .map_or(INK, |series| series.light);
    match kind {
        "ground" => r##" fill="#fff""##.to_owned(),
        "grid" => format!(r#" stroke="{GRID}""#),
        "axis" => format!(r#" stroke="{SOFT}""#),
        "line" => format!(r#" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round""#),
        "mark" | "bar" => format!(r#" fill="{colour}""#),
        "band" => format!(r#" fill="{colour}" fill-opacity="0.2""#),
        "whisker" => format!(r#" fill="none" stroke="{INK}""#),
        "title" => format!(r#" fill="{INK}" font-size="16" font-weight="600""#),
        "name" => format!(r#" fill="{INK}""#),
        _ => format!(r#" fill="{SOFT}""#),
    }
}

/// Returns the style sheet of the dark colour scheme.
pub(super) fn dark() -> String {
    let mut rules = String::from(
        "text{fill:#9aa4af}.title,.name{fill:#e6e9ed}.ground{fill:#15191e}.grid{stroke:#2d343c}.axis{stroke:#9aa4af}\
         .whisker{stroke:#e6e9ed}",
    );
    for (index, series) in SERIES.iter().enumerate() {
        let colour = series.dark;
        let _ = write!(
            rules,
            ".line.s{index}{{stroke:{colour}}}.mark.s{index},.bar.s{index},.band.s{index}{{fill:{colour}}}"
        );
    }
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_has_the_attributes_of_its_class() {
        assert_eq!(painted("<path d=\"M0 0\"/>\n"), "<path d=\"M0 0\"/>\n");
        assert_eq!(
            painted("<rect class=\"bar s1\" x=\"1\"/>"),
            "<rect class=\"bar s1\" fill=\"#d55e00\" x=\"1\"/>"
        );
        assert_eq!(
            painted("<text class=\"note\">class=&quot;</text>"),
            "<text class=\"note\" fill=\"#59636e\">class=&quot;</text>"
        );
    }

    #[test]
    fn no_style_needs_css_variables() {
        assert!(!dark().contains("var(") && dark().contains(".band.s7{fill:#ff7f7f}"));
    }
}
