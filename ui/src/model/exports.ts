import type { Export } from '../api/generated';
import { count } from '../lib/format';

/** Whether an export works, in words. */
export function health(one: Export): { text: string; class?: string; title?: string } {
  if (one.last_error !== null) return { text: one.last_error, class: 'bad', title: one.last_error };
  if (one.unsaved > 0 && one.last_success === null) {
    return { text: 'the cursor cannot be saved', class: 'bad' };
  }
  if (one.waiting === 0) return { text: 'all records sent', class: 'good' };
  if (one.requests === 0) return { text: 'waiting for the first batch' };
  return { text: `sending, ${count(one.waiting)} pending` };
}
