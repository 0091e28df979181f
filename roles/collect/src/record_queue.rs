//! A blocking multi-producer queue around a [`Backlog`], with one receiver and balanced counters.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use collector::{Batch, flight::Recording};
use store::ReportRow;

use crate::backlog::{Backlog, Record, RecordBatch, RuleNames, Shed, records};
use runtime::lock::lock;

/// Counters of a queue. They balance: `offered = delivered + shed + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records that senders offered, including those that still wait for space.
    pub offered: u64,
    /// Records that the receiver has processed.
    pub delivered: u64,
    /// Records shed, by reason.
    pub shed: Shed,
    /// Bytes in the queue.
    pub bytes: u64,
}

impl Account {
    /// Returns the number of records that wait for space, are queued, or are being processed.
    pub fn queued(&self) -> u64 {
        self.offered - self.delivered - self.shed.sum()
    }
}

/// State of the queue, under one lock.
#[derive(Debug)]
struct Inner {
    backlog: Backlog,
    offered: u64,
    delivered: u64,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Signaled when there are records, or when the last sender ends.
    filled: Condvar,
    /// Signaled when there is space, or when the receiver ends.
    emptied: Condvar,
}

/// The sending end of the queue; the queue ends when all clones are dropped.
#[derive(Debug)]
pub struct RecordSender(Arc<Shared>);

/// The receiving end of the queue.
#[derive(Debug)]
pub struct RecordReceiver(Arc<Shared>);

/// Handle to the counters, for display.
#[derive(Clone, Debug)]
pub struct QueueGauge(Arc<Shared>);

/// Creates a queue for `limit` bytes of records.
pub fn record_queue(limit: usize) -> (RecordSender, RecordReceiver) {
    let inner = Inner {
        backlog: Backlog::new(limit),
        offered: 0,
        delivered: 0,
        senders: 1,
        closed: false,
    };
    let shared = Arc::new(Shared {
        inner: Mutex::new(inner),
        filled: Condvar::new(),
        emptied: Condvar::new(),
    });
    (RecordSender(Arc::clone(&shared)), RecordReceiver(shared))
}

impl RecordSender {
    /// Queues the records of a batch. Waits for space if `block` is set; otherwise sheds records that do not fit.
    pub fn send(&self, batch: &Batch, rules: &RuleNames, block: bool) {
        self.put(batch.len() as u64, records(batch), rules, block);
    }

    /// Queues reports. Waits for space if `block` is set; otherwise sheds reports that do not fit.
    pub fn send_reports(&self, rows: Vec<ReportRow>, block: bool) {
        let rules = RuleNames::from([]);
        self.put(
            rows.len() as u64,
            rows.into_iter().map(Record::Report),
            &rules,
            block,
        );
    }

    /// Queues recordings. Waits for space if `block` is set; otherwise sheds recordings that do not fit.
    pub fn send_recordings(&self, recordings: Vec<Recording>, block: bool) {
        let rules = RuleNames::from([]);
        let count = recordings.len() as u64;
        self.put(
            count,
            recordings.into_iter().map(Record::Recording),
            &rules,
            block,
        );
    }

    fn put<'a>(&self, count: u64, records: impl Iterator<Item = Record<'a>>, rules: &RuleNames, block: bool) {
        let mut inner = lock(&self.0.inner);
        inner.offered += count;
        for record in records {
            while block && !inner.closed && inner.backlog.is_full_for(&record) {
                self.0.filled.notify_one();
                inner = wait(&self.0.emptied, inner);
            }
            if inner.closed {
                inner.backlog.refuse(1);
            } else if block {
                inner.backlog.put(record, rules);
            } else {
                inner.backlog.offer(record, rules);
            }
        }
        drop(inner);
        self.0.filled.notify_one();
    }

    /// Returns the counters for display.
    pub fn gauge(&self) -> QueueGauge {
        QueueGauge(Arc::clone(&self.0))
    }
}

impl Clone for RecordSender {
    fn clone(&self) -> Self {
        lock(&self.0.inner).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for RecordSender {
    fn drop(&mut self) {
        lock(&self.0.inner).senders -= 1;
        self.0.filled.notify_one();
    }
}

impl RecordReceiver {
    /// Passes records to `process` until all senders are dropped and the queue is empty.
    pub fn run(self, mut process: impl FnMut(RecordBatch)) {
        loop {
            let mut inner = lock(&self.0.inner);
            let batch = loop {
                match inner.backlog.pop() {
                    Some(batch) => break batch,
                    None if inner.senders == 0 => return,
                    None => inner = wait(&self.0.filled, inner),
                }
            };
            drop(inner);
            self.0.emptied.notify_all();
            let records = batch.count();
            process(batch);
            lock(&self.0.inner).delivered += records;
        }
    }
}

impl Drop for RecordReceiver {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.closed = true;
        while let Some(batch) = inner.backlog.pop() {
            inner.backlog.refuse(batch.count());
        }
        drop(inner);
        self.0.emptied.notify_all();
    }
}

impl QueueGauge {
    /// Returns a consistent copy of the counters.
    pub fn account(&self) -> Account {
        let inner = lock(&self.0.inner);
        let Inner {
            offered, delivered, ..
        } = *inner;
        let shed = inner.backlog.shed();
        let bytes = inner.backlog.bytes() as u64;
        Account {
            offered,
            delivered,
            shed,
            bytes,
        }
    }
}

fn wait<'m>(condition: &Condvar, inner: MutexGuard<'m, Inner>) -> MutexGuard<'m, Inner> {
    // The counters are valid after each statement, so a poisoned lock is harmless.
    condition.wait(inner).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use collector::{Loss, Output};

    use super::*;

    fn batch(count: u64) -> Batch {
        let mut batch = Batch::with_capacity(1024);
        for lost in 0..count {
            let source = [1; 16];
            batch.loss(&Loss {
                ts: 0,
                node: None,
                source,
                hw_id: 0,
                lost,
                reordered: 0,
                duplicated: 0,
            });
        }
        batch
    }

    #[test]
    fn a_sender_that_blocks_loses_nothing() {
        let (sender, receiver) = record_queue(1_000);
        let gauge = sender.gauge();
        let reader = thread::spawn(move || {
            let mut seen = Vec::new();
            receiver.run(|batch| {
                if let RecordBatch::Results(batch, _) = batch {
                    seen.extend(batch.losses().iter().map(|loss| loss.lost));
                }
            });
            seen
        });
        sender.clone().send(&batch(1_000), &RuleNames::from([]), true);
        drop(sender);
        assert!(reader.join().unwrap().into_iter().eq(0..1_000));
        let account = gauge.account();
        let expected = Account {
            offered: 1_000,
            delivered: 1_000,
            ..Account::default()
        };
        assert_eq!((account, account.queued()), (expected, 0));
    }

    #[test]
    fn records_are_counted_when_nobody_takes_them_out() {
        let (sender, receiver) = record_queue(1 << 20);
        sender.send(&batch(5), &RuleNames::from([]), true);
        assert_eq!(sender.gauge().account().queued(), 5);
        drop(receiver);
        sender.send(&batch(4), &RuleNames::from([]), true);
        let account = sender.gauge().account();
        assert_eq!(
            (
                account.offered,
                account.shed.full,
                account.queued(),
                account.bytes
            ),
            (9, 9, 0, 0)
        );
    }
}
