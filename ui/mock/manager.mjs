// A manager of two devices with `apply = "manual"`: one plan waits, and one intent for it. Enough for the page Intents.

const PLAN = {
  text: '1 watchlist entry added on 1 device',
  devices: [{ node: 101, name: 'leaf1', added: 1, removed: 0, changes: ['add: watch port 443, mode md'] }],
  cost: null,
  notes: [],
};
const EMPTY_PLAN = { text: 'nothing changes', devices: [], cost: null, notes: [] };

function device(node, name) {
  const state = {
    state: 'in_sync',
    text: 'in_sync',
    missing: 0,
    extra: 0,
    ports: [],
    rules: [],
    foreign: [],
  };
  return { node, name, ...state };
}

export class Manager {
  constructor() {
    this.waits = true;
    this.versions = 0;
    this.intents = new Map();
    this.put({ name: 'web', match: { dport: ['443'] }, watch: ['hop_latency'] }, 'ana');
  }

  /** Adds or replaces an intent. */
  put(intent, by) {
    this.versions += 1;
    this.intents.set(intent.name, { intent, by, etag: String(this.versions) });
    return this.view(intent.name);
  }

  view(name) {
    const { intent, by, etag } = this.intents.get(name);
    const state = this.waits
      ? { state: 'pending', text: 'waits for approval' }
      : { state: 'installed', text: 'on 1 device; no report of its flows has arrived yet' };
    const facts = {
      mode: 'md',
      instructions: 'node_id, hop_latency',
      devices: ['leaf1'],
      rules: ['md with node_id, hop_latency; at most 28 bytes, goodput 98.2 %'],
      notes: [],
    };
    const times = { added: Date.now() * 1e6, end: null };
    return {
      name,
      etag,
      intent,
      by,
      origin: 'api',
      parent: null,
      flows: 0,
      rate: 0,
      ...state,
      ...facts,
      ...times,
    };
  }

  /** The refusal of a change for another version; null if it may be made. */
  stale(name, headers) {
    const held = this.intents.get(name);
    if (held && headers['if-none-match'] === '*')
      return `there is an intent \`${name}\` already, added by ${held.by}; use another name, or edit that one`;
    const etag = headers['if-match'];
    return etag && etag !== `"${held?.etag}"` ? `\`${name}\` was replaced by ${held?.by} meanwhile` : null;
  }

  /** Status and body of an answer; null: nothing is at this path. */
  answer(method, path, headers, body) {
    const [first, name] = path.split('/').map(decodeURIComponent);
    switch (`${method} ${path}`) {
      case 'GET intents':
        return [200, { intents: [...this.intents.keys()].map((one) => this.view(one)) }];
      case 'GET devices':
        return [200, { devices: [device(101, 'leaf1'), device(102, 'leaf2')] }];
      case 'GET domain':
        return [200, this.domain()];
      case 'GET plan':
        return [200, this.waits ? PLAN : EMPTY_PLAN];
      case 'POST plan/apply':
        this.waits = false;
        return [200, PLAN];
      case 'PUT intents': {
        const stale = this.stale(body.name, headers);
        return stale ? [412, { error: stale }] : [200, this.put(body, 'browser')];
      }
    }
    if (method !== 'DELETE' || first !== 'intents') return null;
    const stale = this.stale(name, headers);
    if (stale) return [412, { error: stale }];
    this.intents.delete(name);
    return [200, { intents: [...this.intents.keys()].map((one) => this.view(one)) }];
  }

  domain() {
    const state = { acting: true, stopped: false, devices: 2, in_sync: 2, manual: true };
    const network = { dscp: 23, l4_checksum: 'update', collectors: ['192.0.2.9:32766'], longest_path: 1 };
    const facts = { links: [[101, 2, 102, 2]], contradictions: [], hosts: [], suggestions: [] };
    return { ...state, ...network, ...facts, waits: this.waits ? PLAN.text : '' };
  }
}
