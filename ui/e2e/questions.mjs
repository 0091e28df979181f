// The ten questions of the tutorial, click by click, on a demo: docs/tutorial/ten-questions.md says what one sees.
import assert from 'node:assert/strict';
import { drawn, eventually, insist, open, Skipped, until, WAIT } from './wait.mjs';

/** A person at a page, whose clicks are counted. */
class Person {
  clicks = 0;

  constructor(page, base) {
    [this.page, this.base] = [page, base];
  }

  async start() {
    this.clicks = 0;
    // A page that is left for a moment begins anew.
    await open(this.page, this.base, 'sql');
    await open(this.page, this.base, 'overview');
    await this.page.locator('.verdict strong').waitFor(WAIT);
  }

  async click(target, options = {}) {
    this.clicks += 1;
    await target.click({ ...WAIT, ...options });
  }

  /** One click on something that moves: one that has missed is repeated, and counts once. */
  async clickUntil(click, hasWorked, what) {
    const { clicks } = this;
    await insist(
      async () => {
        this.clicks = clicks;
        await click();
      },
      hasWorked,
      what,
    );
  }

  async goTo(name) {
    await this.click(this.page.locator(`nav [data-page="${name}"]`));
  }
}

const rows = (page, panel) => page.locator(`.panel[aria-label="${panel}"] tbody tr`);

async function whyWasItSlow(person) {
  const { page } = person;
  await person.click(page.getByRole('button', { name: '1 h', exact: true }));
  // The flow that is clicked: another one may be the slowest until the hour has been read.
  await until(
    page,
    '.panel[aria-label="Slowest flows"] tbody tr',
    (text) => /→ h[78]:/.test(text),
    'a flow that the burst held up, as the slowest one',
  );
  await person.click(rows(page, 'Slowest flows').first().locator('a'));
  await until(page, '.flow-title h1', (text) => /→ h[78]:/.test(text), 'a flow that the burst held up');
  await until(
    page,
    '.path-strip',
    (text) => /spine1(9|1\d)(\.\d+)? ms/.test(text.replaceAll('\n', '')),
    'ten ms at spine1',
  );
  await drawn(page, '.panel[aria-label="Latency of each hop, stacked"]');
}

/** The right end of the first row, from the newest red cell to the left: what the flight recorder has. */
async function redCell(page) {
  return page.locator('.heat canvas').evaluate((canvas) => {
    const context = canvas.getContext('2d');
    const scale = canvas.width / canvas.clientWidth;
    for (let x = canvas.clientWidth - 20; x > canvas.clientWidth / 4; x -= 1) {
      const [red, green] = context.getImageData(x * scale, 10 * scale, 1, 1).data;
      if (red > 190 && green < 110) return x + 1;
    }
    return null;
  });
}

const VERDICT = /flows? filled it together/;

/** The flows of a burst, the one that filled most first; null: this is not the queue, or there are no reports of that time. */
async function burst(page) {
  const text = async (selector) =>
    (await page.locator(selector).first().textContent({ timeout: 5_000 })) ?? '';
  if (!/^spine1 (interface \S+ )?queue 4/.test(await text('.burst h3'))) return null;
  if (!VERDICT.test(await text('.burst .verdict-text'))) return null;
  return page.locator('.burst [aria-label="Flows in the queue"] tbody tr').allInnerTexts();
}

/** The four that sent the burst. */
const SENDERS = ['h1', 'h3', 'h4', 'h6'];

function senders(flows) {
  return flows
    .slice(0, 4)
    .map((text) => /^(h\d):70\d\d → h8:9000/.exec(text)?.[1] ?? text)
    .sort();
}

async function whoFilledIt(person) {
  const { page } = person;
  await person.goTo('queues');
  const canvas = page.locator('.heat canvas');
  await canvas.waitFor(WAIT);
  let flows = null;
  // The map moves on, and a burst may be at the edge of a column.
  await person.clickUntil(
    async () => {
      const x = await eventually(
        () => redCell(page),
        (found) => found !== null,
        'a burst',
      );
      await person.click(canvas, { position: { x, y: 10 } });
    },
    async () => {
      flows = await burst(page);
      return flows !== null && senders(flows).join() === SENDERS.join();
    },
    'the worst queue, and the four that sent the burst',
  );
  return flows;
}

async function whoSuffered(person) {
  const flows = await whoFilledIt(person);
  const waited = flows
    .map((text) => text.split(/\t+/))
    .filter(([, filled, , longest]) => filled === '0' && / ms$/.test(longest));
  assert.ok(waited.length > 0, `a flow that added nothing and waited: ${flows.join(' | ')}`);
}

