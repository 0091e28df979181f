import { dictionary } from './lib/dictionary';
import { h } from './lib/dom';
import { link } from './router';
import { goTo } from './times';

/** The letter after `g` that goes to each page. */
export const LETTERS = dictionary<string>({
  overview: 'o',
  topology: 't',
  alerts: 'a',
  traffic: 'r',
  queues: 'u',
  flow: 'f',
  paths: 'p',
  events: 'e',
  intents: 'i',
  devices: 'd',
  stores: 's',
  lists: 'l',
  exports: 'x',
  sql: 'q',
});

const KEY = 'hopwise-keys';
/** How long a letter after `g` is waited for. */
const WAIT_MS = 1500;
/** Where `/` goes: the first of these on the page. */
const SEARCH = 'main [data-search], main input[type="search"]';

const HELP: readonly [keys: string, what: string][] = [
  ['/', 'search on this page'],
  ['?', 'these keys'],
  ['v', 'saved views'],
  ['↑ ↓ Home End', 'another row of a table; Enter selects it'],
  ['Ctrl Enter', 'run the SQL query'],
];

const MAP_HELP: readonly [keys: string, what: string][] = [
  ['← → ↑ ↓', 'the next node in that direction'],
  ['Enter', 'open or close the group'],
  ['+ − 0', 'zoom in, zoom out, show everything'],
  ['Shift and arrows', 'move the map'],
  ['Esc', 'select nothing'],
];

export interface Keys {
  dialog: HTMLElement;
  /** Opens the dialog. */
  button: HTMLElement;
}

/** Keys that work on every page, and the dialog that shows them and turns them off. */
export function keys(pages: readonly { name: string; title: string }[], openViews: () => void): Keys {
  const dialog = helpDialog(pages);
  const open = (): void => {
    if (!dialog.open) dialog.showModal();
  };
  let waiting = 0;
  document.addEventListener('keydown', (event) => {
    if (
      event.defaultPrevented ||
      isTyping(event) ||
      document.querySelector('dialog[open]') !== null ||
      !enabled()
    )
      return;
    const begun = Date.now() - waiting < WAIT_MS;
    waiting = 0;
    const page = begun ? pages.find(({ name }) => LETTERS[name] === event.key) : undefined;
    if (page) goTo(link(page.name));
    else if (event.key === 'g') waiting = Date.now();
    else if (event.key === '?') open();
    else if (event.key === 'v') openViews();
    else if (event.key !== '/' || !focusSearch()) return;
    event.preventDefault();
  });
  const title = 'Keys';
  const button = h(
    'button',
    { class: 'quiet', type: 'button', title, aria: { label: title }, on: { click: open } },
    '?',
  );
  return { dialog, button };
}

function isTyping(event: KeyboardEvent): boolean {
  const { target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  return target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
}

function focusSearch(): boolean {
  const field = document.querySelector<HTMLInputElement | HTMLTextAreaElement>(SEARCH);
  field?.focus();
  field?.select();
  return field !== null;
}

/** Single keys can be turned off: speech input and unsteady hands press them unintentionally. */
function enabled(): boolean {
  try {
    return localStorage.getItem(KEY) !== 'off';
  } catch {
    return true;
  }
}

function helpDialog(pages: readonly { name: string; title: string }[]): HTMLDialogElement {
  const rows = (list: readonly (readonly [string, string])[]): HTMLElement =>
    h(
      'dl',
      { class: 'facts' },
      ...list.flatMap(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)]),
    );
  const box = h('input', { type: 'checkbox', id: 'keys-on' });
  box.checked = enabled();
  box.addEventListener('change', () => {
    try {
      localStorage.setItem(KEY, box.checked ? 'on' : 'off');
    } catch {
      // Storage is disabled: they stay on.
      box.checked = true;
    }
  });
  const close = h('button', { class: 'primary', type: 'submit' }, 'Close');
  const form = h(
    'form',
    {},
    h('h2', {}, 'Keys'),
    rows(HELP),
    h('h3', {}, 'Go to a page'),
    rows(pages.flatMap(({ name, title }) => (LETTERS[name] ? [[`g ${LETTERS[name]}`, title] as const] : []))),
    h('h3', {}, 'On the map'),
    rows(MAP_HELP),
    h('p', { class: 'check' }, box, h('label', { for: 'keys-on' }, 'Use the keys /, ?, v and g')),
    close,
  );
  const dialog = h('dialog', { class: 'token keys', aria: { label: 'Keys' } }, form);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    dialog.close();
  });
  return dialog;
}
