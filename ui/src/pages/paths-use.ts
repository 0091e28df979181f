import type { PathUses, PathsOfDirection, UsedPath } from '../api/types';
import { hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { clock, exact, pathText, percent, span } from '../lib/format';
import { names } from '../lib/names';
import { LiveTable } from '../lib/table';
import { symmetry } from '../model/paths';

/** How often each path was used, there and back; beside it another flow or time. */
export function usesPanel() {
  const there = direction('There');
  const back = direction('Back');
  const other = direction('Compared with');
  const verdict = h('p', { class: 'symmetry', role: 'status' });
  const element = panel(
    'How often each path was used',
    {
      class: 'wide',
      hands: hands({ title: 'How often each path was used', sheet: () => there.sheet() }),
    },
    verdict,
    h('div', { class: 'beside' }, there.element, other.element),
    back.element,
  );
  return {
    element,
    update(uses: PathUses | null, compared: PathUses | null, label: string): void {
      show(other.element, compared !== null);
      if (compared) other.update(compared.forward, label);
      if (!uses) return;
      const { text, state } = symmetry(uses.forward, uses.reverse);
      setText(verdict, text);
      verdict.dataset['state'] = state;
      there.update(uses.forward, 'There');
      show(back.element, uses.reverse !== null);
      if (uses.reverse) back.update(uses.reverse, 'Back');
    },
  };
}

function direction(title: string) {
  const heading = h('h3', {}, title);
  const note = h('p', { class: 'table-note' });
  const table = new LiveTable<UsedPath>({
    label: title,
    empty: '',
    columns: [
      {
        title: 'Path',
        cell: ({ path }) => ({ text: path.length === 0 ? 'not stored' : pathText(path) }),
      },
      {
        title: 'Share of the time',
        class: 'grow',
        numeric: true,
        cell: ({ share }) => ({ text: percent(share), bar: share }),
      },
      { title: 'Time', numeric: true, cell: ({ time }) => span(time / 1e9) },
      { title: 'Reports', numeric: true, cell: ({ reports }) => exact(reports) },
      { title: 'Flows', numeric: true, cell: ({ flows }) => exact(flows) },
      {
        title: 'From – until',
        cell: ({ first, last }) => `${clock(first).slice(0, 8)} – ${clock(last).slice(0, 8)}`,
      },
    ],
  });
  return {
    element: h('div', {}, heading, table.element, note),
    sheet: () => table.sheet(),
    update(of: PathsOfDirection, label: string): void {
      setText(heading, `${label}: ${subject(of)}`);
      table.setEmpty(of.unknown ?? 'No path is stored.');
      table.update(of.paths);
      setText(note, noteText(of));
    },
  };
}

function subject({ flow, src, dst }: PathsOfDirection): string {
  if (flow !== null) return flow;
  const host = (address: string | null): string => (address === null ? 'any host' : names.host(address));
  return `${host(src)} → ${host(dst)}`;
}

function noteText({ spread, truncated, paths }: PathsOfDirection): string {
  const parts: string[] = [];
  if (paths.length > 0 && spread > 60e9)
    parts.push(
      `Many flows: reports are counted by ${span(spread / 1e9)}, and divided among the paths of that time.`,
    );
  if (truncated) parts.push('Not all is here: there are more flows, paths or changes than are considered.');
  return parts.join(' ');
}
