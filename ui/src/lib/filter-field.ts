import { get } from '../api/client';
import { completed, isUnfinished, marked, type Completion, type FilterHelp } from '../model/completion';
import { h, setText, show } from './dom';

/** After so long without a key, what was typed is looked at. */
const PAUSE_MS = 150;
const SHOWN = 12;
let fields = 0;

export interface FilterOptions {
  view: 'flows' | 'events';
  label: string;
  value: string;
  /** A filter without a fault; empty: none. */
  changed(text: string): void;
}

/** A field for a filter: completes it, and underlines what is wrong. A filter with a fault does not apply; the one before does. */
export function filterField(options: FilterOptions) {
  const id = `filter-field-${(fields += 1)}`;
  const input = h('input', {
    type: 'search',
    role: 'combobox',
    placeholder: 'address, or src in 10.0.0.0/8 and …',
    spellcheck: 'false',
    autocomplete: 'off',
    data: { search: '' },
    aria: {
      label: options.label,
      autocomplete: 'list',
      expanded: 'false',
      controls: id,
      describedby: `${id}-fault`,
    },
  });
  const marks = h('div', { class: 'filter-marks', aria: { hidden: 'true' } });
  const list = h('ul', { class: 'filter-list', role: 'listbox', id, aria: { label: 'Completions' } });
  const fault = h('p', { class: 'filter-fault', id: `${id}-fault`, role: 'status' });
  let offered: Completion[] = [];
  let chosen = -1;
  let asked = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let applied = options.value;
  let stopped = false;
  input.value = options.value;

  function close(): void {
    offered = [];
    chosen = -1;
    show(list, false);
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  }

  function open(completions: Completion[]): void {
    close();
    offered = completions.slice(0, SHOWN);
    const items = offered.map((one, i) => {
      const accepts = (event: Event): void => {
        // The field keeps the focus.
        event.preventDefault();
        accept(one);
      };
      const about = one.about === '' ? null : h('span', { class: 'muted' }, one.about);
      const props = {
        role: 'option',
        id: `${id}-${i}`,
        aria: { selected: 'false' },
        on: { mousedown: accepts },
      };
      return h('li', props, h('code', {}, one.text.trim()), about);
    });
    list.replaceChildren(...items);
    show(list, items.length > 0);
    input.setAttribute('aria-expanded', String(items.length > 0));
  }

  function choose(next: number): void {
    chosen = (next + offered.length) % offered.length;
    for (const [i, item] of [...list.children].entries()) {
      item.setAttribute('aria-selected', String(i === chosen));
      if (i === chosen) item.scrollIntoView({ block: 'nearest' });
    }
    input.setAttribute('aria-activedescendant', `${id}-${chosen}`);
  }

  function accept(one: Completion): void {
    const [text, at] = completed(input.value, input.selectionStart ?? input.value.length, one);
    input.value = text;
    input.setSelectionRange(at, at);
    close();
    void look();
  }

  /** Marks the fault, unless it is that the filter is still being written. */
  function judge(help: FilterHelp, text: string, at: number, isDone: boolean): void {
    const wrong = help.fault;
    const shown = wrong !== null && (isDone || !isUnfinished(text, at, wrong)) ? wrong : null;
    setText(fault, shown?.message ?? '');
    show(fault, shown !== null);
    input.setAttribute('aria-invalid', String(shown !== null));
    const [before, bad, after] = shown ? marked(text, shown) : ['', '', ''];
    marks.replaceChildren(before, bad === '' ? '' : h('mark', {}, bad), after);
    marks.scrollLeft = input.scrollLeft;
    if (wrong === null && text.trim() !== applied) {
      applied = text.trim();
      options.changed(applied);
    }
  }

  async function look(isDone = false): Promise<void> {
    clearTimeout(timer);
    if (stopped) return;
    const mine = (asked += 1);
    const text = input.value;
    const at = input.selectionStart ?? text.length;
    try {
      const help = await get<FilterHelp>('filter', { view: options.view, text, at });
      if (mine !== asked) return;
      judge(help, text, at, isDone);
      if (isDone || document.activeElement !== input) close();
      else open(help.completions);
    } catch {
      // Nobody completes it; the list says by itself what is wrong with it.
      if (mine !== asked) return;
      close();
      applied = text.trim();
      options.changed(applied);
    }
  }

  input.addEventListener('input', () => {
    clearTimeout(timer);
    marks.replaceChildren();
    timer = setTimeout(() => void look(input.value === ''), PAUSE_MS);
  });
  input.addEventListener('scroll', () => (marks.scrollLeft = input.scrollLeft));
  input.addEventListener('focus', () => void look());
  input.addEventListener('blur', () => {
    close();
    if (input.value.trim() !== applied) void look(true);
  });
  input.addEventListener('keydown', (event) => {
    const isOpen = offered.length > 0;
    const one = offered[chosen];
    if (event.key === 'ArrowDown' && isOpen) choose(chosen + 1);
    else if (event.key === 'ArrowUp' && isOpen) choose(chosen < 0 ? -1 : chosen - 1);
    else if ((event.key === 'Enter' || event.key === 'Tab') && one) accept(one);
    else if (event.key === 'Escape' && isOpen) close();
    else {
      if (event.key === 'Enter') void look(true);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
  close();
  show(fault, false);
  return {
    element: h(
      'div',
      { class: 'filter-field' },
      h('div', { class: 'filter-box' }, marks, input),
      list,
      fault,
    ),
    /** The page is left: answers that come later change nothing. */
    stop(): void {
      stopped = true;
      asked += 1;
      clearTimeout(timer);
    },
    /** The filter that applies. */
    value: (): string => applied,
    /** Shows another one, which has been set elsewhere. */
    set(text: string): void {
      if (text === applied && text === input.value.trim()) return;
      input.value = text;
      applied = text;
      void look(true);
    },
  };
}
