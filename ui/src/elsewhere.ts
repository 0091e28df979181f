import { h } from './lib/dom';
import { pageAt } from './router';
import { session } from './session';

/** In a console: collectors by their names, as links to their pages where the configuration has the addresses. */
export function collectorLinks(names: readonly string[], page?: string): HTMLElement[] {
  return names.map((name) => {
    const address = session.collectors[name];
    if (address === undefined) return h('span', {}, name);
    const anchor = h('a', { href: pageAt(address, page ?? location.hash) }, name);
    // What is selected and the time may change while the link is shown.
    if (page === undefined)
      anchor.addEventListener('pointerdown', () => (anchor.href = pageAt(address, location.hash)));
    return anchor;
  });
}

/** `At c1, c2.`, with links. */
export function atCollectors(text: string, names: readonly string[]): (string | HTMLElement)[] {
  const links = collectorLinks(names);
  return [text, ...links.flatMap((link, i) => (i === 0 ? [link] : [', ', link])), '.'];
}
