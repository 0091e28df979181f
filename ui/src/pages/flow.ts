import { ApiError, get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { FlowDetail, FlowHistory } from '../api/types';
import { empty, h, panel } from '../lib/dom';
import { live } from '../live';
import { WINDOW_SECONDS } from '../model/rates';
import type { Page, Route } from '../router';
import { Settings } from '../settings';
import { flowView } from './flow-detail';
import { FLOW_LIST_DEFAULTS, flowList } from './flow-list';

/** One flow: its path hop by hop, and the latency of each hop. The address names the flow by its id or its text. */
export function flowPage(route: Route): Page {
  const detail = h('div', { class: 'flow-detail' });
  let name = route.argument;
  let shown: { stop(): void } | null = null;
  const settings = new Settings(route, FLOW_LIST_DEFAULTS);
  const list = flowList({
    settings,
    selected: () => name,
    select: (flow) => {
      settings.go(flow.id);
      show(flow.id);
    },
    arrived: (flows) => {
      // Without a selection, show the slowest flow.
      if (name === '' && flows[0]) show(flows[0].id);
    },
  });

  function show(next: string): void {
    shown?.stop();
    name = next;
    list.refresh();
    shown = name === '' ? null : follow(name, detail);
    if (name === '') detail.replaceChildren(noFlow());
  }

  show(name);
  return {
    element: h('div', { class: 'page flow' }, panel('Flows', { class: 'flow-side' }, list.element), detail),
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

/** Shows a flow in `box` and keeps it up to date. */
function follow(name: string, box: HTMLElement): { stop(): void } {
  const view = flowView();
  const path = `flows/${encodeURIComponent(name)}`;
  box.replaceChildren(view.element);
  const polls: Poll[] = [
    poll<FlowDetail>({
      intervalMs: 1000,
      request: (signal) => get(path, {}, signal),
      show(flow) {
        if (!view.element.isConnected) box.replaceChildren(view.element);
        view.update(flow);
      },
      failed(error) {
        if (error instanceof ApiError && error.status === 404) box.replaceChildren(gone(name));
      },
    }),
    poll<FlowHistory>({
      intervalMs: 3000,
      request: async (signal) =>
        live.hasStore()
          ? get(`${path}/history`, { from: since(), limit: 3000 }, signal)
          : { series: [], paths: [] },
      show: view.history,
    }),
  ];
  return {
    stop() {
      for (const one of polls) one.stop();
      view.destroy();
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

function gone(name: string): HTMLElement {
  const text = `${name} has expired or was never seen. Its stored events are still available under SQL.`;
  return panel('Flow', {}, empty('This flow is not known any more', text));
}
