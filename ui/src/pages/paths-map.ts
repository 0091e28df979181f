import { get } from '../api/client';
import { poll } from '../api/poll';
import type { Link, Node, PathUse } from '../api/types';
import { h, show } from '../lib/dom';
import { names } from '../lib/names';
import { pathText } from '../lib/format';
import { MAX_PLAIN } from '../model/fabric';
import { pathKey, type Path } from '../model/paths';
import { NO_PLACES } from '../model/places';
import { bareLink, buildGraph, edgeId, NO_GRAPH, type Graph } from '../model/topology';
import { link } from '../router';
import { goTo, times } from '../times';
import { TopologyCanvas } from './topology-canvas';
import type { Overlay } from './topology-style';

const MAX_ROWS = 10_000;

/** A path over the map, and what it is called there. */
export interface Drawn {
  path: Path;
  label: string;
}

/** The network with one or two paths over it. */
export function pathsMap() {
  const canvas = new TopologyCanvas({
    choose: ({ selected }) => {
      if (selected && 'node' in selected) goTo(link('topology', String(selected.node)));
    },
    toggle: (group) => toggle(group),
  });
  const legend = h('ul', { class: 'path-legend', aria: { label: 'Paths on the map' } });
  const nothing = h('p', { class: 'table-note' }, 'No path selected.');
  const element = h(
    'div',
    { class: 'paths-map' },
    h('div', { class: 'map' }, canvas.element),
    legend,
    nothing,
  );
  let fetched: Graph = NO_GRAPH;
  /** With the links of the paths that are drawn. */
  let graph: Graph = NO_GRAPH;
  let uses: readonly PathUse[] = [];
  let drawn: { before: Drawn | null; after: Drawn | null } = { before: null, after: null };
  const open = new Set<string>();

  function toggle(group: string): void {
    if (!open.delete(group)) open.add(group);
    draw();
  }

  function overlays(): Overlay[] {
    return (['before', 'after'] as const).flatMap((look) => {
      const one = drawn[look];
      return one ? [{ look, path: one.path }] : [];
    });
  }

  function draw(): void {
    const paths = overlays();
    for (const { path } of paths)
      for (const node of path) {
        const group = node === null ? undefined : canvas.fabric?.groupOf.get(node);
        if (group !== undefined && graph.nodes.length > MAX_PLAIN) open.add(group);
      }
    canvas.arrange(graph, uses, NO_PLACES, open);
    canvas.draw({
      graph,
      metric: 'latency',
      path: null,
      selected: null,
      matches: new Set(),
      overlays: paths,
      hosts: new Map(),
      hostName: (address) => names.host(address),
    });
  }

  const polled = poll<[{ nodes: Node[] }, { links: Link[] }, { paths: PathUse[] }]>({
    intervalMs: () => times.intervalMs(10_000),
    request: (signal) => {
      const all = { ...times.query(), limit: MAX_ROWS };
      return Promise.all([
        get<{ nodes: Node[] }>('nodes', all, signal),
        get<{ links: Link[] }>('links', all, signal),
        get<{ paths: PathUse[] }>('paths', all, signal),
      ]);
    },
    show: ([nodes, links, paths]) => {
      fetched = buildGraph(nodes.nodes, links.links);
      graph = withLinks(fetched, overlays());
      uses = paths.paths;
      draw();
    },
  });

  return {
    element,
    /** Draws one path or two. What is drawn already stays as it is. */
    show(before: Drawn | null, after: Drawn | null): void {
      const key = (one: Drawn | null): string => (one ? `${one.label} ${pathKey(one.path)}` : '');
      if (key(before) === key(drawn.before) && key(after) === key(drawn.after)) return;
      drawn = { before, after };
      graph = withLinks(fetched, overlays());
      legend.replaceChildren(
        ...(['before', 'after'] as const).flatMap((look) => {
          const one = drawn[look];
          if (!one) return [];
          return [
            h(
              'li',
              { data: { look } },
              h('i', { class: `route ${look}` }),
              h('b', {}, one.label),
              ` ${pathText([...one.path])}`,
            ),
          ];
        }),
      );
      show(nothing, before === null && after === null);
      draw();
    },
    /** Asks again: the time is another one. */
    now: () => polled.now(),
    stop(): void {
      polled.stop();
      canvas.destroy();
    },
  };
}

/** A path may have had links that the network does not have in this time. */
function withLinks(graph: Graph, overlays: readonly Overlay[]): Graph {
  const known = new Set(graph.edges.map(({ id }) => id));
  const missing = new Map<string, Link>();
  for (const { path } of overlays)
    path.forEach((from, i) => {
      const to = path[i + 1];
      if (from === null || to === null || to === undefined || known.has(edgeId(from, to))) return;
      missing.set(edgeId(from, to), bareLink(from, to));
    });
  if (missing.size === 0) return graph;
  const nodes = graph.nodes.flatMap(({ node }) => (node ? [node] : []));
  return buildGraph(nodes, [...graph.edges.map((edge) => edge.link), ...missing.values()]);
}
