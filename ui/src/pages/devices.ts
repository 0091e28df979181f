import { ApiError, get } from '../api/client';
import type {
  Device,
  DevicePort,
  Devices,
  Domain,
  ManagerHistory,
  ManagerHistoryEntry,
} from '../api/manager';
import { poll, type Poll } from '../api/poll';
import { h, panel, show } from '../lib/dom';
import { dateTime, exact, NONE } from '../lib/format';
import { LiveTable } from '../lib/table';
import { tone } from '../model/intents';
import { link, type Page, type Route } from '../router';
import { noManager } from './intents';

/** The devices of the manager: state, roles of ports, rules, what happened. */
export function devicesPage(route: Route): Page {
  return new DevicesPage(route.argument);
}

class DevicesPage implements Page {
  readonly element: HTMLElement;
  private readonly facts = h('dl', { class: 'facts' });
  private readonly table: LiveTable<Device>;
  private readonly ports = portTable();
  private readonly rules = h('ul', { class: 'rules' });
  private readonly history = historyTable();
  private readonly details: HTMLElement;
  private readonly polls: Poll[];
  private devices: Device[] = [];

  constructor(private name: string) {
    this.table = deviceTable(
      (device) => device.name === this.name,
      (device) => (location.hash = link('devices', device.name)),
    );
    this.details = h(
      'div',
      { class: 'side' },
      panel('Ports', {}, this.ports.element),
      panel('Rules', {}, this.rules),
      panel('History', {}, this.history.element),
    );
    const page = h(
      'div',
      { class: 'page devices' },
      panel('Domain', {}, this.facts),
      panel('Devices', {}, this.table.element),
      this.details,
    );
    this.element = h('div', {}, page);
    this.polls = [
      poll<[Devices, Domain]>({
        intervalMs: 1000,
        request: (signal) =>
          Promise.all([get<Devices>('devices', {}, signal), get<Domain>('domain', {}, signal)]),
        show: ([{ devices }, domain]) => {
          if (!page.isConnected) this.element.replaceChildren(page);
          showFacts(this.facts, domain);
          this.show(devices);
        },
        failed: (error) => {
          if (error instanceof ApiError && error.status === 404) this.element.replaceChildren(noManager());
        },
      }),
      poll<ManagerHistory>({
        intervalMs: 2000,
        request: (signal) => get('domain/history', { subject: this.name, limit: 50 }, signal),
        show: ({ history }) => this.history.update(history),
      }),
    ];
  }

  route(route: Route): void {
    this.name = route.argument;
    this.show(this.devices);
    this.polls[1]?.now();
  }

  stop(): void {
    for (const one of this.polls) one.stop();
  }

  private show(devices: Device[]): void {
    this.devices = devices;
    this.name ||= devices[0]?.name ?? '';
    this.table.update(devices);
    const device = devices.find((one) => one.name === this.name);
    show(this.details, device !== undefined);
    if (!device) return;
    this.ports.update(device.ports);
    const rules = device.rules ?? ['never read'];
    const foreign = device.foreign.map((entry) => `not ours: ${entry}`);
    const lines = [...(rules.length > 0 ? rules : ['no rules']), ...foreign];
    if (this.rules.dataset['shown'] === lines.join('\n')) return;
    this.rules.dataset['shown'] = lines.join('\n');
    this.rules.replaceChildren(...lines.map((line) => h('li', {}, line)));
  }
}

function showFacts(list: HTMLElement, domain: Domain): void {
  const rows: [string, string][] = [
    ['In sync', `${domain.in_sync} of ${domain.devices}`],
    ['This manager', domain.acting ? 'acts' : 'is superseded: another manager acts'],
    ['INT', domain.stopped ? 'stopped by hand' : 'as the intents say'],
    ['Mark', `DSCP ${domain.dscp}, L4 checksum ${domain.l4_checksum}`],
    ['Collectors', domain.collectors.join(', ') || 'not set by the manager'],
    ['Longest path', `${domain.longest_path} links`],
    ...domain.contradictions.map((text): [string, string] => ['Contradiction', text]),
  ];
  const changed = rows.map(([, value]) => value).join('\n');
  if (list.dataset['shown'] === changed) return;
  list.dataset['shown'] = changed;
  list.replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function deviceTable(
  selected: (device: Device) => boolean,
  select: (device: Device) => void,
): LiveTable<Device> {
  const share = ({ used, size }: Device['watch_entries']): { text: string; bar: number } => ({
    text: `${exact(used)} of ${exact(size)}`,
    bar: size === 0 ? 0 : used / size,
  });
  return new LiveTable<Device>({
    label: 'Devices',
    empty: 'No devices: add [[inventory.devices]] to the configuration.',
    select,
    selected,
    columns: [
      { title: 'Device', cell: (device) => device.name },
      { title: 'Node', numeric: true, cell: (device) => exact(device.node) },
      {
        title: 'State',
        cell: (device) => ({ text: device.state, class: `state ${tone(device.state)}`, title: device.text }),
      },
      {
        title: 'Drift',
        hint: 'Rules that it lacks, and rules that it has too many',
        cell: (device) => (device.missing + device.extra > 0 ? `−${device.missing} +${device.extra}` : NONE),
      },
      { title: 'Watchlist', numeric: true, cell: (device) => share(device.watch_entries) },
      { title: 'Filters', numeric: true, cell: (device) => share(device.filter_entries) },
      { title: 'Driver', cell: (device) => `${device.driver} at ${device.address}` },
    ],
  });
}

function portTable(): LiveTable<DevicePort> {
  const int = (port: DevicePort): string => {
    if (port.source && port.sink) return 'source and sink';
    return port.source ? 'source' : port.sink ? 'sink' : NONE;
  };
  return new LiveTable<DevicePort>({
    label: 'Ports',
    empty: 'No ports are known.',
    columns: [
      { title: 'Port', numeric: true, cell: (port) => exact(port.port) },
      { title: 'Interface', cell: (port) => port.name ?? NONE },
      {
        title: 'Role',
        cell: (port) => ({ text: port.role, class: port.role === 'disputed' ? 'state bad' : '' }),
      },
      { title: 'Peer', cell: (port) => port.peer ?? NONE },
      { title: 'MTU', numeric: true, cell: (port) => (port.mtu === null ? NONE : exact(port.mtu)) },
      { title: 'INT', cell: int },
    ],
  });
}

function historyTable(): LiveTable<ManagerHistoryEntry> {
  return new LiveTable<ManagerHistoryEntry>({
    label: 'History',
    empty: 'Nothing has happened yet.',
    columns: [
      { title: 'Time', cell: (entry) => dateTime(entry.time) },
      { title: 'Who', cell: (entry) => entry.by },
      { title: 'What', cell: (entry) => entry.action },
      { title: '', class: 'grow', cell: (entry) => entry.text },
    ],
  });
}
