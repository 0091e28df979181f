import { ApiError, get, Unreachable } from '../api/client';
import type { Devices } from '../api/manager';
import { poll, type Poll } from '../api/poll';
import type { Flow, Link, LossMap, Node, PathUse, Range } from '../api/types';
import { apiOption, hands } from '../hands';
import { empty, h, panel, setText, show } from '../lib/dom';
import { plural, reasonOf } from '../lib/format';
import { names } from '../lib/names';
import { hopwise } from '../model/copies';
import { MAX_PLAIN } from '../model/fabric';
import { hostsOf, type Hosts } from '../model/hosts';
import { droppedByNode, withLosses } from '../model/losses';
import { NO_PLACES, placesOf, samePlaces, type Places } from '../model/places';
import { ranking } from '../model/ranking';
import { search } from '../model/search';
import { buildGraph, linkSheet, nodeValues, NO_GRAPH, type Graph } from '../model/topology';
import type { Page, Route } from '../router';
import { session } from '../session';
import { Settings } from '../settings';
import { partText } from '../model/range';
import { times } from '../times';
import { FLOW_LIST_DEFAULTS, flowList } from './flow-list';
import { TopologyCanvas } from './topology-canvas';
import { detailView } from './topology-detail';
import { legendView, metricNamed, metricPicker } from './topology-legend';
import { rankingList } from './topology-list';
import { lossPanel } from './topology-loss';
import type { Selection } from './topology-style';

/**
 * What a person sets on the map, by the names in the address: `open` has the ids of open groups, or `all`; `find` is what
 * is searched for. The address also names what is selected.
 */
const DEFAULTS = { ...FLOW_LIST_DEFAULTS, lens: 'latency', flow: '', open: '', find: '' };

/** As many as the server gives at once. */
const MAX_ROWS = 10_000;
/** A large network is asked for less often. */
const LARGE = 1_500;
const HOSTS_MS = 15_000;
const PATHS_MS = 15_000;
const PLACES_MS = 60_000;
const FLOWS_FOR_HOSTS = 2_000;

interface Answer {
  nodes: Node[];
  links: Link[];
  paths: PathUse[];
  /** Says that these are not all. */
  part: string;
}

/** The network as the reports' paths show it. */
export function topologyPage(route: Route): Page {
  return new TopologyPage(route);
}

/** The time of the page, with as many rows as the server gives at once. */
function wholeTime(): Record<string, string | number> {
  return { ...times.query(), limit: MAX_ROWS };
}

class TopologyPage implements Page {
  readonly element: HTMLElement;
  private readonly settings: Settings<typeof DEFAULTS>;
  private graph: Graph = NO_GRAPH;
  private paths: { at: number; paths: PathUse[] } = { at: -Infinity, paths: [] };
  private hosts: Hosts = new Map();
  /** What the inventory says. */
  private places: Places = NO_PLACES;
  private selected: Selection | null;
  /** Which of the nodes that were found is shown. */
  private match = -1;
  /** What the address selects is shown once, when the network is known. */
  private revealed = false;
  private losses: LossMap | null = null;
  private links: Link[] = [];
  private nodes: Node[] = [];
  /** The flow whose path is highlighted. */
  private flow: Flow | null = null;
  private flowPoll: Poll | undefined;
  private stopped = false;
  /** Says that not all is on the map. */
  private part = '';
  private readonly legend = legendView();
  private readonly detail = detailView({
    toggle: (group) => this.toggle(group),
    select: (selected) => this.reveal(selected),
  });
  private readonly summary = h('span', { class: 'muted map-summary' });
  private readonly nothing = empty(
    'No nodes yet',
    'Nodes and links are learnt from the paths in reports. They appear with the first report that has hops.',
  );
  private readonly canvas = new TopologyCanvas({
    choose: ({ selected, step }) => this.select(selected, step),
    toggle: (group) => this.toggle(group),
  });
  private readonly loss = lossPanel((losses) => {
    this.losses = losses;
    this.build();
    this.arrange();
    this.draw();
  });
  private readonly metrics = metricPicker((metric) => {
    this.settings.set({ lens: metric });
    this.draw();
  });
  private readonly all = h('button', { type: 'button', on: { click: () => this.toggleAll() } });
  private readonly find = h('input', {
    type: 'search',
    class: 'find',
    placeholder: 'find a node or host',
    spellcheck: 'false',
    autocomplete: 'off',
    aria: { label: 'Find a node or host' },
  });
  private readonly ranks = rankingList({
    choose: (selected) => ('group' in selected ? this.toggle(selected.group) : this.reveal(selected)),
    selected: () => this.selected,
    metric: () => metricNamed(this.settings.get('lens')),
  });
  private readonly list: ReturnType<typeof flowList>;
  private readonly answers = poll<Answer>({
    intervalMs: () =>
      times.intervalMs(this.graph.nodes.length + this.graph.edges.length > LARGE ? 3000 : 1000),
    request: (signal) => this.requestAll(signal),
    show: (answer) => this.take(answer),
    failed: (error) => {
      if ((error instanceof ApiError || session.console) && !times.isLive())
        setText(this.summary, reasonOf(error));
    },
  });
  private hostPoll: Poll | undefined;
  private placePoll: Poll | undefined;

