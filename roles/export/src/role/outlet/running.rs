//! The set of running partition tasks. A task that panicked is restarted.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use export::record::Stream;
use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::{self, Instant},
};

use super::super::ExportStatus;

type Key = (Stream, i32);

/// The tasks of all partitions.
#[derive(Default)]
pub(super) struct Running {
    tasks: JoinSet<()>,
    /// All partitions ever started, each with its task while that is running, and its status.
    known: BTreeMap<Key, (Option<Id>, Arc<ExportStatus>)>,
}

impl Running {
    pub(super) fn has(&self, key: Key) -> bool {
        self.known.get(&key).is_some_and(|(task, _)| task.is_some())
    }

    /// Returns whether any partition of a stream is running.
    pub(super) fn has_any(&self, stream: Stream) -> bool {
        self.known
            .iter()
            .any(|((of, _), (task, _))| *of == stream && task.is_some())
    }

    /// Returns the number of running partitions.
    pub(super) fn len(&self) -> usize {
        self.known.values().filter(|(task, _)| task.is_some()).count()
    }

    /// Returns the status of a partition that was started before.
    pub(super) fn status(&self, key: Key) -> Option<Arc<ExportStatus>> {
        self.known.get(&key).map(|(_, status)| Arc::clone(status))
    }

    pub(super) fn start(
        &mut self,
        key: Key,
        status: Arc<ExportStatus>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.known.insert(key, (Some(id), status));
    }

    /// Waits until `until`, or only for `pause` after a task panicked. Returns `true` if everything is to stop.
    pub(super) async fn rest(
        &mut self,
        mut until: Instant,
        pause: Duration,
        stopped: &mut watch::Receiver<bool>,
    ) -> bool {
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return true,
                Some(ended) = self.tasks.join_next_with_id() => {
                    if self.ended(ended) {
                        until = until.min(Instant::now() + pause);
                    }
                }
                () = time::sleep_until(until) => return false,
            }
        }
    }

    /// Records the end of a task. Returns whether it must be restarted.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) -> bool {
        let (id, has_panicked) = match &ended {
            Ok((id, ())) => (*id, false),
            Err(error) => (error.id(), true),
        };
        let known = self.known.values_mut().find(|(task, _)| *task == Some(id));
        if let Some((task, status)) = known {
            *task = None;
            if has_panicked {
                let words = "a fault in hopwise: the task of this partition ended, and is restarted";
                status.fails(Some(words.to_owned()));
            }
        }
        has_panicked
    }

    /// Waits until all tasks have ended.
    pub(super) async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::lock::lock;

    #[test]
    fn a_task_that_panics_is_seen_and_started_again() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(panics());
    }

    async fn panics() {
        let mut running = Running::default();
        let status = Arc::new(ExportStatus {
            export: "outlet".to_owned(),
            kind: "clickhouse",
            authority: String::new(),
            stream: Stream::Drops,
            partition: Some(1),
            is_topic: false,
            share: crate::settings::Share::default(),
            state: std::sync::Mutex::default(),
        });
        let (stop, mut stopped) = watch::channel(false);
        let (key, other) = ((Stream::Drops, 1), (Stream::Drops, 2));
        running.start(other, Arc::clone(&status), std::future::pending());
        running.start(key, Arc::clone(&status), async { panic!("a test") });
        // An hour, unless it is seen.
        let hour = Duration::from_secs(3600);
        let rest = running.rest(Instant::now() + hour, Duration::from_millis(1), &mut stopped);
        assert_eq!(time::timeout(Duration::from_secs(60), rest).await, Ok(false));
        assert_eq!([running.has(key), running.has(other)], [false, true]);
        assert_eq!(running.len(), 1);
        let words = lock(&status.state).last_error.clone().unwrap();
        assert!(words.contains("is restarted"), "{words}");
        let again = running.status(key).unwrap();
        running.start(key, again, std::future::ready(()));
        assert!(running.has(key));
        stop.send(true).unwrap();
        assert!(running.rest(Instant::now() + hour, hour, &mut stopped).await);
    }
}
