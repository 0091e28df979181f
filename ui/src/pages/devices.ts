import { get } from '../api/client';
import type {
  Device,
  DeviceCounter,
  DevicePort,
  Domain,
  ManagerHistory,
  ManagerHistoryEntry,
} from '../api/manager';
import { poll, type Poll } from '../api/poll';
import { h, panel, replace, setText, show } from '../lib/dom';
import { bothTimes, dateTime, exact, NONE, plural } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { apiOption, hands } from '../hands';
import { LiveTable } from '../lib/table';
import { hopwise } from '../model/copies';
import { followManager, type Following } from '../manager';
import { capabilityRows, neighbourText, tone } from '../model/intents';
import { tableShare } from '../model/manager';
import { link, type Page, type Route } from '../router';
import { goTo } from '../times';
import { domainControl, readOnlyNote } from './domain';
import { noManager } from './intents';

/** The devices of the manager: state, roles of ports, rules, what happened. */
export function devicesPage(route: Route): Page {
  return new DevicesPage(route.argument);
}

type Row = [name: string, value: string];
type Sheets = { sheet(): Sheet | null };

const MAX_HISTORY = 50;

class DevicesPage implements Page {
  readonly element: HTMLElement;
  private readonly domain = h('dl', { class: 'facts' });
  private readonly control = domainControl(() => this.manager.now());
  private readonly note = readOnlyNote();
  private readonly table: LiveTable<Device>;
  private readonly title = h('b', {});
  private readonly facts = h('dl', { class: 'facts' });
  private readonly ports = portTable();
  private readonly rules = h('ul', { class: 'rules' });
  private readonly foreign = h('ul', { class: 'rules' });
  private readonly foreignPanel: HTMLElement;
  private readonly counters = counterTable();
  private readonly countersPanel: HTMLElement;
  private readonly history = historyTable();
  private readonly details: HTMLElement;
  private readonly manager: Following;
  private readonly past: Poll;

  constructor(private name: string) {
    this.table = deviceTable(
      (device) => device.name === this.name,
      (device) => goTo(link('devices', device.name)),
    );
    this.foreignPanel = panel('Entries of other controllers', {}, this.foreign);
    const device = (): string => `devices/${encodeURIComponent(this.name)}`;
    const menu = (title: string, path: () => string, table: Sheets, command?: () => string[]): HTMLElement =>
      hands({
        title: () => `${title} of ${this.name}`,
        asked: () => [{ path: path() }],
        sheet: () => table.sheet(),
        ...(command ? { command } : {}),
      });
    const shown = (): string[] => hopwise('device show', { api: apiOption() }, this.name);
    this.countersPanel = panel(
      'Counters',
      { hands: menu('Counters', device, this.counters) },
      this.counters.element,
    );
    const column = (...panels: HTMLElement[]): HTMLElement => h('div', { class: 'column' }, ...panels);
    this.details = h(
      'div',
      { class: 'side' },
      column(panel('Device', {}, h('p', {}, this.title), this.facts), this.foreignPanel, this.countersPanel),
      column(
        panel('Ports', { hands: menu('Ports', device, this.ports, shown) }, this.ports.element),
        panel('Rules', {}, this.rules),
      ),
      panel(
        'History',
        {
          class: 'wide',
          hands: hands({
            title: () => `History of ${this.name}`,
            asked: () => [{ path: 'domain/history', params: { subject: this.name, limit: MAX_HISTORY } }],
            sheet: () => this.history.sheet(`At most the last ${MAX_HISTORY}.`),
          }),
        },
        this.history.element,
      ),
    );
    const page = h(
      'div',
      { class: 'page devices' },
      panel('Domain', { aside: this.control.element }, this.domain, this.note.element),
      panel(
        'Devices',
        {
          hands: hands({
            title: 'Devices',
            asked: () => [{ path: 'devices' }],
            command: () => hopwise('device list', { api: apiOption() }),
            sheet: () => this.table.sheet(),
          }),
        },
        this.table.element,
      ),
      this.details,
    );
    this.element = h('div', {}, page);
    this.manager = followManager({
      show: () => {
        if (!page.isConnected) this.element.replaceChildren(page);
        this.draw();
      },
      none: () => this.element.replaceChildren(noManager()),
      noted: (subject) => {
        if (subject === null || subject === this.name) this.past.now();
      },
    });
    this.past = poll<ManagerHistory>({
      intervalMs: 10_000,
      request: (signal) => get('domain/history', { subject: this.name, limit: MAX_HISTORY }, signal),
      show: ({ history }) => this.history.update(history),
    });
  }

  route(route: Route): void {
    this.name = route.argument;
    this.draw();
    this.past.now();
  }

  stop(): void {
    this.manager.stop();
    this.past.stop();
    this.control.stop();
    this.note.stop();
  }

  private draw(): void {
    const { devices, domain } = this.manager.known;
    this.control.update(domain);
    if (domain) replace(this.domain, domainRows(domain), row);
    if (this.name === '' && devices[0]) {
      this.name = devices[0].name;
      this.past.now();
    }
    this.table.update(devices);
    const device = devices.find((one) => one.name === this.name);
    show(this.details, device !== undefined);
    if (!device) return;
    setText(this.title, device.name);
    replace(this.facts, deviceFacts(device), row);
    this.ports.update(device.ports);
    const rules = device.rules ?? ['never read'];
    replace(this.rules, rules.length > 0 ? rules : ['no rules'], (line) => [h('li', {}, line)]);
    show(this.foreignPanel, device.foreign.length > 0);
    const counters = device.counters ?? [];
    show(this.countersPanel, counters.length > 0);
    this.counters.update(counters);
    replace(this.foreign, device.foreign, (line) => [h('li', {}, line)]);
  }
}