  constructor(route: Route) {
    this.settings = new Settings(route, DEFAULTS);
    this.list = flowList({
      settings: this.settings,
      selected: () => this.flow?.id ?? '',
      select: (flow) => this.choose(this.flow?.id === flow.id ? null : flow),
    });
    this.selected = selectionOf(route.argument);
    this.find.value = this.settings.get('find');
    this.find.addEventListener('input', () => this.search());
    this.find.addEventListener('keydown', (event) => this.findKey(event));
    this.element = this.layOut();
    void this.followNamed();
  }

  route(route: Route): void {
    if (this.settings.adopt(route)) this.list.adopt();
    this.find.value = this.settings.get('find');
    this.selected = selectionOf(route.argument);
    this.arrange();
    this.draw();
    if (this.selected) this.canvas.reveal(this.selected);
    void this.followNamed();
  }

  stop(): void {
    this.stopped = true;
    this.settings.stop();
    this.answers.stop();
    this.hostPoll?.stop();
    this.placePoll?.stop();
    this.flowPoll?.stop();
    this.list.stop();
    this.detail.stop();
    this.loss.stop();
    this.canvas.destroy();
  }

  private layOut(): HTMLElement {
    this.nothing.hidden = true;
    show(this.all, false);
    const button = (text: string, title: string, click: () => void): HTMLElement =>
      h('button', { type: 'button', class: 'quiet', title, aria: { label: title }, on: { click } }, text);
    const zooms = [
      button('−', 'Zoom out', () => this.canvas.zoom(1 / 1.5)),
      button('+', 'Zoom in', () => this.canvas.zoom(1.5)),
      button('Fit', 'Fit: show the whole network', () => this.canvas.fit()),
    ];
    const aside = h(
      'div',
      { class: 'bar' },
      this.summary,
      this.find,
      this.metrics.element,
      this.all,
      h('div', { class: 'zooms' }, ...zooms),
    );
    const map = h('div', { class: 'map' }, this.canvas.element, this.nothing);
    const details = panel('Details', {}, this.detail.element);
    const ranks = panel('Worst first', { class: 'ranks', hands: this.ranksHands() }, this.ranks.element);
    const flows = panel('Follow a flow', { class: 'follow', hands: this.list.hands }, this.list.element);
    return h(
      'div',
      { class: 'page topology' },
      panel('Topology', { class: 'map-panel', aside, hands: this.mapHands() }, map, this.legend.element),
      h('div', { class: 'side' }, details, ranks, flows),
      this.loss.element,
    );
  }

  private mapHands(): HTMLElement {
    return hands({
      title: 'Topology',
      now: () => times.isLive(),
      asked: () => ['nodes', 'links', 'paths'].map((path) => ({ path, params: wholeTime() })),
      command: () => (times.isLive() ? hopwise('top', { view: 'links', api: apiOption() }) : null),
      sheet: () => linkSheet(this.graph, this.part),
    });
  }

  private ranksHands(): HTMLElement {
    return hands({
      title: 'Worst first',
      now: () => times.isLive(),
      asked: () => [{ path: 'nodes', params: wholeTime() }],
      command: () => (times.isLive() ? hopwise('top', { view: 'nodes', api: apiOption() }) : null),
      sheet: () => this.ranks.sheet(),
    });
  }

