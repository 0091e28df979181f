import type { Drops, Input } from '../api/types';
import { exact } from '../lib/format';

/** What the ways to receive mean, in a sentence. */
const WAYS: Readonly<Record<string, string>> = {
  udp: 'A UDP socket: every datagram goes through the network stack.',
  packet: 'A ring of packet sockets: the kernel copies each frame there, and the network stack sees it, too.',
  'xdp-generic': 'AF_XDP behind any driver: the kernel copies frames into our memory.',
  'xdp-native': 'AF_XDP in the driver: frames are copied into our memory before the network stack sees them.',
  'xdp-zerocopy': 'AF_XDP without a copy: the card writes into our memory.',
  'kernel-native': 'A program in the driver decides, and tells us only reports that hold an event.',
  'kernel-generic': 'A program in the kernel decides, and tells us only reports that hold an event.',
};

const REASONS: Readonly<Record<string, string>> = {
  socket_buffer_full: 'the socket’s buffer was full',
  ring_full: 'our ring was full',
  fill_empty: 'no free frame was left',
  frame_refused: 'the frame held no datagram',
};

export interface InputState {
  tone: 'ok' | 'warn' | 'bad';
  /** In one or two words. */
  text: string;
  /** What it means. */
  hint: string;
  /** Why it is not better; empty where nothing is to be said. */
  why: string;
}

/** How an input receives, and why not in a better way. */
export function inputState(input: Input): InputState {
  const hint = WAYS[input.kind] ?? input.kind;
  if (!input.up)
    return { tone: 'bad', text: 'down', hint, why: `${input.message ?? 'closed'}; it is tried again` };
  const tried = input.tried.map(({ rx_path, reason }) => `not ${rx_path}: ${reason}`);
  const reopened = input.reopened > 0 ? [`opened again ${exact(input.reopened)} ×`] : [];
  return {
    tone: tried.length > 0 ? 'warn' : 'ok',
    text: input.kind,
    hint,
    why: [...tried, ...reopened].join('; '),
  };
}

/** Drops by reason in words, the largest first. */
export function dropText(drops: Drops): string {
  const sorted = Object.entries(drops).sort(([, a], [, b]) => b - a);
  return sorted
    .map(([reason, count]) => `${exact(count)}: ${REASONS[reason] ?? reason.replaceAll('_', ' ')}`)
    .join('\n');
}
