import { empty, h, panel } from '../lib/dom';
import type { Page } from '../router';

/** A page that a console does not have: it would be empty, and mean nothing. */
export function unavailablePage(title: string): Page {
  const text =
    'This is a console: it answers from ClickHouse, where collectors export what they observe. Data that only a running collector or manager ' +
    'has is on its own pages.';
  return {
    element: h('div', { class: 'page' }, panel(title, {}, empty('Not available in a console', text))),
    stop() {},
  };
}
