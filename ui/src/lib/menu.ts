import { h, setText } from './dom';
import { reasonOf } from './format';

export interface MenuItem {
  text: string;
  hint: string;
  /** What to say when it is done; null: nothing. */
  run(): Promise<string | null>;
}

/** Items under a heading. */
export interface MenuGroup {
  title: string;
  items: MenuItem[];
}

/** How long the answer of an item is shown. */
const SAID_MS = 2500;

/** A button that opens a menu. The items are asked for at each opening. */
export function menuButton(text: string, label: string, groups: () => MenuGroup[]): HTMLElement {
  const said = h('span', { class: 'menu-said', role: 'status' });
  const button = h(
    'button',
    { class: 'quiet menu-button', type: 'button', title: label, aria: { label } },
    text,
  );
  const menu = h('div', { class: 'menu', role: 'menu', tabindex: '-1', aria: { label } });
  menu.popover = 'auto';
  button.setAttribute('aria-haspopup', 'menu');
  button.setAttribute('aria-expanded', 'false');
  // Pressing the button closes the menu before the click arrives.
  let wasOpen = false;
  button.addEventListener('pointerdown', () => (wasOpen = menu.matches(':popover-open')));
  button.addEventListener('click', (event) => {
    if (event.detail > 0 && wasOpen) return menu.hidePopover();
    fill(menu, groups(), (item) => {
      menu.hidePopover();
      item.run().then(
        (answer) => answer !== null && say(said, answer),
        (error: unknown) => say(said, reasonOf(error)),
      );
    });
    menu.showPopover();
    place(menu, button.getBoundingClientRect());
    itemsOf(menu)[0]?.focus();
  });
  menu.addEventListener('toggle', (event) =>
    button.setAttribute('aria-expanded', String(event.newState === 'open')),
  );
  menu.addEventListener('keydown', (event) => move(menu, event));
  return h('span', { class: 'menu-box' }, said, button, menu);
}

function fill(menu: HTMLElement, groups: readonly MenuGroup[], run: (item: MenuItem) => void): void {
  const parts = groups
    .filter(({ items }) => items.length > 0)
    .map(({ title, items }) =>
      h(
        'div',
        { role: 'group', aria: { label: title } },
        h('p', { aria: { hidden: 'true' } }, title),
        ...items.map((item) =>
          h(
            'button',
            {
              type: 'button',
              role: 'menuitem',
              tabindex: '-1',
              title: item.hint,
              on: { click: () => run(item) },
            },
            item.text,
          ),
        ),
      ),
    );
  menu.replaceChildren(...parts);
}

/** Below the button and within the window. */
function place(menu: HTMLElement, at: DOMRect): void {
  const { offsetWidth, offsetHeight } = menu;
  const left = Math.min(at.right - offsetWidth, innerWidth - offsetWidth - 6);
  const below = at.bottom + 4 + offsetHeight <= innerHeight;
  menu.style.left = `${Math.max(6, left)}px`;
  menu.style.top = `${Math.max(6, below ? at.bottom + 4 : at.top - 4 - offsetHeight)}px`;
}

function itemsOf(menu: HTMLElement): HTMLElement[] {
  return [...menu.querySelectorAll<HTMLElement>('[role="menuitem"]')];
}

function move(menu: HTMLElement, event: KeyboardEvent): void {
  const items = itemsOf(menu);
  const at = items.findIndex((item) => item === document.activeElement);
  const last = items.length - 1;
  const to = { ArrowDown: at === last ? 0 : at + 1, ArrowUp: at <= 0 ? last : at - 1, Home: 0, End: last }[
    event.key
  ];
  if (event.key === 'Tab') menu.hidePopover();
  if (to === undefined) return;
  event.preventDefault();
  items[to]?.focus();
}

function say(said: HTMLElement, text: string): void {
  setText(said, text);
  setTimeout(() => {
    if (said.textContent === text) setText(said, '');
  }, SAID_MS);
}
