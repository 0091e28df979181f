// Debian's Chromium under playwright-core, without access to other hosts.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { WAIT } from './wait.mjs';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function findChromium() {
  return [process.env.CHROMIUM, ...PLACES].find((path) => path && existsSync(path)) ?? null;
}

/** A browser with an empty profile; `close` removes the profile. */
export async function launch(executablePath, options) {
  const profile = mkdtempSync(join(tmpdir(), 'hopwise-e2e-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    args: FLAGS,
    headless: true,
    ...options,
  });
  context.setDefaultTimeout(WAIT.timeout);
  return {
    context,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
