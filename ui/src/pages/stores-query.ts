import { get } from '../api/client';
import type { Answer, CountAnswer, SketchAnswer, Store } from '../api/dta';
import { h, panel, setText, show } from '../lib/dom';
import { reasonOf } from '../lib/format';
import { answerText, countText, queryOf, sketchText } from '../model/stores';
import { link } from '../router';

const WORDS = {
  get: 'Get',
  count: 'Count of',
  sketch: 'Estimate for',
};

/** A form that queries a store for a key. */
export function queryPanel() {
  const key = h('input', {
    type: 'text',
    id: 'key',
    data: { search: '' },
    spellcheck: 'false',
    autocomplete: 'off',
    placeholder: '10.0.0.1:1234 > 10.0.0.2:80 tcp, an address, a number, or 0x…',
    aria: { label: 'Key' },
  });
  const label = h('label', { for: 'key' });
  const button = h('button', { class: 'primary', type: 'submit' }, 'Query');
  const form = h('form', { class: 'bar key-query' }, label, key, button);
  const result = h('p', { class: 'answer', role: 'status' });
  const lists = h(
    'p',
    {},
    'Lists have no keys: ',
    h('a', { href: link('lists') }, 'their entries'),
    ' are read in order.',
  );
  const element = panel('Query', { class: 'query-panel' }, form, lists, result);
  let store: Store | null = null;
  let running: AbortController | null = null;

  async function query(): Promise<void> {
    const kind = store ? queryOf(store.kind) : null;
    if (!store || !kind) return;
    running?.abort();
    const mine = (running = new AbortController());
    setText(result, 'querying …');
    try {
      const path = `dta/stores/${encodeURIComponent(store.name)}/${kind}`;
      const answer = await get<unknown>(path, { key: key.value.trim() }, mine.signal);
      const { good, text } = sentence(kind, answer);
      result.className = `answer ${good ? 'good' : 'bad'}`;
      setText(result, text);
    } catch (error) {
      if (mine.signal.aborted) return;
      result.className = 'answer bad';
      setText(result, reasonOf(error));
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void query();
  });
  return {
    element,
    stop: () => running?.abort(),
    about(next: Store | null): void {
      const kind = next ? queryOf(next.kind) : null;
      show(form, kind !== null);
      show(lists, next !== null && kind === null);
      if (next?.name !== store?.name) setText(result, '');
      store = next;
      if (next && kind) setText(label, `${WORDS[kind]} (${next.name})`);
    },
  };
}

function sentence(kind: 'get' | 'count' | 'sketch', answer: unknown): { good: boolean; text: string } {
  if (kind === 'get') return answerText(answer as Answer);
  if (kind === 'count') return { good: true, text: countText(answer as CountAnswer) };
  return { good: true, text: sketchText(answer as SketchAnswer) };
}
