// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by scripts/p4-tna-tables: Timer's frame, another's register, postcards that it holds, R less one; what becomes of it.
(TIMER, 0, 1, _) : send_late(1); (STOP, 0, 1, _) : send_stopped(1); (NO_TIMER, 1, 1, _) : send_evicted(1);
(NO_TIMER, 0, 1, 1) : send_full(2); (TIMER, 0, 2, _) : send_late(2); (STOP, 0, 2, _) : send_stopped(2);
(NO_TIMER, 1, 2, _) : send_evicted(2); (NO_TIMER, 0, 2, 2) : send_full(3); (TIMER, 0, 3, _) : send_late(3);
(STOP, 0, 3, _) : send_stopped(3); (NO_TIMER, 1, 3, _) : send_evicted(3); (NO_TIMER, 0, 3, 3) : send_full(4);
(TIMER, 0, 4, _) : send_late(4); (STOP, 0, 4, _) : send_stopped(4); (NO_TIMER, 1, 4, _) : send_evicted(4);
(NO_TIMER, 0, 4, 4) : send_full(5); (NO_TIMER, 1, 0, _) : wait(1); (NO_TIMER, 0, 0, _) : wait(1);
(NO_TIMER, 0, 1, _) : wait(2); (NO_TIMER, 0, 2, _) : wait(4); (NO_TIMER, 0, 3, _) : wait(8);
