// Alerts of the mock: one that fires, whose culprit is that of the burst, and one that is over.
import { CULPRIT, portOf } from './queues.mjs';

const SECOND = 1e9;
const FLOW = { src: '10.0.1.7', dst: '10.0.3.50', sport: 7001, dport: 9000, proto: 17 };

/** What is noted about alerts. */
export function alertNotes() {
  return { acknowledged: new Map(), silences: [], next: 1 };
}

/** The answer to a request about alerts; null: there is no such path. */
export function alerts(notes, method, path, query, body) {
  const now = Date.now() * 1e6;
  if (path === 'alerts') return list(notes, query, now);
  if (path === 'alerts/silences' && method === 'GET') return { silences: notes.silences };
  if (path === 'alerts/silences') {
    const { filter, seconds, comment = '' } = body;
    const until = now + seconds * SECOND;
    const silence = { id: notes.next++, filter, from: now, until, by: 'mock', comment, active: true };
    notes.silences.unshift(silence);
    return silence;
  }
  if (path.startsWith('alerts/silences/')) {
    const silence = notes.silences.find((one) => path.endsWith(`/${one.id}`));
    if (silence) silence.active = false;
    return silence ?? null;
  }
  if (path === 'alerts/acknowledge') {
    const note = { by: 'mock', at: now, comment: body.comment ?? '' };
    if (body.acknowledged === false) notes.acknowledged.delete(body.id);
    else notes.acknowledged.set(body.id, note);
    return note;
  }
  if (path === 'alerts/try') return attempt(body, now);
  if (path === 'alerts/rules') {
    const text = `[[rules]]\nname = ${JSON.stringify(body.name)}\nwhen = ${JSON.stringify(body.when)}\n`;
    return { enabled: false, reason: 'this process has no configuration file', text };
  }
  return null;
}

function list(notes, query, now) {
  const one = (id, rule, state, since, until) => ({
    id,
    rule,
    when: 'max(queue_occupancy) > 64k',
    flow: FLOW,
    text: CULPRIT,
    state,
    ended: state === 'firing' ? null : 'false',
    since,
    until,
    last_seen: null,
    count: 12,
    episodes: [{ since, until }],
    metric: 'queue_occupancy',
    value: 90_000,
    threshold: 64_000,
    node: 103,
    interface: portOf(103),
    queue: 0,
    recorded: { since: since - SECOND, until: since + SECOND },
    acknowledged: notes.acknowledged.get(id) ?? null,
    silence: notes.silences.find((silence) => silence.active && silence.filter.includes(rule))?.id ?? null,
  });
  const all = [
    one('00000000000000a1', 'deep queue', 'firing', now - 95 * SECOND, null),
    one('00000000000000a2', 'slow flow', 'resolved', now - 300 * SECOND, now - 290 * SECOND),
  ];
  const open = ({ state, acknowledged, silence }) =>
    state === 'firing' && acknowledged === null && silence === null;
  const state = query.get('state');
  const shown = all.filter((alert) => state === null || alert.state === state);
  return {
    from: Number(query.get('from') ?? now - 900 * SECOND),
    to: Number(query.get('to') ?? now),
    alerts: shown,
    total: shown.length,
    firing: 1,
    unacknowledged: all.filter(open).length,
    silent: 0,
    silent_after_s: 5,
    known_since: null,
    confirmed: true,
  };
}

function attempt({ when, from, to }, now) {
  const [begin, end] = [from ?? now - 900 * SECOND, to ?? now];
  const column = Math.ceil((end - begin) / 60);
  const nothing = {
    from: begin,
    to: end,
    times: 0,
    at_most: false,
    flows: 0,
    already: 0,
    column,
    counts: [],
    firings: [],
    events: 0,
    notes: [],
  };
  const wrong = when.indexOf('latencie');
  if (wrong >= 0)
    return { ...nothing, fault: { position: wrong, length: 8, message: 'there is no value latencie' } };
  const counts = Array.from({ length: 60 }, (_, i) => (i % 5 === 2 ? 1 : 0));
  const firings = counts.flatMap((count, i) =>
    count === 0
      ? []
      : [
          {
            ts: begin + i * column,
            until: begin + i * column + SECOND,
            flow: FLOW,
            text: CULPRIT,
            metric: 'queue_occupancy',
            value: 90_000,
            node: 103,
          },
        ],
  );
  return {
    ...nothing,
    fault: null,
    times: 12,
    flows: 1,
    counts,
    firings: firings.reverse(),
    events: 5000,
    notes: ['Judged by stored events.'],
  };
}
