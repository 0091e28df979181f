import type { PathUses, PathsOfDirection, UsedPath } from '../api/types';
import { hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { exact, pathText, percent, span, timeWithin } from '../lib/format';
import { names } from '../lib/names';
import type { Sheet } from '../lib/sheet';
import { LiveTable } from '../lib/table';
import { NOT_ANSWERED, symmetry } from '../model/paths';
import { times } from '../times';

const TRUNCATED = 'Incomplete: there are more flows, paths or changes than are considered.';

/** Use of each path, there and back; beside it another flow or time. */
export function usesPanel() {
  const there = direction('There');
  const back = direction('Back');
  const other = direction('Compared with');
  const verdict = h('p', { class: 'symmetry', role: 'status' });
  const element = panel(
    'Use of each path',
    {
      class: 'wide',
      hands: hands({ title: 'Use of each path', sheet: () => beside([there, back, other]) }),
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
      else other.clear();
      if (!uses) {
        setText(verdict, '');
        delete verdict.dataset['state'];
        show(back.element, false);
        there.clear();
        return back.clear();
      }
      const { text, state } = symmetry(uses.forward, uses.reverse);
      setText(verdict, text);
      verdict.dataset['state'] = state;
      there.update(uses.forward, 'There');
      show(back.element, uses.reverse !== null);
      if (uses.reverse) back.update(uses.reverse, 'Back');
      else back.clear();
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
        file: { value: ({ share }) => share, unit: 'fraction' },
      },
      {
        title: 'Time',
        numeric: true,
        cell: ({ time }) => span(time / 1e9),
        file: { value: ({ time }) => time / 1e9, unit: 's' },
      },
      {
        title: 'Reports',
        numeric: true,
        cell: ({ reports }) => exact(reports),
        file: { value: ({ reports }) => reports },
      },
      {
        title: 'Flows',
        numeric: true,
        cell: ({ flows }) => exact(flows),
        file: { value: ({ flows }) => flows },
      },
      {
        title: 'From – until',
        cell: ({ first, last }) => [first, last].map((ts) => timeWithin(ts, times.length())).join(' – '),
        file: { name: 'From', value: ({ first }) => first, time: true },
      },
    ],
    also: [{ name: 'Until', value: ({ last }) => last, time: true }],
  });
  let cut = '';
  return {
    element: h('div', {}, heading, table.element, note),
    heading: () => heading.textContent ?? title,
    sheet: () => table.sheet(cut),
    clear(): void {
      cut = '';
      setText(heading, title);
      setText(note, '');
      table.setEmpty(NOT_ANSWERED);
      table.update([]);
    },
    update(of: PathsOfDirection, label: string): void {
      setText(heading, `${label}: ${subject(of)}`);
      table.setEmpty(of.unknown ?? 'No stored path.');
      table.update(of.paths);
      setText(note, noteText(of));
      cut = of.truncated ? TRUNCATED : '';
    },
  };
}

/** All directions in one file: the first column says which one. */
function beside(all: readonly ReturnType<typeof direction>[]): Sheet | null {
  const sheets = all.flatMap((one) => {
    const sheet = one.sheet();
    return sheet ? [{ name: one.heading(), sheet }] : [];
  });
  const [first] = sheets;
  if (!first) return null;
  return {
    columns: [{ name: 'Direction' }, ...first.sheet.columns],
    rows: sheets.flatMap(({ name, sheet }) => sheet.rows.map((row) => [name, ...row])),
    texts: sheets.flatMap(({ name, sheet }) => (sheet.texts ?? []).map((row) => [name, ...row])),
    cut: sheets.find(({ sheet }) => sheet.cut !== '')?.sheet.cut ?? '',
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
  if (truncated) parts.push(TRUNCATED);
  return parts.join(' ');
}
