import { dictionary } from '../lib/dictionary';
import type { Drops, Input } from '../api/types';
import { exact } from '../lib/format';

/** What the receive paths mean, in a sentence. */
const HINTS = dictionary<string>({
  udp: 'A UDP socket: every datagram passes through the network stack.',
  packet: 'A ring of packet sockets: the kernel copies each frame, and the network stack processes it too.',
  'xdp-generic': 'AF_XDP behind any driver: the kernel copies frames into the program’s memory.',
  'xdp-native': 'AF_XDP in the driver: frames are copied into the program’s memory before the network stack.',
  'xdp-zerocopy': 'AF_XDP without a copy: the NIC writes into the program’s memory.',
  'kernel-native':
    'An XDP program in the driver detects changes and passes only reports with an event to user space.',
  'kernel-generic':
    'A generic XDP program detects changes and passes only reports with an event to user space.',
});

const REASONS = dictionary<string>({
  socket_buffer_full: 'the socket’s buffer was full',
  bad_checksum: 'the UDP checksum was wrong',
  ring_full: 'the ring was full',
  fill_empty: 'no free frame was left',
  frame_refused: 'the frame held no valid datagram',
});

export interface InputState {
  tone: 'ok' | 'warn' | 'bad';
  /** In one or two words. */
  text: string;
  /** What it means. */
  hint: string;
  /** Why no faster path is used; empty if there is no reason. */
  why: string;
}

/** How an input receives, and why not by a faster path. */
export function inputState(input: Input): InputState {
  const hint = HINTS[input.kind] ?? input.kind;
  if (!input.up) return { tone: 'bad', text: 'down', hint, why: `${input.message ?? 'closed'}; retrying` };
  const tried = input.tried.map(({ rx_path, reason }) => `not ${rx_path}: ${reason}`);
  const reopened = input.reopened > 0 ? [`reopened ${exact(input.reopened)} ×`] : [];
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

/** Where reports are received, as configured: `udp://*:32766`. */
export function listenText(inputs: readonly Input[]): string {
  return inputs.length === 0 ? 'no input' : inputs.map(({ listen }) => listen).join(', ');
}

/** Why there are no flows. */
export function noFlowsText(workers: readonly { reports: number }[]): string {
  const reports = workers.reduce((sum, worker) => sum + worker.reports, 0);
  if (reports === 0) return 'No flows yet. A flow appears with its first report.';
  return `No flows now. Of the ${exact(reports)} reports received, none names a flow that is still active.`;
}
