// Traffic over time: four hosts whose reports are known, and others.
const MINUTE = 60e9;

export const HOSTS = ['10.0.1.7', '10.0.2.9', '10.0.3.50', '10.0.1.8'];
const PORTS = ['443', '9000'];

/** How many reports a host sends in a minute, by arithmetic alone. */
const reports = (host, minute) => (host === 0 ? 6000 : 600 * (4 - host)) + 60 * ((minute + host) % 5);

function part(dimension, host) {
  if (dimension === 'src') return [HOSTS[host], `src == ${HOSTS[host]}`];
  if (dimension === 'dport') return [PORTS[host % 2], `dport == ${PORTS[host % 2]}`];
  return [null, null];
}

export function traffic(query, empty) {
  const to = Number(query.get('to') ?? Date.now() * 1e6);
  const from = Number(query.get('from') ?? to - 15 * MINUTE);
  const by = (query.get('by') ?? 'node').split(',');
  const measure = query.get('measure') ?? 'reports';
  const counts = measure === 'reports' || measure === 'events';
  const columns = Number(query.get('columns') ?? 180);
  const column = Math.max(1, Math.ceil((to - from) / columns / MINUTE)) * MINUTE;
  const first = Math.floor(from / column) * column;
  const end = Math.ceil(to / column) * column;
  const only = /src == ([\d.]+)/.exec(query.get('filter') ?? '')?.[1];
  const times = Array.from({ length: (end - first) / column }, (_, i) => (first + i * column) / MINUTE);
  const knownTo = Math.min(end, Math.floor((Date.now() * 1e6 - 35e9) / MINUTE) * MINUTE);
  const shown = (values) => values.map((value, i) => (first + i * column < knownTo ? value : null));
  const row = (key, filters, values) => ({
    key,
    filters,
    count: values.reduce((sum, value) => sum + (value ?? 0), 0),
    mean: counts ? null : 1500,
    max: counts ? null : 4000,
    values,
  });
  const groups = new Map();
  HOSTS.forEach((host, i) => {
    if (empty || (only && only !== host)) return;
    const parts = by.map((dimension) => part(dimension, i));
    const key = JSON.stringify(parts);
    const values = times.map((minute) => reports(i, minute));
    const known = groups.get(key);
    groups.set(key, { parts, values: known ? known.values.map((value, at) => value + values[at]) : values });
  });
  const rows = [...groups.values()]
    .map(({ parts, values }) =>
      row(
        parts.map(([key]) => key),
        parts.map(([, filter]) => filter),
        shown(values),
      ),
    )
    .sort((one, other) => other.count - one.count);
  const top = Number(query.get('top') ?? 8);
  const sum = (list) =>
    times.map((_, i) =>
      list.reduce((all, { values }) => (values[i] === null ? all : (all ?? 0) + values[i]), null),
    );
  const [listed, rest] = [rows.slice(0, top), rows.slice(top)];
  return {
    by,
    measure,
    unit: counts ? measure : 'ns',
    counts,
    from: first,
    to: end,
    column,
    known_to: knownTo,
    groups: listed,
    others: row([], [], sum(rest)),
    other_groups: rest.length,
    total: row([], [], sum(rows)),
    overlapping: false,
    counted_from: null,
    truncated: false,
    lacks: [],
  };
}
