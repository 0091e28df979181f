import { saveBlob } from './lib/csv';
import { h, setText, show } from './lib/dom';
import { reasonOf } from './lib/format';
import { merged, parseViews, viewsText, without, type View } from './model/views';
import { link, parseRoute } from './router';
import { PARAMETERS } from './times';

const KEY = 'hopwise-views';
const LARGEST_FILE = 4 << 20;

/** The views of this browser. What another tab has saved is seen. */
function load(): View[] {
  try {
    return parseViews(localStorage.getItem(KEY) ?? '{"views":[]}').views;
  } catch {
    return [];
  }
}

/** Returns whether they are kept. */
function store(views: readonly View[]): boolean {
  try {
    localStorage.setItem(KEY, viewsText(views));
    return true;
  } catch {
    return false;
  }
}

/** The address of the page, with its time or without. */
function present(withTime: boolean): string {
  const { page, argument, query } = parseRoute(location.hash);
  if (!withTime) for (const name of PARAMETERS) query.delete(name);
  return link(page === '' ? 'overview' : page, argument, Object.fromEntries(query));
}

/** The dialog in which addresses get names. They are kept in this browser, and go to another one as a file. */
export function viewsDialog(): { dialog: HTMLDialogElement; open(): void } {
  const list = h('ul', { class: 'views' });
  const none = h('p', { class: 'muted' }, 'No views are saved in this browser.');
  const message = h('p', { class: 'table-note', role: 'status' });
  const name = h('input', { id: 'view-name', autocomplete: 'off', placeholder: 'name of this view' });
  name.maxLength = 80;
  const withTime = h('input', { type: 'checkbox', id: 'view-time' });
  const file = h('input', { type: 'file', id: 'view-file', aria: { label: 'File of saved views' } });
  file.accept = 'application/json,.json';
  const close = h('button', { class: 'primary', type: 'button' }, 'Close');
  const form = h(
    'form',
    { class: 'bar' },
    h('label', { for: 'view-name' }, 'Save this page as'),
    name,
    h('span', { class: 'check' }, withTime, h('label', { for: 'view-time' }, 'with its time')),
    h('button', { type: 'submit' }, 'Save'),
  );
  const exported = h('button', { type: 'button' }, 'Export');
  const where =
    'Views are stored in this browser only. To use them in another browser, export them to a file.';
  const dialog = h(
    'dialog',
    { class: 'token views-dialog', aria: { label: 'Saved views' } },
    h('h2', {}, 'Saved views'),
    list,
    none,
    form,
    h('p', { class: 'muted' }, where),
    h('div', { class: 'bar' }, exported, h('label', { for: 'view-file' }, 'Import'), file),
    message,
    close,
  );

  function change(views: readonly View[], done: string): void {
    setText(
      message,
      store(views) ? done : 'The browser cannot store views: its storage is full or disabled.',
    );
    fill();
  }

  function fill(): void {
    const views = load();
    show(none, views.length === 0);
    exported.disabled = views.length === 0;
    list.replaceChildren(...views.map(item));
  }

  function item({ name: text, address }: View): HTMLElement {
    const remove = h('button', { type: 'button', class: 'quiet', aria: { label: `Delete ${text}` } }, '✕');
    remove.addEventListener('click', () => change(without(load(), text), `${text} deleted.`));
    const anchor = h('a', { href: address }, text);
    anchor.addEventListener('click', () => dialog.close());
    return h('li', {}, anchor, remove);
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = name.value.trim();
    if (text === '') return setText(message, 'Enter a name first.');
    change(merged(load(), [{ name: text, address: present(withTime.checked) }]), `${text} saved.`);
    name.value = '';
  });
  exported.addEventListener('click', () =>
    saveBlob('hopwise-views.json', new Blob([viewsText(load())], { type: 'application/json' })),
  );
  file.addEventListener('change', () => void take());
  close.addEventListener('click', () => dialog.close());

  async function take(): Promise<void> {
    const chosen = file.files?.[0];
    if (!chosen) return;
    file.value = '';
    try {
      if (chosen.size > LARGEST_FILE) throw new Error('the file is too large for saved views');
      const { views, left } = parseViews(await chosen.text());
      const rest = left > 0 ? ` ${left} invalid entries were skipped.` : '';
      change(merged(load(), views), `${views.length} views imported.${rest}`);
    } catch (error) {
      setText(message, reasonOf(error));
    }
  }

  return {
    dialog,
    open(): void {
      if (dialog.open) return;
      setText(message, '');
      fill();
      dialog.showModal();
      name.focus();
    },
  };
}
