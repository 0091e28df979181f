//! Redacts secrets in quoted lines of a configuration file and in messages. Each hidden character becomes `*`, so that columns
//! still match.

use std::ops::Range;

const MASK: char = '*';
/// Placeholder URL in hopwise's own advice, which has no secret.
const PLACEHOLDER_URL: &str = "https://HOST/BUCKET";

/// Redacts the byte ranges `hidden` of the file in a line that starts at byte `start`. Quotation marks around a text remain.
pub(crate) fn redact_ranges(line: &str, start: usize, hidden: &[Range<usize>]) -> String {
    let mut is_hidden = vec![false; line.len()];
    for range in hidden {
        let first = range.start.saturating_sub(start);
        let end = range.end.saturating_sub(start);
        for (at, byte) in line.bytes().enumerate().take(end).skip(first) {
            let is_end = start + at == range.start || at + 1 == end;
            is_hidden[at] |= !(is_end && matches!(byte, b'"' | b'\''));
        }
    }
    line.char_indices()
        .map(|(at, char)| if is_hidden[at] { MASK } else { char })
        .collect()
}

/// Redacts a line that is not valid TOML: keeps its punctuation and the words that `is_known` accepts.
pub(crate) fn redact_unknown_words(line: &str, is_known: impl Fn(&str) -> bool) -> String {
    let mut quoted = String::with_capacity(line.len());
    for part in line.split_inclusive(is_punctuation) {
        let word = part.trim_end_matches(is_punctuation);
        if is_known(word) {
            quoted.push_str(word);
        } else {
            quoted.extend(word.chars().map(|_| MASK));
        }
        quoted.push_str(&part[word.len()..]);
    }
    quoted
}

fn is_punctuation(char: char) -> bool {
    char.is_whitespace() || "=[]{},\"'.#".contains(char)
}

/// Redacts the secrets that URLs in a text may contain: users, passwords, paths and queries.
pub(crate) fn redact_url_secrets(text: &str) -> String {
    redact_users(&redact_url_paths(text))
}

/// Redacts the user before `@` in URLs, such as `https://user:password@host`.
fn redact_users(text: &str) -> String {
    text.split_inclusive(char::is_whitespace)
        .map(redact_user)
        .collect()
}

/// Redacts the user in one word. The interface name in `xdp://lan@1` is not a user.
fn redact_user(word: &str) -> String {
    let Some(end) = word.rfind('@') else {
        return word.to_owned();
    };
    let start = word[..end].find("://").map_or(0, |scheme| scheme + 3);
    let is_user = match start {
        0 => word[..end].contains(':'),
        _ => !word[..start].to_ascii_lowercase().ends_with("xdp://"),
    };
    if !is_user {
        return word.to_owned();
    }
    let hidden: String = word[start..end].chars().map(|_| MASK).collect();
    format!("{}{hidden}{}", &word[..start], &word[end..])
}

fn is_address_end(char: char) -> bool {
    char.is_whitespace() || matches!(char, '"' | '\'' | '`')
}

/// Redacts paths and queries of `http://` and `https://` URLs, because webhook URLs often contain a token.
fn redact_url_paths(line: &str) -> String {
    let mut quoted = String::with_capacity(line.len());
    for part in line.split_inclusive(is_address_end) {
        if part.trim_end_matches(is_address_end) == PLACEHOLDER_URL {
            quoted.push_str(part);
            continue;
        }
        let lower = part.to_ascii_lowercase();
        let scheme = ["http://", "https://"]
            .iter()
            .find_map(|scheme| Some(lower.find(scheme)? + scheme.len()));
        let path = scheme.and_then(|host| Some(host + part[host..].find(['/', '?', '#'])? + 1));
        let shown = path.unwrap_or(part.len());
        quoted.push_str(&part[..shown]);
        quoted.extend(
            part[shown..]
                .chars()
                .map(|char| if is_address_end(char) { char } else { MASK }),
        );
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_paths_of_addresses_are_hidden() {
        for (line, expected) in [
            (
                "url = \"https://u:p@h:1/a?b\" # x",
                "url = \"https://***@h:1/***\" # x",
            ),
            ("url = \"HTTPS://u:p@h/a\"", "url = \"HTTPS://***@h/*\""),
            (
                "found the text `https://h/T0/B0`",
                "found the text `https://h/*****`",
            ),
            ("listen = [\"XDP://lan@1:5\"]", "listen = [\"XDP://lan@1:5\"]"),
            ("url = \"http://h/T0/B0\"", "url = \"http://h/*****\""),
            (
                "[\"https://a\",\"https://u:p@b\"]",
                "[\"https://***************@b\"]",
            ),
            (
                "a bucket is https://HOST/BUCKET",
                "a bucket is https://HOST/BUCKET",
            ),
            (
                "a bucket is `https://HOST/BUCKET2`",
                "a bucket is `https://HOST/*******`",
            ),
            ("url = \"u:p@h\"", "url = ****@h\""),
            ("listen = [\"xdp://lan@1:5\"]", "listen = [\"xdp://lan@1:5\"]"),
            (
                "when = \"link_utilization@7 > 80\"",
                "when = \"link_utilization@7 > 80\"",
            ),
            ("url = \"file:///srv/hopwise\"", "url = \"file:///srv/hopwise\""),
        ] {
            assert_eq!(redact_url_secrets(line), expected);
        }
    }

    #[test]
    fn only_known_words_of_a_text_that_is_not_toml_are_quoted() {
        let quoted = redact_unknown_words("tokens=[{name=\"v\", token = abc-def] # é", |word| {
            word == "tokens" || word == "token"
        });
        assert_eq!(quoted, "tokens=[{****=\"*\", token = *******] # *");
    }

    #[test]
    fn hidden_bytes_keep_their_quotes_and_columns() {
        assert_eq!(
            redact_ranges("é = \"secret\"", 10, &[15..23, 90..91]),
            "é = \"******\""
        );
        assert_eq!(redact_ranges("é = secret", 10, &[15..21, 90..91]), "é = ******");
    }
}
