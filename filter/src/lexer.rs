//! The lexer of the filter language. The allowed characters of a value depend on its field, so a value extends to the next
//! blank, comma or parenthesis and is interpreted later.

use crate::field::Operator;

/// A cursor in a filter's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A value with its position in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    /// The value was in quotation marks, which `text` does not contain.
    pub(crate) is_quoted: bool,
}

impl Piece<'_> {
    /// Returns the length in the source text in bytes, including quotation marks.
    pub(crate) fn length(&self) -> usize {
        self.text.len() + 2 * usize::from(self.is_quoted)
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.blanks();
        self.rest().is_empty()
    }

    /// Skips this symbol if it is next, and returns whether it was.
    pub(crate) fn symbol(&mut self, symbol: &str) -> bool {
        self.blanks();
        let is_next = self.rest().starts_with(symbol);
        self.at += symbol.len() * usize::from(is_next);
        is_next
    }

    /// Skips this word if it is next, and returns whether it was.
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let is_next = self.name() == word;
        self.at += word.len() * usize::from(is_next);
        is_next
    }

    /// Returns the next name without skipping it, or an empty string if something else is next.
    pub(crate) fn name(&mut self) -> &'a str {
        self.blanks();
        let rest = self.rest();
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        // `10.0.0.1` and `spine-1` are values rather than names.
        let goes_on = rest[length..].starts_with(['.', ':', '-', '/', '*', '?']);
        if goes_on || rest.starts_with(|c: char| c.is_ascii_digit()) {
            ""
        } else {
            &rest[..length]
        }
    }

    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(crate) fn operator(&mut self) -> Option<Operator> {
        Operator::ALL.into_iter().find(|operator| match operator {
            Operator::In => self.word(operator.text()),
            _ => self.symbol(operator.text()),
        })
    }

    /// Reads a value, in quotation marks or not.
    ///
    /// Returns advice for an error message if there is no value, or if its quotation marks are not closed.
    pub(crate) fn value(&mut self) -> Result<Piece<'a>, &'static str> {
        self.blanks();
        let rest = self.rest();
        let start = self.at;
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(length) = quoted.find('"') else {
                return Err("close the quotes with another \"");
            };
            self.at += length + 2;
            return Ok(Piece {
                text: &quoted[..length],
                start,
                is_quoted: true,
            });
        }
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '"'))
            .unwrap_or(rest.len());
        self.at += length;
        if length == 0 {
            return Err("a value is missing here");
        }
        Ok(Piece {
            text: &rest[..length],
            start,
            is_quoted: false,
        })
    }
}