  /** Paths only say where nodes stand: those of a large network are asked for less often. */
  private async requestAll(signal: AbortSignal): Promise<Answer> {
    const all = wholeTime();
    const asked = Date.now();
    const old = asked - this.paths.at > PATHS_MS || this.graph.nodes.length < LARGE / 10;
    const [nodes, links, paths] = await Promise.all([
      get<{ nodes: Node[]; range?: Range | null }>('nodes', all, signal),
      get<{ links: Link[]; range?: Range | null }>('links', all, signal),
      old ? get<{ paths: PathUse[] }>('paths', all, signal) : this.paths,
    ]);
    if (old) this.paths = { at: asked, paths: paths.paths };
    return { nodes: nodes.nodes, links: links.links, paths: paths.paths, part: partText(nodes, links) };
  }

  private take(answer: Answer): void {
    this.part = answer.part;
    [this.nodes, this.links] = [answer.nodes, answer.links];
    this.build();
    const { nodes, edges } = this.graph;
    show(this.nothing, nodes.length === 0);
    const counts = `${plural(nodes.length, 'node')}, ${plural(edges.length, 'link')}`;
    setText(this.summary, answer.part === '' ? counts : `${counts}. ${answer.part}`);
    this.arrange();
    this.draw();
    if (this.revealed || nodes.length === 0) return;
    this.revealed = true;
    // Not before: the first picture does without.
    this.hostPoll = this.pollHosts();
    // A console has no inventory.
    if (nodes.length > MAX_PLAIN && !session.console) this.placePoll = this.pollPlaces();
    if (this.selected) this.canvas.reveal(this.selected);
  }

  /** Nodes and links with what they lost: both from one answer, and so of one time. */
  private build(): void {
    const { nodes, links, losses } = this;
    this.graph = buildGraph(nodes, withLosses(links, losses), droppedByNode(losses));
  }

  private pollHosts(): Poll {
    return poll<{ flows: Flow[] }>({
      intervalMs: () => times.intervalMs(HOSTS_MS),
      request: (signal) =>
        get('flows', { ...times.query(), sort: 'last_seen', limit: FLOWS_FOR_HOSTS }, signal),
      show: ({ flows }) => {
        this.hosts = hostsOf(flows);
        this.draw();
      },
    });
  }

  private pollPlaces(): Poll {
    return poll<Devices>({
      intervalMs: PLACES_MS,
      request: (signal) => get('devices', {}, signal),
      show: ({ devices }) => {
        const places = placesOf(devices);
        if (samePlaces(places, this.places)) return;
        this.places = places;
        this.arrange();
        this.draw();
      },
      failed: (error) => {
        // There is no manager in this program.
        if (error instanceof ApiError && error.status === 404) this.placePoll?.stop();
      },
    });
  }

  private arrange(): void {
    const { fabric } = this.canvas;
    this.canvas.arrange(this.graph, this.paths.paths, this.places, this.open());
    // The first time, the groups are known only now.
    if (this.canvas.fabric !== fabric || this.openFor(this.selected))
      this.canvas.arrange(this.graph, this.paths.paths, this.places, this.open());
  }

  /** The groups that are open. */
  private open(): Set<string> {
    const text = this.settings.get('open');
    if (text === 'all') return new Set(this.canvas.fabric?.groups.map(({ id }) => id));
    return new Set(text.split(',').filter((id) => id !== ''));
  }

  /** Opens the group of a node, so that it can be seen. Returns whether it was closed. */
  private openFor(selected: Selection | null): boolean {
    if (!selected || !('node' in selected)) return false;
    const group = this.canvas.fabric?.groupOf.get(selected.node);
    const open = this.open();
    if (group === undefined || open.has(group)) return false;
    this.settings.set({ open: [...open, group].join() }, false);
    return true;
  }

