import { dictionary } from '../lib/dictionary';
import type { BudgetStage, Source } from '../api/types';
import { exact, plural } from '../lib/format';

/** Labels of a stage; `decode` turns datagrams into reports. */
interface Words {
  title: string;
  input: string;
  output: string;
  place: string;
  hint: string;
}

const WORDS = dictionary<Words>({
  network: {
    title: 'Network',
    input: 'report',
    output: 'report',
    place: 'in the network',
    hint: 'Reports sent with a sequence number, and those received',
  },
  nic: {
    title: 'Interface',
    input: 'frame',
    output: 'frame',
    place: 'at the interface',
    hint: 'Frames that reached the interfaces, and those not dropped there; includes drops of other traffic',
  },
  kernel: {
    title: 'Kernel',
    input: 'datagram',
    output: 'datagram',
    place: 'in the kernel',
    hint: 'Datagrams for the sockets and rings, and those read before a buffer was full',
  },
  decode: {
    title: 'Decode',
    input: 'datagram',
    output: 'report',
    place: 'while decoding',
    hint: 'Datagrams decoded into reports; one can hold several',
  },
  join: {
    title: 'SF-INT',
    input: 'record',
    output: 'record',
    place: 'in incomplete sets',
    hint: 'Records of single nodes, joined into complete paths or used as samples of their node',
  },
  state: {
    title: 'State',
    input: 'report',
    output: 'report',
    place: 'at full tables',
    hint: 'Reports applied to flows, nodes, queues and links',
  },
  fanout: {
    title: 'Fan-out',
    input: 'datagram',
    output: 'datagram',
    place: 'at the fan-out',
    hint: 'Datagrams distributed to the workers by inner flow',
  },
  queue: {
    title: 'Queue',
    input: 'record',
    output: 'record',
    place: 'at the queue',
    hint: 'Events, rollups and rows queued for the store',
  },
  store: {
    title: 'Store',
    input: 'record',
    output: 'record',
    place: 'in the store',
    hint: 'Records committed to disk',
  },
  export: {
    title: 'Export',
    input: 'record',
    output: 'record',
    place: 'while exporting',
    hint: 'Stored records that other systems have received; a record received by two systems counts twice',
  },
});

export interface DropView {
  reason: string;
  count: number;
}

export interface StageView {
  stage: string;
  title: string;
  hint: string;
  input: string;
  output: string;
  place: string;
  in: number;
  out: number;
  /** Largest first. */
  drops: DropView[];
  dropped: number;
  /** In the stage now. */
  queued: number;
  /** Missing in the network without enough evidence of a loss: not in `in`. */
  unconfirmed: number;
  /** Datagrams received in the streams in which any are missing. */
  evidence: number;
  /** in − out − drops − queued: anything but 0 is a bug. */
  unexplained: number;
}

function words(stage: string): Words {
  return (
    WORDS[stage] ?? {
      title: stage,
      input: 'record',
      output: 'record',
      place: `at ${stage}`,
      hint: `Stage ${stage}`,
    }
  );
}

/** `reports` → `report`: the server names units in the plural. */
function singular(unit: string): string {
  return unit.replace(/s$/, '');
}

export function stageView(stage: BudgetStage): StageView {
  const known = words(stage.stage);
  const input = stage.unit ? singular(stage.unit) : known.input;
  const output = stage.unit ? input : known.output;
  const drops = Object.entries(stage.drops)
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => ({ reason, count }))
    .sort((a, b) => b.count - a.count);
  const dropped = drops.reduce((sum, drop) => sum + drop.count, 0);
  const rest = stage.in - stage.out - dropped;
  // An older server does not send `queued`: then the rest is queued. One datagram may hold several reports.
  const queued = stage.queued ?? Math.max(0, rest);
  const unexplained = input === output ? rest - queued : 0;
  const { title, place, hint } = known;
  const { in: into, out } = stage;
  return {
    stage: stage.stage,
    title,
    hint,
    input,
    output,
    place,
    in: into,
    out,
    drops,
    dropped,
    queued,
    unconfirmed: stage.evidence?.unconfirmed ?? 0,
    evidence: stage.evidence?.datagrams ?? 0,
    unexplained,
  };
}

export interface Verdict {
  tone: 'ok' | 'bad' | 'warn' | 'idle';
  headline: string;
  detail: string;
}

