import type { Device, Domain, Intent, ManagerChange } from '../api/manager';
import { exact } from '../lib/format';

/** What the pages know of a manager. */
export interface Known {
  intents: Intent[];
  devices: Device[];
  domain: Domain | null;
}

/**
 * Takes over a change. True: the lists must be read again, because the change has states only, no rules, ports or devices of
 * intents.
 */
export function take(known: Known, { kind, change }: ManagerChange): boolean {
  switch (kind) {
    case 'device': {
      const device = known.devices.find(({ node }) => node === change.node);
      const other = device?.state !== change.state;
      if (device) Object.assign(device, change);
      return other;
    }
    case 'intent': {
      const intent = known.intents.find(({ name }) => name === change.name);
      const other = intent?.etag !== change.etag || intent.state !== change.state;
      if (intent) Object.assign(intent, change);
      return other;
    }
    case 'removed':
      if (change.what === 'intent') known.intents = known.intents.filter(({ name }) => name !== change.name);
      return change.what !== 'intent';
    case 'domain': {
      if (known.domain) Object.assign(known.domain, change);
      return false;
    }
    case 'history':
      return false;
  }
}

/** The entries in a table, of how many that fit. */
export function tableShare({ used, others, size }: Device['watch_entries']): string {
  const whose = others > 0 ? ` (${exact(others)} of other controllers)` : '';
  const full = used + others >= size && size > 0 ? ': full' : '';
  return `${exact(used + others)} of ${exact(size)}${whose}${full}`;
}
