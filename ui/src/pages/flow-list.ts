import { ApiError, get } from '../api/client';
import { poll } from '../api/poll';
import type { Flow, Range } from '../api/types';
import { apiOption, hands, sqlSpan } from '../hands';
import { h, setText } from '../lib/dom';
import { filterField } from '../lib/filter-field';
import { count, duration, exact, flowName, pathText, reasonOf } from '../lib/format';
import { LiveTable } from '../lib/table';
import { hopwise, queryCommand, slowestFlowsSql } from '../model/copies';
import { inOrder } from '../model/flows';
import { partText } from '../model/range';
import { session } from '../session';
import type { Settings } from '../settings';
import { times } from '../times';

const SHOWN = 100;

/** What a person sets in the list, by the names in the address. */
export const FLOW_LIST_DEFAULTS = { sort: 'latency', filter: '' };

export interface FlowListOptions {
  settings: Settings<typeof FLOW_LIST_DEFAULTS>;
  selected(): string;
  select(flow: Flow): void;
  arrived?(flows: readonly Flow[]): void;
}

interface Answer {
  flows: Flow[];
  total: number;
  at_least?: boolean;
  range?: Range | null;
}

/** The list of flows, with search and order. */
export function flowList(options: FlowListOptions) {
  const { settings } = options;
  const search = filterField({
    view: 'flows',
    label: 'Search flows',
    value: settings.get('filter'),
    changed(text) {
      settings.type({ filter: text });
      answers.now();
    },
  });
  const sort = h(
    'select',
    { aria: { label: 'Order' } },
    h('option', { value: 'latency' }, 'slowest'),
    h('option', { value: 'last_seen' }, 'latest'),
    h('option', { value: 'reports' }, 'busiest'),
  );
  const total = h('span', { class: 'muted', role: 'status' });
  const table = new LiveTable<Flow>({
    label: 'Flows',
    empty: 'No matching flows.',
    select: options.select,
    selected: (flow) => [flow.id, flow.text].includes(options.selected()),
    columns: [
      {
        title: 'Flow',
        class: 'grow two-lines',
        file: { value: (flow) => flow.text },
        cell: (flow) => ({ text: `${flowName(flow.flow)}\n${pathText(flow.path)}`, title: flow.text }),
      },
      {
        title: 'Latency',
        numeric: true,
        file: { value: (flow) => flow.flow_latency, unit: 'ns' },
        cell: (flow) => duration(flow.flow_latency),
      },
    ],
    also: [
      { name: 'Path', value: (flow) => pathText(flow.path) },
      { name: 'Basis', value: (flow) => flow.basis },
      { name: 'Reports', value: (flow) => flow.reports },
      { name: 'First seen', time: true, value: (flow) => flow.first_seen },
      { name: 'Last seen', time: true, value: (flow) => flow.last_seen },
    ],
  });
  let rows: Flow[] = [];
  let last: Answer | null = null;
  const params = () => ({ limit: SHOWN, sort: sort.value, filter: search.value() });
  const fill = (): void => {
    search.set(settings.get('filter'));
    sort.value = settings.get('sort');
    // An order that there is not.
    if (sort.value === '') sort.value = FLOW_LIST_DEFAULTS.sort;
  };
  fill();
  const answers = poll<Answer>({
    intervalMs: () => times.intervalMs(2000),
    request: (signal) => get('flows', { ...times.query(), ...params() }, signal),
    show(answer) {
      last = answer;
      rows = inOrder(answer.flows, sort.value);
      table.update(rows);
      const text = totalText(rows.length, answer.total, answer.at_least === true);
      setText(total, [text, partText(answer)].filter((part) => part !== '').join('. '));
      options.arrived?.(rows);
    },
    failed(error) {
      if (error instanceof ApiError || session.console) setText(total, reasonOf(error));
    },
  });
  sort.addEventListener('change', () => {
    settings.set({ sort: sort.value });
    answers.now();
  });
  const sql = (): string | null => {
    const range = times.isLive() ? null : last?.range;
    if (!range || sort.value !== 'latency' || search.value() !== '') return null;
    return slowestFlowsSql(sqlSpan(range), SHOWN);
  };
  const menu = hands({
    title: 'Flows',
    now: () => times.isLive(),
    asked: () => [{ path: 'flows', params: { ...times.query(), ...params() } }],
    sql,
    command(): string[] | null {
      const text = sql();
      if (text !== null) return queryCommand(text);
      const order = { latency: 'latency', reports: 'rate' }[sort.value];
      if (!times.isLive() || order === undefined) return null;
      return hopwise('top', { view: 'flows', sort: order, filter: search.value(), api: apiOption() });
    },
    sheet: () => table.sheet(last ? cutText(rows.length, last) : ''),
  });
  return {
    hands: menu,
    element: h(
      'div',
      { class: 'flow-list' },
      h('div', { class: 'bar' }, search.element, sort),
      table.element,
      total,
    ),
    refresh: () => table.update(rows),
    /** Shows what is set now, after another address was opened. */
    adopt(): void {
      fill();
      answers.now();
    },
    stop(): void {
      search.stop();
      answers.stop();
    },
  };
}

function cutText(shown: number, answer: Answer): string {
  const text = totalText(shown, answer.total, answer.at_least === true);
  return shown < answer.total || answer.at_least ? [text, partText(answer)].join('. ') : partText(answer);
}

function totalText(shown: number, total: number, atLeast: boolean): string {
  if (atLeast) return `${exact(shown)} found, in a part of all flows`;
  if (total === 0) return '';
  return shown < total
    ? `the first ${exact(shown)} of ${count(total)}: search to find others`
    : `${exact(total)} in all`;
}
