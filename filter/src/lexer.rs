//! The lexer of the filter language. The allowed characters of a value depend on its field, so a value extends to the next
//! blank, comma or parenthesis and is interpreted later.

use crate::field::Operator;

/// A cursor in a filter's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    offset: usize,
}

/// A value with its position in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    /// The value was in quotation marks, which `text` does not contain.
    pub(crate) is_quoted: bool,
}

impl ValueToken<'_> {
    /// Returns the length in the source text in bytes, including quotation marks.
    pub(crate) fn length(&self) -> usize {
        self.text.len() + 2 * usize::from(self.is_quoted)
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    pub(crate) fn skip_blanks(&mut self) {
        self.offset += self.rest().len() - self.rest().trim_start().len();
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// Skips this symbol if it is next, and returns whether it was.
    pub(crate) fn skip_symbol(&mut self, symbol: &str) -> bool {
        self.skip_blanks();
        let is_next = self.rest().starts_with(symbol);
        self.offset += symbol.len() * usize::from(is_next);
        is_next
    }

    /// Skips this word if it is next, and returns whether it was.
    pub(crate) fn skip_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_name() == word;
        self.offset += word.len() * usize::from(is_next);
        is_next
    }

    /// Returns the next name without skipping it, or an empty string if something else is next.
    pub(crate) fn peek_name(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        // `10.0.0.1` and `spine-1` are values rather than names.
        let is_value = rest[length..].starts_with(['.', ':', '-', '/', '*', '?']);
        if is_value || rest.starts_with(|c: char| c.is_ascii_digit()) {
            ""
        } else {
            &rest[..length]
        }
    }

    pub(crate) fn skip(&mut self, bytes: usize) {
        self.offset += bytes;
    }

    pub(crate) fn read_operator(&mut self) -> Option<Operator> {
        Operator::ALL.into_iter().find(|operator| match operator {
            Operator::In => self.skip_word(operator.text()),
            _ => self.skip_symbol(operator.text()),
        })
    }

    /// Reads a value, in quotation marks or not.
    ///
    /// Returns advice for an error message if there is no value, or if its quotation marks are not closed.
    pub(crate) fn read_value(&mut self) -> Result<ValueToken<'a>, &'static str> {
        self.skip_blanks();
        let rest = self.rest();
        let start = self.offset;
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(length) = quoted.find('"') else {
                return Err("close the quotes with another \"");
            };
            self.offset += length + 2;
            return Ok(ValueToken {
                text: &quoted[..length],
                start,
                is_quoted: true,
            });
        }
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '"'))
            .unwrap_or(rest.len());
        self.offset += length;
        if length == 0 {
            return Err("a value is missing here");
        }
        Ok(ValueToken {
            text: &rest[..length],
            start,
            is_quoted: false,
        })
    }
}
