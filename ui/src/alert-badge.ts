import { ApiError, get } from './api/client';
import type { Alerts } from './api/types';
import { poll } from './api/poll';
import { h, setText, show } from './lib/dom';
import { plural } from './lib/format';
import { session } from './session';

const EVERY_MS = 10_000;
/** In a console it is a question about weeks. */
const CONSOLE_MS = 60_000;

/** Beside the tab of the alerts: how many fire not acknowledged. */
export function alertBadge(tab: HTMLElement): void {
  const number = h('span', { class: 'badge' });
  show(number, false);
  tab.append(number);
  const polled = poll<Alerts>({
    intervalMs: () => (session.console ? CONSOLE_MS : EVERY_MS),
    request: (signal) => get<Alerts>('alerts', { state: 'firing', limit: 1 }, signal),
    show({ unacknowledged }) {
      show(number, unacknowledged > 0);
      setText(number, unacknowledged > 999 ? '999+' : String(unacknowledged));
      const what = session.console ? 'firing, as exported' : 'not acknowledged';
      number.title = `${plural(unacknowledged, 'alert')} ${what}`;
    },
    failed(error) {
      // There is no store in this program.
      show(number, false);
      if (error instanceof ApiError && error.status === 404) polled.stop();
    },
  });
}
