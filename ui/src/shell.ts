import { h, replace, setText, show } from './lib/dom';
import { alertBadge } from './alert-badge';
import { ApiError, get } from './api/client';
import type { Domain } from './api/manager';
import { notes } from './api/notes';
import { poll } from './api/poll';
import { count, span } from './lib/format';
import { keys } from './keys';
import { onTheme, theme, toggleTheme } from './lib/theme';
import { live } from './live';
import { stoppedText } from './model/intents';
import { link } from './router';
import { timeBar } from './time-bar';
import { printHead } from './print';
import { session } from './session';
import { tokenDialog } from './token';
import { viewsDialog } from './views';

export interface Shell {
  element: HTMLElement;
  show(page: string, element: HTMLElement): void;
  /** Shows the present range, or hides where it is chosen. */
  showRange(shown: boolean): void;
}

/** The frame around every page: navigation, the state of the connection, the theme. */
export function shell(pages: { name: string; title: string }[]): Shell {
  const tabs = pages.map(({ name, title }) => h('a', { href: link(name), data: { page: name } }, title));
  const alerts = tabs.find((tab) => tab.dataset['page'] === 'alerts');
  if (alerts) alertBadge(alerts);
  const main = h('main', { id: 'page', tabindex: '-1' });
  const state = h('span', { class: 'live-state', role: 'status' });
  const banner = h('div', { class: 'banner', role: 'alert' });
  const stopped = stoppedBanner();
  const views = viewsDialog();
  const { dialog: help, button: helpButton } = keys(pages, () => views.open());
  const header = h(
    'header',
    { class: 'top' },
    h(
      'a',
      { class: 'brand', href: link('overview'), aria: { label: 'hopwise, overview' } },
      logo(),
      'hopwise',
    ),
    h('nav', { aria: { label: 'Pages' } }, ...tabs),
    state,
    viewsButton(() => views.open()),
    helpButton,
    themeButton(),
  );
  const skip = h(
    'a',
    { class: 'skip', href: '#page', on: { click: (event) => focusMain(event, main) } },
    'Skip to content',
  );
  const dialog = tokenDialog(() => location.reload());
  const range = timeBar();
  const element = h(
    'div',
    { class: 'frame' },
    skip,
    printHead(),
    header,
    banner,
    stopped,
    range.element,
    answerNotes(),
    main,
    dialog.element,
    help,
    views.dialog,
  );
  live.watch(() => {
    showState(state);
    showTrouble(banner);
    if (live.trouble?.unauthorised) dialog.open();
  });
  return {
    element,
    show(page, content) {
      for (const tab of tabs) {
        if (tab.dataset['page'] === page) {
          tab.setAttribute('aria-current', 'page');
          tab.scrollIntoView({ block: 'nearest', inline: 'center' });
        } else tab.removeAttribute('aria-current');
      }
      main.replaceChildren(content);
      window.scrollTo(0, 0);
    },
    showRange: (shown) => range.show(shown),
  };
}

const DOMAIN_MS = 5_000;

/** Says on every page that INT was stopped: then no reports come, and nothing is wrong. */
function stoppedBanner(): HTMLElement {
  const text = h('span', {});
  const element = h(
    'div',
    { class: 'banner stopped', role: 'status' },
    text,
    h('a', { href: link('intents') }, 'Intents'),
    ' starts it again.',
  );
  show(element, false);
  const asked = poll<Domain>({
    intervalMs: DOMAIN_MS,
    request: (signal) => get<Domain>('domain', {}, signal),
    show(domain) {
      const what = stoppedText(domain);
      show(element, what !== '');
      setText(text, `${capital(what)}: no packets are measured. `);
    },
    failed(error) {
      // There is no manager in this program.
      if (error instanceof ApiError && error.status === 404) asked.stop();
    },
  });
  return element;
}

/** Notes of the server about what the page shows, above it and once, whichever answers they came with. */
function answerNotes(): HTMLElement {
  const list = h('ul', {});
  const text = h('strong', {}, 'Limits of the data below');
  const element = h('div', { class: 'answer-notes', role: 'status' }, text, list);
  const update = (): void => {
    show(element, notes.all().length > 0);
    replace(list, notes.all(), (note) => h('li', {}, note));
  };
  notes.onChange(update);
  update();
  return element;
}

function focusMain(event: Event, main: HTMLElement): void {
  event.preventDefault();
  main.focus();
}

function logo(): HTMLElement {
  const image = h('img', { class: 'logo' });
  image.src = './favicon.svg';
  image.alt = '';
  return image;
}

function viewsButton(open: () => void): HTMLElement {
  const title = 'Saved views';
  return h(
    'button',
    { class: 'quiet', type: 'button', title, aria: { label: title }, on: { click: open } },
    '☆',
  );
}

function themeButton(): HTMLElement {
  const button = h('button', { class: 'quiet', type: 'button' });
  const label = (): void => {
    const other = theme() === 'dark' ? 'light' : 'dark';
    setText(button, '◐');
    button.title = `Use the ${other} theme`;
    button.setAttribute('aria-label', button.title);
  };
  button.addEventListener('click', toggleTheme);
  onTheme(label);
  label();
  return button;
}

function showState(element: HTMLElement): void {
  const { status, trouble } = live;
  element.classList.toggle('lost', trouble !== null);
  element.classList.toggle('waiting', trouble === null && status === null && !session.console);
  if (session.console) setText(element, 'console');
  else if (trouble) setText(element, trouble.unauthorised ? 'token needed' : 'no answer');
  else setText(element, status ? `${count(status.rates.reports)} reports/s` : 'connecting');
}

function showTrouble(banner: HTMLElement): void {
  const { trouble, status } = live;
  show(banner, trouble !== null && !trouble.unauthorised);
  if (!trouble) return;
  const since = span((Date.now() - trouble.since) / 1000);
  const kept = status ? ' The page shows the last known state.' : '';
  const next = `Next try in ${span(trouble.waitMs / 1000)}.`;
  setText(banner, `${capital(trouble.message)} (for ${since}). ${next}${kept}`);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
