/** A string, or an integer that a double cannot hold exactly. */
const LONG_INTEGER = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g;

/**
 * Parses JSON but keeps integers of 16 and more digits as strings of digits: a time in nanoseconds loses its last
 * digits in a double, and what a query returns must be exact.
 */
export function parseExact(text: string): unknown {
  const quoted = text.replace(LONG_INTEGER, (found) => (found.startsWith('"') ? found : `"${found}"`));
  return JSON.parse(quoted) as unknown;
}