function row([name, value]: Row): Node[] {
  return [h('dt', {}, name), h('dd', {}, value)];
}

function role({ acting, copy }: Domain): string {
  if (acting) return 'acts';
  return copy === null ? 'on standby: another manager is active' : `on standby: ${copy}`;
}

function domainRows(domain: Domain): Row[] {
  const collectors = domain.collectors.join(', ') || 'as each device is configured';
  const dta: Row[] =
    domain.dta_collectors.length === 0 ? [] : [['DTA collectors', domain.dta_collectors.join(', ')]];
  return [
    ['In sync', `${domain.in_sync} of ${domain.devices}`],
    ['This manager', role(domain)],
    ['INT', domain.stopped ? 'stopped by an operator' : 'as declared by intents'],
    ['Mark', `DSCP ${domain.dscp}, L4 checksum ${domain.l4_checksum}`],
    ['Collectors', `${collectors}; change [manager] collectors in the configuration, and restart`],
    ...dta,
    ['Longest path', plural(domain.longest_path, 'link')],
    ...domain.contradictions.map((text): Row => ['Contradiction', text]),
    ...domain.suggestions.map((text): Row => ['Suggested link', text]),
  ];
}

function deviceFacts(device: Device): Row[] {
  const drift = [
    device.missing > 0 ? `${plural(device.missing, 'rule')} missing` : '',
    device.extra > 0 ? `${plural(device.extra, 'unexpected rule')}` : '',
  ].filter((part) => part !== '');
  if (device.does !== null) {
    return [
      ['State', device.text],
      ['Role', `${device.role}, outside the domain`],
      ['Does', device.does],
      ['Drift', drift.join(', ') || 'none'],
      ['Driver', `${device.driver} at ${device.address}`],
      ['Labels', device.labels.join(', ') || NONE],
    ];
  }
  return [
    ['State', device.text],
    ['Drift', drift.join(', ') || 'none'],
    ['Border', device.ready ? 'closed: INT stays inside the domain' : 'not closed yet'],
    ['Watchlist', tableShare(device.watch_entries)],
    ['Filters', tableShare(device.filter_entries)],
    ['Driver', `${device.driver} at ${device.address}`],
    ['Labels', device.labels.join(', ') || NONE],
    ...capabilityRows(device.capabilities),
  ];
}

function deviceTable(
  selected: (device: Device) => boolean,
  select: (device: Device) => void,
): LiveTable<Device> {
  // No intent concerns a device outside the domain.
  const share = (
    { does }: Device,
    entries: Device['watch_entries'],
  ): string | { text: string; bar: number } => {
    const { used, others, size } = entries;
    return does !== null ? NONE : { text: tableShare(entries), bar: size === 0 ? 0 : (used + others) / size };
  };
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
        hint: 'Missing rules and unexpected rules',
        cell: (device) => (device.missing + device.extra > 0 ? `−${device.missing} +${device.extra}` : NONE),
      },
      { title: 'Watchlist', numeric: true, cell: (device) => share(device, device.watch_entries) },
      { title: 'Filters', numeric: true, cell: (device) => share(device, device.filter_entries) },
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
    empty: 'No known ports.',
    columns: [
      { title: 'Port', numeric: true, cell: (port) => exact(port.port) },
      { title: 'Interface', cell: (port) => port.name ?? NONE },
      {
        title: 'Role',
        cell: (port) => ({
          text: port.opening === true ? `${port.role}, do not connect hosts yet` : port.role,
          class: port.role === 'disputed' || port.opening === true ? 'state bad' : '',
        }),
      },
      { title: 'Peer', cell: (port) => port.peer ?? NONE },
      {
        title: 'Neighbour',
        hint: 'The neighbour from received LLDP',
        cell: ({ neighbour }) => neighbourText(neighbour),
      },
      {
        title: 'MTU',
        numeric: true,
        file: { value: (port) => port.mtu, unit: 'bytes' },
        cell: (port) => (port.mtu === null ? NONE : exact(port.mtu)),
      },
      { title: 'INT', cell: int },
    ],
  });
}

function counterTable(): LiveTable<DeviceCounter> {
  return new LiveTable<DeviceCounter>({
    label: 'Counters',
    empty: 'No counters.',
    columns: [
      {
        title: 'Counter',
        hint: 'Counters of the device’s program',
        cell: (counter) => (counter.object ? `${counter.object}: ${counter.name}` : counter.name),
      },
      {
        title: 'Packets',
        numeric: true,
        file: { value: (counter) => counter.packets },
        cell: (counter) => exact(counter.packets),
      },
    ],
  });
}

function historyTable(): LiveTable<ManagerHistoryEntry> {
  return new LiveTable<ManagerHistoryEntry>({
    label: 'History',
    empty: 'No history yet.',
    columns: [
      {
        title: 'Time',
        file: { value: (entry) => entry.time, time: true },
        cell: (entry) => ({ text: dateTime(entry.time), title: bothTimes(entry.time) }),
      },
      { title: 'Who', cell: (entry) => entry.by },
      { title: 'What', cell: (entry) => entry.action },
      {
        title: '',
        class: 'grow',
        file: { name: 'Details', value: (entry) => entry.text },
        cell: (entry) => entry.text,
      },
    ],
  });
}
