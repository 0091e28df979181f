// `/api/v1/dta` with made-up data: a few stores that fill, a list that grows.
const NS = 1e9;
const HASH = 'v1';

export function dta(fabric, [, what, name, question], query) {
  const now = fabric.now ?? Math.floor(Date.now() / 1000);
  const ticks = Math.floor(Date.now() / 500) % 1e6;
  if (what === undefined) return memory(ticks);
  if (what === 'stores' && name === undefined) return { stores: stores(now, ticks) };
  if (what === 'stores' && question === 'get') return answer(name, query.get('key'));
  if (what === 'stores' && question === 'count')
    return {
      store: name,
      key: query.get('key'),
      estimate: 4242,
      copies: 2,
      total: 9e6,
      error: 23.7,
      confidence: 0.865,
    };
  if (what === 'stores' && question === 'sketch') return sketch(name);
  if (what === 'lists' && name === undefined) return { lists: lists(ticks) };
  if (what === 'lists') return tail(Number(name), ticks, query);
  if (what === 'snapshots')
    return { snapshots: [{ store: 'paths', ts: (now - 300) * NS, file: 'paths@1.region', bytes: 33558528 }] };
  return null;
}

function memory(ticks) {
  return {
    listen: '0.0.0.0:4791',
    exchange: '0.0.0.0:18515',
    directory: '/dev/shm/hopwise',
    policy: 'majority',
    bytes: 9e7,
    datagrams: ticks * 40,
    kernel_drops: 0,
    packets: ticks * 40,
    executed: ticks * 40 - 3,
    duplicates: 0,
    refused: { bad_icrc: 2 },
    dropped: { bad_rkey: 1 },
    balanced: true,
    messages: ticks * 40 - 3,
    written_bytes: ticks * 960,
    fetch_adds: ticks,
    missing: 0,
    acks: ticks,
    naks: {},
    links: [
      {
        instance: 'b2c4',
        link: 0,
        from: '10.0.0.7:40112',
        up: true,
        since_s: 812.5,
        connections: 1,
        unreliable: 'ready',
        reliable: 'ready',
      },
    ],
    events: { entries: ticks * 2, overwritten: 0, missing: 0, immediates: 3, immediates_dropped: 0 },
    snapshots: { taken: 1, failed: 0, message: null, directory: '/dev/shm/hopwise/snapshots' },
  };
}

function stores(now, ticks) {
  const occupied = Math.min(0.5, ticks / 2e6 + 0.2);
  const common = {
    fields: null,
    pages: 'transparent',
    created: (now - 3600) * NS,
    expected: [],
    occupied: null,
  };
  const expected = [1, 2, 4].map((copies) => ({
    copies,
    load: occupied / copies,
    answered: 1 - 0.2 / copies,
  }));
  return [
    {
      ...common,
      name: 'paths',
      id: 1,
      kind: 'key-write',
      slots: 1048576,
      data: 20,
      hash: HASH,
      fields: 'path:u32[5]',
      bytes: 33554432,
      occupied,
      expected,
    },
    {
      ...common,
      name: 'losses',
      id: 0,
      kind: 'append',
      lists: 4,
      entry: 18,
      entries: 65536,
      batch: 16,
      tagged: true,
      bytes: 5e6,
    },
    {
      ...common,
      name: 'bytes',
      id: 2,
      kind: 'key-increment',
      slots: 262144,
      hash: HASH,
      bytes: 2097152,
      occupied: 0.1,
    },
    {
      ...common,
      name: 'flows',
      id: 4,
      kind: 'sketch',
      sketch: 'count-min',
      merge: 'sum',
      depth: 4,
      columns: 4096,
      width: 4,
      bytes: 131104,
    },
    {
      ...common,
      name: 'hops',
      id: 3,
      kind: 'postcarding',
      slots: 262144,
      hops: 5,
      hash: HASH,
      bytes: 8388608,
      occupied: 0.02,
    },
  ];
}

function answer(store, key) {
  const found = { store, key, answer: 'found', copies: 2, agreeing: 2, data: '0000000b', missing: null };
  return { ...found, fields: { path: [11, 12, 13] }, path: store === 'hops' ? [11, null, 13] : null };
}

function sketch(store) {
  const epoch = { epoch: 17, columns: 4096, reporters: 6 };
  return {
    store,
    sketch: 'count-min',
    epoch,
    epochs: [epoch],
    certain: true,
    key: null,
    question: 'count',
    estimate: 812,
    error: 12.3,
    confidence: 0.98,
    samples: [],
  };
}

function lists(ticks) {
  return [0, 1, 2, 3].map((list) => ({
    list,
    store: 'losses',
    newest: list === 3 ? null : Math.floor(ticks / (list + 1)),
    tagged: true,
    events: list === 0,
  }));
}

function tail(list, ticks, query) {
  const newest = Math.floor(ticks / (list + 1));
  const from = Number(query.get('from') ?? newest - 20);
  const entries = [];
  for (let sequence = from; sequence <= newest && entries.length < 200; sequence += 1) {
    const fields = { flow: '10.0.0.1:1234 > 10.0.0.2:80 tcp', node: sequence % 7, reason: 71 };
    entries.push({ sequence, index: 0, data: '0a0000010a00000204d2005006', fields });
  }
  return { list, store: 'losses', entries, next: newest + 1, overwritten: 0, missing: 0 };
}
