/** What can stand at the cursor of a filter, as `/filter` says. */
export interface Completion {
  /** The first UTF-16 unit that it replaces, up to the cursor. */
  from: number;
  text: string;
  about: string;
}

/** What is wrong with a filter. */
export interface Fault {
  position: number;
  length: number;
  message: string;
}

export interface FilterHelp {
  fault: Fault | null;
  completions: Completion[];
}

/** The text with a completion in it, and where the cursor is then. What is a field or value is followed by a blank. */
export function completed(text: string, at: number, { from, text: part }: Completion): [string, number] {
  const before = text.slice(0, from) + part + (part.endsWith(' ') ? '' : ' ');
  return [before + text.slice(at).trimStart(), before.length];
}

/** The text in three parts: before the fault, what is wrong, after it. At the end of the text, a blank is marked. */
export function marked(text: string, { position, length }: Fault): [string, string, string] {
  const end = position + length;
  return [text.slice(0, position), text.slice(position, end) || ' ', text.slice(end)];
}

/** Whether the fault is only that the text goes on: nothing is wrong before the place where it is being written. */
export function isUnfinished(text: string, at: number, { position, length }: Fault): boolean {
  return at === text.length && position + length >= text.trimEnd().length;
}
