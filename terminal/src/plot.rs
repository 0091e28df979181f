//! Horizontal bars from block characters, for tables and progress lines.

const BLOCKS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Draws a bar for `value` of `max` with at most `width` columns, in steps of 1/8 column. A nonzero value is always visible.
pub fn bar(value: f64, max: f64, width: usize) -> String {
    if max <= 0.0 || value <= 0.0 {
        return String::new();
    }
    let eighths = ((value / max).min(1.0) * (width * 8) as f64).round().max(1.0) as usize;
    let mut out: String = std::iter::repeat_n(BLOCKS[8], eighths / 8).collect();
    if !eighths.is_multiple_of(8) {
        out.push(BLOCKS[eighths % 8]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_length_is_proportional_to_the_value() {
        let bars = [
            (0.0, 10.0),
            (10.0, 10.0),
            (5.0, 10.0),
            (0.001, 10.0),
            (20.0, 10.0),
            (1.0, 0.0),
        ];
        assert_eq!(
            bars.map(|(v, m)| bar(v, m, 4)),
            ["", "████", "██", "▏", "████", ""]
        );
    }
}
