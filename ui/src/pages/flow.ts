import { ApiError, get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { FlowDetail, FlowHistory } from '../api/types';
import { empty, h, panel } from '../lib/dom';
import { live } from '../live';
import { WINDOW_SECONDS } from '../model/rates';
import { link, type Page, type Route } from '../router';
import { flowView } from './flow-detail';
import { flowList } from './flow-list';

/** One flow: its path hop by hop, and where its time goes. */
export function flowPage(route: Route): Page {
  let id = route.argument;
  const detail = h('div', { class: 'flow-detail' });
  const list = flowList({
    find: route.query.get('find') ?? '',
    picked: () => id,
    pick: (flow) => (location.hash = link('flow', flow.id)),
    arrived(flows, find) {
      const [first] = flows;
      // Who came with a flow's text, or with nothing, wants to see one.
      if (id === '' && first && (find === '' || flows.length === 1)) show(first.id);
    },
  });
  let polls: Poll[] = [];
  let view: ReturnType<typeof flowView> | null = null;

  function close(): void {
    for (const one of polls) one.stop();
    polls = [];
    view?.destroy();
    view = null;
  }

  function show(next: string): void {
    close();
    id = next;
    list.refresh();
    if (id === '') {
      detail.replaceChildren(noFlow());
      return;
    }
    const made = (view = flowView());
    detail.replaceChildren(made.element);
    polls = [
      poll<FlowDetail>({
        intervalMs: 1000,
        ask: (signal) => get(`flows/${encodeURIComponent(id)}`, {}, signal),
        show: made.update,
        failed: (error) => {
          if (error instanceof ApiError && error.status === 404) detail.replaceChildren(gone(id));
        },
      }),
      poll<FlowHistory>({
        intervalMs: 2000,
        ask: (signal) => get(`flows/${encodeURIComponent(id)}/history`, { from: since() }, signal),
        show: made.history,
      }),
    ];
  }

  show(id);
  const element = h(
    'div',
    { class: 'page flow' },
    panel('Flows', { class: 'flow-side' }, list.element),
    detail,
  );
  return {
    element,
    route(next) {
      const find = next.query.get('find');
      if (find !== null) list.find(find);
      if (next.argument !== id) show(next.argument);
    },
    stop() {
      close();
      list.stop();
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
    empty('No flow picked', 'Pick one from the list: its path, its hops and where its time goes.'),
  );
}

function gone(id: string): HTMLElement {
  return panel(
    'Flow',
    {},
    empty(
      'This flow is not known any more',
      `Flow ${id} was not seen for its timeout. Its events are still under SQL.`,
    ),
  );
}
