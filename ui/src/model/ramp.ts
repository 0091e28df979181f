/** A colour between stops (`#rrggbb`, evenly spaced); null for a value that is not known. */
export function mix(stops: readonly string[], fraction: number | null): string | null {
  if (fraction === null || stops.length === 0) return null;
  const at = Math.min(1, Math.max(0, fraction)) * (stops.length - 1);
  const low = channels(stops[Math.floor(at)] ?? '');
  const high = channels(stops[Math.ceil(at)] ?? '');
  const part = at - Math.floor(at);
  const mixed = low.map((value, i) => Math.round(value + ((high[i] ?? 0) - value) * part));
  return `#${mixed.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

function channels(hex: string): number[] {
  return [1, 3, 5].map((start) => Number.parseInt(hex.slice(start, start + 2), 16) || 0);
}

/** How bright a colour looks, 0 to 255: decides between dark and light text on it. */
export function brightness(hex: string): number {
  const [red = 0, green = 0, blue = 0] = channels(hex);
  return 0.299 * red + 0.587 * green + 0.114 * blue;
}
