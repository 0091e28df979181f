/** Dark or light: the system's choice until the user makes one. */

export type Theme = 'dark' | 'light';

const KEY = 'hopwise-theme';
const listeners = new Set<() => void>();
const system = window.matchMedia('(prefers-color-scheme: light)');

export function theme(): Theme {
  const chosen = document.documentElement.dataset['theme'];
  if (chosen === 'dark' || chosen === 'light') return chosen;
  return system.matches ? 'light' : 'dark';
}

export function toggleTheme(): void {
  const next: Theme = theme() === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset['theme'] = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Storage is disabled: the choice lasts as long as the page.
  }
  announce();
}

function announce(): void {
  for (const listener of listeners) listener();
}

system.addEventListener('change', announce);

/** What is drawn from now on is for paper. Returns a function that returns to the theme before. */
export function useLight(): () => void {
  const { dataset } = document.documentElement;
  const before = dataset['theme'];
  dataset['theme'] = 'light';
  announce();
  return () => {
    if (before === undefined) delete dataset['theme'];
    else dataset['theme'] = before;
    announce();
  };
}

/** Calls `read` when everything is drawn in light colours. The screen does not show them: nothing is painted before it returns. */
export async function inLight<T>(read: () => T): Promise<T> {
  const restore = useLight();
  try {
    // Charts of uPlot are drawn in a microtask of their own.
    await Promise.resolve();
    await Promise.resolve();
    return read();
  } finally {
    restore();
  }
}

/** Calls the listener at each change, since canvas drawings do not follow CSS. Returns a function that removes it. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The value of a colour variable, now. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colours of the n-th series: distinct for the colour-blind, equal in weight. */
export function seriesColour(index: number): string {
  return colour(`series-${(index % 8) + 1}`);
}

/** A `#rrggbb` colour with an opacity, as canvases of all browsers take it. */
export function faded(hex: string, opacity: number): string {
  return (
    hex +
    Math.round(opacity * 255)
      .toString(16)
      .padStart(2, '0')
  );
}
