import { ApiError, get } from '../api/client';
import { poll } from '../api/poll';
import type { FlowDetail, FlowHistory } from '../api/types';
import { empty, h, panel } from '../lib/dom';
import { reasonOf } from '../lib/format';
import { live } from '../live';
import { WINDOW_SECONDS } from '../model/rates';
import { link, type Page, type Route } from '../router';
import { session } from '../session';
import { Settings } from '../settings';
import { times } from '../times';
import { flowView } from './flow-detail';
import { FLOW_LIST_DEFAULTS, flowList } from './flow-list';

/** One flow: its path hop by hop, and the latency of each hop. The address names the flow by its id or its text. */
export function flowPage(route: Route): Page {
  const detail = h('div', { class: 'flow-detail' });
  let name = route.argument;
  let shown: Followed | null = null;
  /** Nobody chose it. */
  let isOurs = false;
  const settings = new Settings(route, FLOW_LIST_DEFAULTS);
  const list = flowList({
    settings,
    selected: () => name,
    select: (flow) => {
      settings.go(nameOf(flow));
      show(nameOf(flow));
    },
    arrived: (flows) => {
      if (flows.some(({ id, text }) => name === id || name === text)) shown?.isListed();
      // Without a selection, show the slowest flow; the next one if it expires.
      if (name !== '' || !flows[0]) return;
      show(nameOf(flows[0]));
      isOurs = true;
    },
  });

  function show(next: string): void {
    shown?.stop();
    [name, isOurs] = [next, false];
    list.refresh();
    const expired = (): boolean => {
      if (isOurs) show('');
      return name === '';
    };
    shown = name === '' ? null : follow(name, detail, expired);
    if (name === '') detail.replaceChildren(noFlow());
  }

  show(name);
  return {
    element: h(
      'div',
      { class: 'page flow' },
      panel('Flows', { class: 'flow-side', hands: list.hands }, list.element),
      detail,
    ),
    route(next) {
      if (settings.adopt(next)) list.adopt();
      if (next.argument !== name) show(next.argument);
    },
    stop() {
      settings.stop();
      shown?.stop();
      list.stop();
    },
  };
}

/** Of one that may have expired, the store knows the text. */
function nameOf(flow: { id: string; text: string }): string {
  return times.isLive() ? flow.id : flow.text;
}

interface Followed {
  stop(): void;
  /** The list has the flow: one that was not there is asked for again, without a wait. */
  isListed(): void;
}

/** Shows a flow in `box` and keeps it up to date. `expired` says whether another one is shown when it is not there. */
function follow(name: string, box: HTMLElement, expired: () => boolean): Followed {
  const view = flowView(name);
  const path = `flows/${encodeURIComponent(name)}`;
  box.replaceChildren(view.element);
  const flow = poll<FlowDetail>({
    intervalMs: () => times.intervalMs(1000),
    request: (signal) => get(path, times.query(), signal),
    show(flow) {
      if (!view.element.isConnected) box.replaceChildren(view.element);
      view.update(flow);
    },
    failed(error) {
      if (error instanceof ApiError && error.status === 400)
        box.replaceChildren(unknown(name, error.message));
      else if (error instanceof ApiError && error.status === 404 && !expired())
        box.replaceChildren(times.isLive() ? gone(name) : absent(name));
      else if (session.console) box.replaceChildren(empty('No answer', reasonOf(error)));
    },
  });
  const history = poll<FlowHistory>({
    intervalMs: () => times.intervalMs(3000),
    request: async (signal) =>
      live.hasStore()
        ? get(`${path}/history`, { from: since(), ...times.query(), limit: 3000 }, signal)
        : { series: [], paths: [] },
    show: view.history,
  });
  return {
    stop() {
      flow.stop();
      history.stop();
      view.destroy();
    },
    isListed() {
      if (!view.element.isConnected) flow.now();
    },
  };
}

function since(): string {
  return BigInt(Math.round(live.now() - WINDOW_SECONDS * 1e9)).toString();
}

function noFlow(): HTMLElement {
  return panel(
    'Flow',
    {},
    empty(
      'Nothing selected',
      'Select a flow from the list to see its path, its hops and the latency of each.',
    ),
  );
}

/** The address is neither an id nor the text of a flow. */
function unknown(name: string, message: string): HTMLElement {
  return panel('Flow', {}, empty(`There is no flow “${name}”`, `${message}. Select a flow from the list.`));
}

function gone(name: string): HTMLElement {
  const hour = h('a', { href: link('flow', name, { last: '1h' }) }, 'the last hour');
  const day = h('a', { href: link('flow', name, { last: '24h' }) }, 'the last day');
  const text = `${name} has expired or was never seen. Look for it in `;
  return panel('Flow', {}, empty('Flow no longer known', text, hour, ' or ', day, '.'));
}

function absent(name: string): HTMLElement {
  const text = `No reports of ${name} with a latency in this time. Choose another time, or a flow from the list.`;
  return panel('Flow', {}, empty('No reports of this flow', text));
}