async function whichLink(person) {
  const { page } = person;
  await person.goTo('topology');
  await person.click(page.getByRole('button', { name: 'Loss', exact: true }));
  const panel = '.panel[aria-label="Packet losses"]';
  await until(
    page,
    panel,
    (text) => /Most packets were lost at the link (spine1 → leaf1|leaf1 → spine1)/.test(text),
    'the link',
  );
  await until(page, panel, (text) => /link down/.test(text) && /queue full/.test(text), 'the reasons');
}

async function whatChanged(person) {
  const { page } = person;
  await person.goTo('paths');
  await until(
    page,
    '.step-summary',
    (text) => /changed path at .*(spine1 → spine2|spine2 → spine1)/.test(text),
    'the change',
  );
  await person.click(page.getByRole('button', { name: 'Earlier change' }));
  await until(page, '.paths-panel', (text) => /before/.test(text) && /after/.test(text), 'both paths');
}

async function onTheOtherPath(person) {
  const { page } = person;
  await person.goTo('paths');
  await person.click(page.locator('[aria-label="Flows of this change"] tbody a').first());
  const uses = '.panel[aria-label="Use of each path"]';
  await until(
    page,
    uses,
    (text) => /spine1/.test(text) && /spine2/.test(text) && /\d %/.test(text),
    'both paths with their shares',
  );
  await until(
    page,
    '.panel[aria-label="Latency of each hop"]',
    (text) => /p99/.test(text),
    'the latency of hops',
  );
}

async function whichDrops(person) {
  const { page } = person;
  await person.goTo('events');
  await person.click(page.locator('.chip', { hasText: 'drop' }));
  await until(
    page,
    '.event-list .sentence',
    (text) => /(link down|queue full|link_down|queue_full)/.test(text),
    'a reason',
  );
}

async function whatIsWrong(person) {
  const { page } = person;
  await person.goTo('alerts');
  const guilty = rows(page, 'Alerts')
    .filter({ hasText: 'deep queue' })
    .filter({ hasText: 'h8:9000' })
    .first();
  const title = page.locator('.panel[aria-label="Selected alert"] h3');
  await person.clickUntil(
    () => person.click(guilty),
    async () => /deep queue.*h8:9000/.test((await title.textContent({ timeout: 5_000 })) ?? ''),
    'the alert that was clicked',
  );
  const facts = '.panel[aria-label="Selected alert"] .facts';
  await until(
    page,
    facts,
    (text) => /queue occupancy .* > .* at (spine1|leaf\d) interface \S+ queue [34]/.test(text),
    'why it began',
  );
  await until(
    page,
    facts,
    (text) => /since\d{4}-/.test(text) && /times[\d\u202f]+ in the selected time/.test(text),
    'since when, how often',
  );
}

async function stricterRule(person) {
  const { page } = person;
  await person.goTo('alerts');
  await page.getByLabel('Condition of a rule').fill('flow_latency > 10ms');
  await person.click(page.getByRole('button', { name: 'Try', exact: true }));
  await until(page, '.trial-answer', (text) => /fired [\d\u202f]+ times/.test(text), 'how often');
}

async function canITrustIt(person) {
  const { page } = person;
  await until(page, '.verdict strong', (text) => /lost/.test(text), 'the sentence of the loss budget');
  await until(page, '.budget', (text) => /Network/.test(text) && /Store/.test(text), 'the stages');
}

const QUESTIONS = [
  ['why was h8 slow?', whyWasItSlow],
  ['who filled this queue?', whoFilledIt],
  ['who suffered from it?', whoSuffered],
  ['which link lost packets?', whichLink],
  ['what changed when the link failed?', whatChanged],
  ['is the flow slower on its other path?', onTheOtherPath],
  ['which packets were dropped, and why?', whichDrops],
  ['what is wrong, since when, and how often?', whatIsWrong],
  ['how often would a stricter rule have fired?', stricterRule],
  ['can I trust these numbers?', canITrustIt],
];

/** Each question with its answer, which the demo's script is, in at most three clicks. */
export async function questions(page, base) {
  if (!process.env.HOPWISE_URL) throw new Skipped('the mock is not the demo');
  const person = new Person(page, base);
  for (const [question, answer] of QUESTIONS) {
    await person.start();
    await answer(person);
    assert.ok(person.clicks <= 3, `${question} ${person.clicks} clicks`);
    console.log(`      ${question} ${person.clicks} clicks`);
  }
}
