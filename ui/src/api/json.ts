/** A string, or a complete number, so that digits after a decimal point are not read as an integer. */
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** An integer that a double may not hold exactly. */
const LONG_INTEGER = /^-?\d{16,}$/;

/**
 * Parses JSON but keeps integers of 16 and more digits as strings of digits: a time in nanoseconds loses its last
 * digits in a double, and what a query returns must be exact.
 */
export function parseExact(text: string): unknown {
  const quoted = text.replace(STRING_OR_NUMBER, (found) => (LONG_INTEGER.test(found) ? `"${found}"` : found));
  return JSON.parse(quoted) as unknown;
}
