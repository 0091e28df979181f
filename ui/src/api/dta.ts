/** The JSON of `/api/v1/dta`: memory that translators fill by RDMA writes. Times are nanoseconds since the epoch. */

import type { Drops } from './types';

export interface Memory {
  listen: string;
  exchange: string;
  directory: string;
  policy: string;
  bytes: number;
  datagrams: number;
  kernel_drops: number;
  packets: number;
  executed: number;
  duplicates: number;
  refused: Drops;
  dropped: Drops;
  adds_up: boolean;
  messages: number;
  written_bytes: number;
  fetch_adds: number;
  missing: number;
  links: MemoryLink[];
  events: {
    entries: number;
    lapped: number;
    missing: number;
    immediates: number;
    immediates_shed: number;
  };
  snapshots: { taken: number; failed: number; message: string | null; directory: string };
}

export interface MemoryLink {
  instance: string;
  link: number;
  from: string;
  up: boolean;
  since_s: number;
  connections: number;
  unreliable: string;
  reliable: string;
}

export interface Store {
  name: string;
  id: number;
  kind: 'key-write' | 'append' | 'key-increment' | 'sketch' | 'postcarding';
  slots?: number;
  data?: number;
  hash?: string;
  hops?: number;
  lists?: number;
  entry?: number;
  entries?: number;
  batch?: number;
  tagged?: boolean;
  sketch?: string;
  merge?: string;
  depth?: number;
  columns?: number;
  width?: number;
  fields: string | null;
  bytes: number;
  pages: string;
  created: number;
  occupied: number | null;
  expected: Expected[];
}

export interface Expected {
  copies: number;
  load: number;
  answered: number;
}

export type Fields = Record<string, unknown>;

export interface Answer {
  store: string;
  key: string;
  answer: 'found' | 'empty' | 'ambiguous' | 'unproven' | 'torn';
  copies: number | null;
  agreeing: number | null;
  data: string | null;
  fields: Fields | null;
  path: (number | null)[] | null;
  missing: number | null;
}

export interface CountAnswer {
  key: string;
  estimate: number;
  copies: number;
  total: number;
  error: number;
  confidence: number;
}

export interface SketchAnswer {
  sketch: string;
  epoch: { epoch: number; columns: number; reporters: number };
  certain: boolean;
  key: string | null;
  question: string;
  estimate: number | null;
  error: number | null;
  confidence: number | null;
}

export interface List {
  list: number;
  store: string;
  newest: number | null;
  tagged: boolean;
  events: boolean;
}

export interface Entry {
  sequence: number;
  index: number;
  data: string;
  fields: Fields | null;
}

export interface Tail {
  list: number;
  store: string;
  entries: Entry[];
  next: number;
  lapped: number;
  missing: number;
}

export interface Snapshot {
  store: string;
  ts: number;
  file: string;
  bytes: number;
}
