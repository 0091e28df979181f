/** An address of this program that a person has named. */
export interface View {
  name: string;
  /** `#/page?key=value`. */
  address: string;
}

const LONGEST_NAME = 80;
const LONGEST_ADDRESS = 8_192;
const MOST = 200;

/** What can be kept; null if it is no view. */
function view(value: unknown): View | null {
  if (typeof value !== 'object' || value === null) return null;
  const { name, address } = value as Record<string, unknown>;
  if (typeof name !== 'string' || typeof address !== 'string') return null;
  const text = name.trim().slice(0, LONGEST_NAME);
  // Nothing but a place in this program.
  if (text === '' || !address.startsWith('#/') || address.length > LONGEST_ADDRESS) return null;
  return { name: text, address };
}

/** The views in a text, such as a file of another browser. A text of another kind is refused with its reason. */
export function parseViews(text: string): { views: View[]; left: number } {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error('not a file of saved views: it is not JSON');
  }
  const list = (parsed as { views?: unknown } | null)?.views;
  if (!Array.isArray(list)) throw new Error('not a file of saved views: it has no list “views”');
  const views = list.map(view).filter((one) => one !== null);
  return { views: merged([], views), left: list.length - views.length };
}

export function viewsText(views: readonly View[]): string {
  return `${JSON.stringify({ views }, null, 2)}\n`;
}

/** Views by name; a later one of the same name replaces the earlier one. The first ones are kept if there are too many. */
export function merged(known: readonly View[], added: readonly View[]): View[] {
  const all = new Map(known.map((one) => [one.name, one]));
  for (const one of added) {
    const kept = view(one);
    if (kept && (all.has(kept.name) || all.size < MOST)) all.set(kept.name, kept);
  }
  return [...all.values()].sort((one, other) =>
    one.name.localeCompare(other.name, undefined, { numeric: true }),
  );
}

export function without(known: readonly View[], name: string): View[] {
  return known.filter((one) => one.name !== name);
}
