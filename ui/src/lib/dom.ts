/** A thin layer over the DOM; there is no framework here. */

export type Child = Node | string | null | undefined | false;

type Handler<E extends globalThis.Event> = (event: E) => void;

export interface Props {
  class?: string;
  title?: string;
  id?: string;
  role?: string;
  href?: string;
  type?: string;
  value?: string;
  placeholder?: string;
  for?: string;
  tabindex?: string;
  style?: string;
  scope?: string;
  rows?: string;
  spellcheck?: string;
  autocomplete?: string;
  selected?: boolean;
  disabled?: boolean;
  data?: Record<string, string>;
  aria?: Record<string, string>;
  on?: { [K in keyof HTMLElementEventMap]?: Handler<HTMLElementEventMap[K]> };
}

/** An element with properties and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  const { data, aria, on, ...plain } = props;
  for (const [name, value] of Object.entries(plain)) setAttribute(element, name, value);
  for (const [name, value] of Object.entries(data ?? {})) element.dataset[name] = value;
  for (const [name, value] of Object.entries(aria ?? {})) element.setAttribute(`aria-${name}`, value);
  for (const [name, handler] of Object.entries(on ?? {})) {
    element.addEventListener(name, handler as EventListener);
  }
  append(element, children);
  return element;
}

function setAttribute(element: Element, name: string, value: string | boolean): void {
  if (value === false) return;
  if (name === 'style' && element instanceof HTMLElement) {
    // The attribute would be an inline style, which the content policy forbids; the property is not.
    element.style.cssText = String(value);
    return;
  }
  element.setAttribute(name, value === true ? '' : value);
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

const SVG = 'http://www.w3.org/2000/svg';

/** An SVG element. */
export function s(
  tag: string,
  attributes: Record<string, string | number>,
  ...children: Child[]
): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

/** Sets the text only when it differs, so that selection and hover survive a refresh. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Replaces the children only if what they show differs. */
export function replace<T>(list: HTMLElement, rows: readonly T[], make: (row: T) => Node | Node[]): void {
  const key = JSON.stringify(rows);
  if (list.dataset['shown'] === key) return;
  list.dataset['shown'] = key;
  list.replaceChildren(...rows.flatMap(make));
}

export function show(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) element.hidden = !visible;
}

/** A titled box. `hands`: a menu that copies or saves what it shows. */
export function panel(
  title: string,
  options: { class?: string; aside?: Child; hands?: Child },
  ...body: Child[]
): HTMLElement {
  const heading = h('h2', {}, title);
  const head = h('header', { class: 'panel-head' }, heading, options.aside ?? null, options.hands ?? null);
  return h('section', { class: `panel ${options.class ?? ''}`, aria: { label: title } }, head, ...body);
}

export function empty(title: string, ...explanation: Child[]): HTMLElement {
  return h('div', { class: 'empty' }, h('strong', {}, title), h('p', {}, ...explanation));
}

export function code(text: string): HTMLElement {
  return h('code', {}, text);
}