/** A refused datagram is not a lost report, and what another system does not take is still in the store: they have their own verbs. */
function verbFor(stage: string): string {
  const verbs = dictionary<string>({ decode: 'refused', queue: 'shed', export: 'not taken' });
  return verbs[stage] ?? 'lost';
}

function lossSentence(view: StageView): string {
  return `${plural(view.dropped, view.input)} ${verbFor(view.stage)} ${view.place}`;
}

function reasonList(view: StageView): string {
  const reasons = view.drops.map((drop) => `${drop.reason.replaceAll('_', ' ')} ${exact(drop.count)}`);
  return `${view.title}: ${reasons.join(', ')}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Sources whose losses in the network cannot be counted. */
function uncountable(sources: readonly Source[]): string[] {
  const mixed = sources.filter((source) => source.mixed).length;
  // One report has no other to compare with, and an address without a readable report has no sequence number.
  const constant = sources.filter(({ countable, mixed, reports }) => !countable && !mixed && reports > 1);
  return [
    notCountable(constant.length, 'the sequence number does not advance'),
    notCountable(mixed, 'several nodes send from one address'),
  ];
}

function notCountable(count: number, reason: string): string {
  return count === 0 ? '' : `Losses of ${plural(count, 'source')} are not countable: ${reason}.`;
}

/** Missing datagrams that do not count as lost, and the evidence for those that do. */
function evidence(stages: readonly StageView[]): string {
  const network = stages.find((view) => view.unconfirmed > 0);
  if (!network) return '';
  const support = `the streams have only ${plural(network.evidence, 'datagram')}`;
  return `${plural(network.unconfirmed, 'more report')} missing, not confirmed as lost: ${support}.`;
}

export interface Totals {
  dropped: number;
  /** Without refused reports, and without what other systems do not take. */
  lost: number;
}

/** Totals of the last seconds, at most a minute. */
export interface Recent extends Totals {
  seconds: number;
}

/** The summary sentence above the stages. */
export function verdict(stages: readonly StageView[], sources: readonly Source[], recent: Recent): Verdict {
  const caveat = [evidence(stages), ...uncountable(sources)].filter((part) => part !== '').join(' ');
  const wrong = stages.find((view) => view.unexplained !== 0);
  if (wrong) {
    const headline = `The counters of stage ${wrong.stage} are unbalanced by ${exact(Math.abs(wrong.unexplained))}`;
    return { tone: 'bad', headline, detail: 'This is a fault in hopwise: please report it.' };
  }
  const lossy = stages.filter((view) => view.dropped > 0);
  if (lossy.length === 0) {
    if (stages.every((view) => view.in === 0))
      return { tone: 'idle', headline: 'Nothing received yet', detail: '' };
    const unsure = stages.some((view) => view.unconfirmed > 0);
    if (unsure) return { tone: 'warn', headline: 'No loss confirmed', detail: caveat };
    return { tone: 'ok', headline: 'Everything accounted for: nothing lost', detail: caveat };
  }
  // A single reason is already in the headline.
  const reasons =
    lossy.flatMap((view) => view.drops).length > 1 ? `${lossy.map(reasonList).join('; ')}.` : '';
  return {
    tone: recent.lost === 0 ? 'warn' : 'bad',
    headline: capital(lossy.map(lossSentence).join(', ')),
    detail: [reasons, lately(recent), caveat].filter((part) => part !== '').join(' '),
  };
}

function lately({ dropped, seconds }: Recent): string {
  const time = seconds >= 55 ? 'minute' : `${Math.max(1, seconds)} s`;
  return `${dropped > 0 ? exact(dropped) : 'None'} in the last ${time}.`;
}

/** Everything that was dropped since the start. */
export function totals(stages: readonly BudgetStage[]): Totals {
  const sum = (some: readonly BudgetStage[]): number =>
    some.reduce((all, stage) => all + stageView(stage).dropped, 0);
  return {
    dropped: sum(stages),
    lost: sum(stages.filter(({ stage }) => stage !== 'decode' && stage !== 'export')),
  };
}

const SAMPLES = 3;

/** Suppresses differences of counters read at different times: only a difference in several samples in a row is reported. */
export class Steady {
  private readonly seen = new Map<string, number[]>();

  settle(view: StageView): StageView {
    const samples = [...(this.seen.get(view.stage) ?? []), view.unexplained].slice(-SAMPLES);
    this.seen.set(view.stage, samples);
    const wrong = samples.length === SAMPLES && samples.every((unexplained) => unexplained !== 0);
    return { ...view, unexplained: wrong ? view.unexplained : 0 };
  }
}