  private draw(): void {
    if (this.stopped) return;
    const metric = metricNamed(this.settings.get('lens'));
    this.metrics.update(metric);
    this.loss.follow(metric === 'loss');
    if (metric !== 'loss' && this.losses !== null) {
      // Links that only the losses name are those of their time.
      this.losses = null;
      this.build();
      this.arrange();
    }
    const { graph, selected, flow, hosts } = this;
    const hostName = (address: string): string => names.host(address);
    const found = search(graph.nodes, hosts, this.settings.get('find'), hostName);
    const path = flow?.path ?? null;
    const picture = { graph, metric, path, selected, matches: new Set(found), hosts, hostName };
    const scale = this.canvas.draw(picture);
    this.legend.update(metric, scale);
    const { fabric } = this.canvas;
    const open = this.open();
    const values = nodeValues(graph, metric);
    this.detail.update({ graph, fabric, open, selected, flow, hosts, values, scale, metric });
    const searching = this.settings.get('find').trim() !== '';
    const rows = ranking(graph, searching ? null : fabric, open, values, scale);
    this.ranks.update(
      searching ? rows.filter(({ node }) => node !== null && picture.matches.has(node)) : rows,
    );
    show(this.all, fabric !== null);
    setText(this.all, open.size > 0 ? 'Close all' : 'Open all');
  }

  private select(selected: Selection | null, step: boolean): void {
    this.selected = selected;
    this.settings.go(selectionText(selected), step);
    this.draw();
  }

  /** Selects something that may be in a closed group or out of sight, and shows it. */
  private reveal(selected: Selection): void {
    this.openFor(selected);
    this.select(selected, true);
    this.arrange();
    this.draw();
    this.canvas.reveal(selected);
  }

  private toggle(group: string): void {
    const open = this.open();
    if (!open.delete(group)) open.add(group);
    this.settings.set({ open: [...open].join() });
    this.select({ group }, false);
    this.arrange();
    this.draw();
    this.canvas.reveal({ group });
  }

  private toggleAll(): void {
    this.settings.set({ open: this.open().size > 0 ? '' : 'all' });
    // A node that stays selected would open its group again.
    if (this.selected && !('group' in this.selected)) this.select(null, false);
    this.arrange();
    this.draw();
    this.canvas.fit();
  }

  private search(): void {
    this.match = -1;
    this.settings.type({ find: this.find.value });
    this.draw();
  }

  /** Enter goes to what was found, again to the next. */
  private findKey(event: KeyboardEvent): void {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    const { graph, hosts } = this;
    const found = search(graph.nodes, hosts, this.find.value, (address) => names.host(address));
    if (found.length === 0) return;
    this.match = (this.match + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    const node = found[this.match];
    if (node !== undefined) this.reveal({ node });
  }

  private choose(flow: Flow | null): void {
    this.settings.set({ flow: (times.isLive() ? flow?.id : flow?.text) ?? '' });
    this.follow(flow);
  }

  private follow(flow: Flow | null): void {
    this.flow = flow;
    this.flowPoll?.stop();
    this.list.refresh();
    this.draw();
    if (!flow || this.stopped) return;
    this.flowPoll = poll<Flow>({
      intervalMs: () => times.intervalMs(1000),
      request: (signal) => get(`flows/${encodeURIComponent(flow.text)}`, times.query(), signal),
      show: (answer) => {
        this.flow = answer;
        this.draw();
      },
    });
  }

  /** Follows the flow that the address names; one that has expired is ignored. */
  private async followNamed(): Promise<void> {
    const name = this.settings.get('flow');
    if (name === '') return this.follow(null);
    if (this.flow && [this.flow.id, this.flow.text].includes(name)) return;
    this.follow(null);
    try {
      const flow = await get<Flow>(`flows/${encodeURIComponent(name)}`, times.query());
      // Meanwhile another one may have been chosen.
      if (this.settings.get('flow') === name) this.follow(flow);
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
    }
  }
}

/** `101` is a node, `101>201` a link, `g101` a group. */
function selectionOf(argument: string): Selection | null {
  if (/^g\d+$/.test(argument)) return { group: argument };
  const [from, to, ...more] = argument.split('>').map((part) => (/^\d+$/.test(part) ? Number(part) : null));
  if (from === null || from === undefined || to === null || more.length > 0) return null;
  return to === undefined ? { node: from } : { from, to };
}

function selectionText(selected: Selection | null): string {
  if (selected === null) return '';
  if ('group' in selected) return selected.group;
  return 'node' in selected ? String(selected.node) : `${selected.from}>${selected.to}`;
}
