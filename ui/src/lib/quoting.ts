/** What a shell passes on as it is. A word that begins with `=` is expanded by zsh. */
const PLAIN = /^[\w@%+:,./-][\w@%+=:,./-]*$/;
/** A terminal may act on these when a command is pasted. A line feed is harmless inside quotes. */
const CONTROLS = /([\0-\x09\x0b-\x1f\x7f-\x9f]+)/;

/** A word for a POSIX shell, whatever is in it; null if no program can be given it. */
export function quoted(word: string): string | null {
  if (word.includes('\0')) return null;
  if (PLAIN.test(word)) return word;
  const parts = word.split(CONTROLS).map((part, at) => (at % 2 === 1 ? printed(part) : verbatim(part)));
  return parts.join('') || "''";
}

function verbatim(text: string): string {
  return text === '' ? '' : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Control characters by their octal digits. */
function printed(controls: string): string {
  const bytes = [...new TextEncoder().encode(controls)];
  return `"$(printf '${bytes.map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')}')"`;
}

/** A command as a person can paste it into a shell; null if a word cannot be given to a program. */
export function commandLine(words: readonly string[]): string | null {
  const parts = words.map(quoted);
  return parts.includes(null) ? null : parts.join(' ');
}

/** A text in SQL. */
export function sqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
