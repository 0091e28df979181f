import './styles/base.css';
import './styles/parts.css';
import './styles/pages.css';
import './styles/print.css';
import { adoptTokenFromAddress, get } from './api/client';
import { notes } from './api/notes';
import { poll } from './api/poll';
import type { Names } from './api/types';
import { live } from './live';
import { dictionary } from './lib/dictionary';
import { names } from './lib/names';
import { alertsPage } from './pages/alerts';
import { devicesPage } from './pages/devices';
import { eventsPage } from './pages/events';
import { exportsPage } from './pages/exports';
import { flowPage } from './pages/flow';
import { intentsPage } from './pages/intents';
import { listsPage } from './pages/lists';
import { overviewPage } from './pages/overview';
import { pathsPage } from './pages/paths';
import { queuesPage } from './pages/queues';
import { sqlPage } from './pages/sql';
import { storesPage } from './pages/stores';
import { topologyPage } from './pages/topology';
import { trafficPage } from './pages/traffic';
import { unavailablePage } from './pages/unavailable';
import { parseRoute, type Page, type Route } from './router';
import { session } from './session';
import { shell } from './shell';
import { carryTimes, times } from './times';

interface Entry {
  title: string;
  make: (route: Route) => Page;
  /** It shows a time that can be chosen. */
  ranged?: true;
  /** It needs nothing live: a console has it. */
  remote?: true;
}

const PAGES = dictionary<Entry>({
  overview: { title: 'Overview', make: overviewPage, ranged: true, remote: true },
  alerts: { title: 'Alerts', make: alertsPage, ranged: true, remote: true },
  topology: { title: 'Topology', make: topologyPage, ranged: true, remote: true },
  traffic: { title: 'Traffic', make: trafficPage, ranged: true, remote: true },
  queues: { title: 'Queues', make: queuesPage, ranged: true, remote: true },
  flow: { title: 'Flow', make: flowPage, ranged: true, remote: true },
  paths: { title: 'Paths', make: pathsPage, ranged: true, remote: true },
  events: { title: 'Events', make: eventsPage, ranged: true, remote: true },
  intents: { title: 'Intents', make: intentsPage },
  devices: { title: 'Devices', make: devicesPage },
  stores: { title: 'DTA stores', make: storesPage },
  lists: { title: 'DTA lists', make: listsPage, ranged: true },
  exports: { title: 'Exports', make: exportsPage },
  sql: { title: 'SQL', make: sqlPage, remote: true },
});

let current: { name: string; page: Page; time: string } | undefined;

adoptTokenFromAddress();
const frame = shell(Object.entries(PAGES).map(([name, { title }]) => ({ name, title })));
document.body.append(frame.element);
live.start();
// A page of a time that has ended is drawn once, so names come first. Without an answer it is drawn with ids.
const NAMES_MS = 2_000;
let begun = false;
const withoutNames = setTimeout(begin, NAMES_MS);
poll<Names>({
  intervalMs: 15_000,
  request: (signal) => get<Names>('names', {}, signal),
  show: (answer) => {
    names.set(answer);
    begin();
  },
  failed: begin,
});
void session.load();
let isConsole = false;
session.watch(() => {
  if (!session.console || isConsole) return;
  isConsole = true;
  live.stop();
  current?.page.stop();
  current = undefined;
  go();
});

function begin(): void {
  clearTimeout(withoutNames);
  if (begun) return;
  begun = true;
  go();
}

function go(): void {
  const route = parseRoute(location.hash);
  const name = route.page in PAGES ? route.page : session.console ? 'events' : 'overview';
  const made = PAGES[name];
  if (!made) return;
  const time = JSON.stringify([times.range, times.refresh()]);
  const isThere = !session.console || made.remote === true;
  frame.showRange(made.ranged === true && isThere);
  if (current?.name !== name || current.time !== time) notes.clear();
  if (current?.name === name && current.page.route && (current.time === time || current.page.followsRange)) {
    current.time = time;
    return current.page.route(route);
  }
  current?.page.stop();
  const page = isThere ? made.make(route) : unavailablePage(made.title);
  current = { name, page, time };
  frame.show(name, page.element);
  document.title = `${made.title} · hopwise`;
}

window.addEventListener('hashchange', go);
// A change of the time is written without an event; back and forward to it cause one.
times.onChange(go);
carryTimes();
