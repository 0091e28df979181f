import { h, setText } from '../lib/dom';
import { exact, plural } from '../lib/format';
import { LiveTable } from '../lib/table';
import type { Ranked } from '../model/ranking';
import type { MapMetric } from '../model/topology';
import { metricText } from './topology-legend';
import type { Selection } from './topology-style';

const SHOWN = 100;

/** The map as a list, worst first: for the keyboard, for a screen reader, and to find what is wrong. */
export function rankingList(options: {
  choose(selected: Selection): void;
  selected(): Selection | null;
  metric(): MapMetric;
}) {
  const note = h('p', { class: 'muted', role: 'status' });
  const table = new LiveTable<Ranked>({
    label: 'Nodes and groups, worst first',
    empty: 'No matching nodes.',
    select: (row) => options.choose(selectionOf(row)),
    selected: (row) => JSON.stringify(selectionOf(row)) === JSON.stringify(options.selected()),
    columns: [
      {
        title: 'Node or group',
        class: 'grow',
        cell: (row) => ({ text: nameOf(row), title: row.group ? 'Opens the group' : '' }),
      },
      {
        title: 'Bad',
        hint: 'Nodes in the last fifth of the scale',
        numeric: true,
        cell: ({ group, bad }) => ({
          text: group ? `${exact(bad)} of ${exact(group.members.length)}` : bad > 0 ? 'bad' : '',
          class: bad > 0 ? 'bad' : 'zero',
        }),
      },
      {
        title: 'Worst',
        numeric: true,
        file: { value: ({ value }) => value },
        cell: ({ value }) => metricText(options.metric(), value),
      },
    ],
  });
  return {
    element: h('div', { class: 'ranking' }, table.element, note),
    sheet: () => table.sheet(note.textContent ?? ''),
    update(rows: readonly Ranked[]): void {
      table.update(rows.slice(0, SHOWN));
      setText(note, rows.length > SHOWN ? `the first ${SHOWN} of ${plural(rows.length, 'row')}` : '');
    },
  };
}

function nameOf({ node, name }: Ranked): string {
  return node === null || name === String(node) ? name : `${node} · ${name}`;
}

function selectionOf({ node, group }: Ranked): Selection {
  return group ? { group: group.id } : { node: node ?? 0 };
}
