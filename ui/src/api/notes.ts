/**
 * Notes of the server about its answers, such as that files of their time are damaged: the latest ones of each path that the
 * page has requested.
 */
export class Notes {
  private readonly byPath = new Map<string, string[]>();
  private changed: () => void = () => undefined;

  onChange(changed: () => void): void {
    this.changed = changed;
  }

  /** Replaces the notes about the answers of a path. */
  set(path: string, notes: string[]): void {
    if (notes.length === 0 ? !this.byPath.delete(path) : this.byPath.get(path)?.join() === notes.join())
      return;
    if (notes.length > 0) this.byPath.set(path, notes);
    this.changed();
  }

  /** Another page, or another time: the answers of before are not shown any more. */
  clear(): void {
    this.byPath.clear();
    this.changed();
  }

  /** Each sentence once, in a stable order. */
  all(): string[] {
    return [...new Set([...this.byPath.values()].flat())].sort();
  }
}

export const notes = new Notes();

/** The notes in the header of an answer: a JSON array of texts. */
export function notesIn(header: string | null): string[] {
  try {
    const found: unknown = JSON.parse(header ?? '[]');
    return Array.isArray(found) ? found.filter((note) => typeof note === 'string') : [];
  } catch {
    // A proxy changed it.
    return [];
  }
}
