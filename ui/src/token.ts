import { setToken, token } from './api/client';
import { h, setText } from './lib/dom';

export interface TokenDialog {
  element: HTMLElement;
  /** Opens it, unless it is open. */
  open(): void;
}

/** Asks for the API token, which is stored for this browser tab only. */
export function tokenDialog(given: () => void): TokenDialog {
  const input = h('input', { type: 'password', id: 'token', autocomplete: 'off', spellcheck: 'false' });
  const note = h('p', { class: 'muted' });
  const form = h(
    'form',
    {},
    h('h2', {}, 'This API needs a token'),
    h('p', {}, 'Enter [api] token of the hopwise configuration. It is stored for this browser tab only.'),
    h('label', { for: 'token' }, 'Token'),
    input,
    note,
    h('button', { class: 'primary', type: 'submit' }, 'Continue'),
  );
  const element = h('dialog', { class: 'token', aria: { label: 'API token' } }, form);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    element.close();
    given();
  });
  return {
    element,
    open() {
      if (element.open) return;
      setText(note, token() === '' ? '' : 'The previous token was not accepted.');
      input.value = '';
      element.showModal();
    },
  };
}
