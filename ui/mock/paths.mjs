// Paths and losses as the API answers: two flows that move to the other spine and back, a link that loses packets.
const UPPER = [101, 201, 103];
const LOWER = [101, 202, 103];

/** The parameters `from` and `to`, ns; by default the last 15 minutes. */
function limits(query) {
  const to = Number(query.get('to') ?? Date.now() * 1e6);
  return { from: Number(query.get('from') ?? to - 900e9), to };
}

const FLOWS = [1, 2].map((n) => {
  const flow = { src: `10.0.1.${n}`, dst: '10.0.3.1', sport: 41000 + n, dport: 443, proto: 6 };
  return { id: `000000000000000${n}`, flow, text: `${flow.src}:${flow.sport}>${flow.dst}:443/6` };
});

export function changes(query) {
  const { from, to } = limits(query);
  const at = (part) => Math.round(from + (to - from) * part);
  const wanted = FLOWS.filter(({ text }) => [null, '', text].includes(query.get('flow')));
  const moved = wanted.flatMap((flow, i) => [
    { ...flow, ts: at(0.7) + i * 1e6, before: LOWER, after: UPPER },
    { ...flow, ts: at(0.4) + i * 1e6, before: UPPER, after: LOWER },
  ]);
  const newest = moved.sort((a, b) => b.ts - a.ts);
  return {
    changes: newest,
    groups: [],
    group_total: 0,
    total: newest.length,
    range: { from, to, truncated: false },
  };
}

export function uses(query) {
  const { from, to } = limits(query);
  const time = to - from;
  const used = (path, share) => ({
    path,
    flows: 1,
    reports: Math.round(9000 * share),
    time: time * share,
    share,
    first: from,
    last: to,
  });
  const flow = query.get('flow');
  const common = { src: query.get('src'), dst: query.get('dst'), spread: 60e9, truncated: false };
  const forward = { ...common, flow, paths: [used(UPPER, 0.7), used(LOWER, 0.3)], flows: 1, unknown: null };
  const unknown =
    'the opposite direction is not measured: there were no reports of it with a latency in this time';
  return {
    forward,
    reverse: { ...common, flow, paths: [], flows: 0, unknown },
    range: { from, to, truncated: false },
  };
}

export function latencies(query) {
  const { from, to } = limits(query);
  const columns = Number(query.get('columns') ?? 60);
  const bounds = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];
  const spread = (node, base) => {
    const medians = Array.from({ length: columns }, (_, i) =>
      i === 3 ? null : Math.round(base * (1 + 0.3 * Math.sin(i / 5))),
    );
    const times = (factor) => medians.map((value) => value && Math.round(value * factor));
    const classes = medians.map((value) => {
      const at = bounds.findIndex((bound) => value <= bound);
      return value ? bounds.map((_, i) => (i === at ? 800 : i === at + 1 ? 200 : 0)) : [];
    });
    const quantiles = { p50: base, p90: base * 2, p99: base * 4, max: base * 5, mean: base };
    return {
      node,
      values: 500,
      time: to - from,
      ...quantiles,
      means: medians,
      medians,
      p90s: times(2),
      p99s: times(4),
      classes,
    };
  };
  const hops = UPPER.map((node, i) => spread(node, 2000 * (i + 1)));
  const column = Math.round((to - from) / columns);
  return { from, to, column, bounds, hops, flow: spread(null, 12_000), left_out: 0, truncated: false };
}

export function losses(query) {
  const { from, to } = limits(query);
  const unknown = 'needs reports of both ends: one of them did not report this traffic itself';
  const never =
    'no report showed a node behind this interface by then: a host is there, or no packet had passed it';
  const link = (a, b, rest) => ({
    from: a,
    to: b,
    dropped: 0,
    sent: null,
    lost: null,
    lost_most: null,
    unknown: null,
    ...rest,
  });
  const links = [
    link(101, 201, { sent: 40_000, lost: 812, lost_most: 812 }),
    link(101, 202, { dropped: 96, unknown }),
    link(201, 103, { sent: 39_188, lost: 0, lost_most: 0 }),
  ];
  const drop = { node: 101, egress_if: 2, to: 202, queue: 2, reason: 71, reason_name: 'queue_full' };
  return {
    links,
    drops: [
      { ...drop, to_unknown: null, packets: 96, flows: 4, first: from, last: to },
      { ...drop, egress_if: 7, to: null, to_unknown: never, packets: 31, flows: 2, first: from, last: to },
    ],
    unplaced: 31,
    reporters: [{ node: 103, lost: 5, duplicated: 1 }],
    counted: true,
    uncounted: null,
    left_out: 0,
    counted_until: null,
    more: 0,
    range: { from, to, truncated: false },
  };
}
