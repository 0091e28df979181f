//! Bounded request queue of the manager's thread. A request is executed only if its client is still waiting, and at most once.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::clock::Now;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time,
};

/// Maximum number of waiting read-only requests of the API.
const MAX_QUESTIONS: usize = 48;
/// Maximum number of waiting changes of the API.
const MAX_CHANGES: usize = 16;
/// Maximum number of requests of the process itself: each of its tasks has one.
const MAX_OWN: usize = 8;
/// Time limit for a request to start.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, executed by the thread on its state at the present time, by both clocks.
pub(super) type Work<S> = Box<dyn FnOnce(&mut S, Now) + Send>;

/// The sender of requests to a thread with state `S`.
pub(super) struct Requests<S> {
    queue: mpsc::Sender<Work<S>>,
    /// Permits for read-only requests.
    questions: Arc<Semaphore>,
    /// Permits for changes, separate so that readers cannot use them up.
    changes: Arc<Semaphore>,
}

impl<S> Clone for Requests<S> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            questions: Arc::clone(&self.questions),
            changes: Arc::clone(&self.changes),
        }
    }
}

impl<S> fmt::Debug for Requests<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl<S: 'static> Requests<S> {
    /// Creates the sender of requests, and the receiver for the thread.
    pub(super) fn new() -> (Self, mpsc::Receiver<Work<S>>) {
        let (queue, work) = mpsc::channel(MAX_QUESTIONS + MAX_CHANGES + MAX_OWN);
        (
            Self {
                queue,
                questions: Arc::new(Semaphore::new(MAX_QUESTIONS)),
                changes: Arc::new(Semaphore::new(MAX_CHANGES)),
            },
            work,
        )
    }

    /// Runs a read-only request. Returns `None` if there are too many, the thread has ended, or it does not start in time.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.execute(Some(&self.questions), RESPONSE_TIMEOUT, question)
            .await
    }

    /// Runs a change. Returns `None` in the cases of [`Requests::ask`]; then nothing changes, now or later.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut S, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.execute(Some(&self.changes), RESPONSE_TIMEOUT, change).await
    }

    /// Runs a request of the process itself, which needs no permit.
    pub(super) async fn own<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S, Now) -> T + Send + 'static,
    ) -> Option<T> {
        self.execute(None, RESPONSE_TIMEOUT, work).await
    }

    /// Queues a request of the main thread; blocks while the queue is full. Returns `false` if the thread has ended.
    pub(super) fn post(&self, work: Work<S>) -> bool {
        self.queue.blocking_send(work).is_ok()
    }

    /// Queues `work` and waits for its result. `permits` limits the number of such requests.
    async fn execute<T: Send + 'static>(
        &self,
        permits: Option<&Arc<Semaphore>>,
        limit: Duration,
        work: impl FnOnce(&mut S, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = match permits {
            Some(permits) => Some(Arc::clone(permits).try_acquire_owned().ok()?),
            None => None,
        };
        let (reply, mut answer) = oneshot::channel();
        // Set by whichever comes first: the thread that starts the request, or the client that gives up.
        let claimed = Arc::new(AtomicBool::new(false));
        let claimed_by_thread = Arc::clone(&claimed);
        let work: Work<S> = Box::new(move |state, now| {
            // Skip the request if the client has given up.
            if !reply.is_closed() && !claimed_by_thread.swap(true, Ordering::AcqRel) {
                let _ = reply.send(work(state, now));
            }
            drop(permit);
        });
        self.queue.try_send(work).ok()?;
        match time::timeout(limit, &mut answer).await {
            Ok(answer) => answer.ok(),
            Err(_) if !claimed.swap(true, Ordering::AcqRel) => None,
            // The thread has started, so wait for the outcome.
            Err(_) => answer.await.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Executes everything that waits.
    fn execute(work: &mut mpsc::Receiver<Work<u32>>, state: &mut u32) -> usize {
        let mut executed = 0;
        while let Ok(work) = work.try_recv() {
            work(state, Now::read());
            executed += 1;
        }
        executed
    }

    #[test]
    fn what_was_given_up_is_not_executed_later() {
        let (requests, mut work) = Requests::<u32>::new();
        let mut state = 0;
        let add = |state: &mut u32, _| *state += 1;
        block_on(async {
            let late = requests
                .execute(Some(&requests.changes), Duration::ZERO, add)
                .await;
            assert_eq!(late, None);
            // Its client has gone.
            let gone = time::timeout(Duration::ZERO, requests.change(add)).await;
            assert!(gone.is_err());
        });
        assert_eq!((execute(&mut work, &mut state), state), (2, 0));
        // One that has begun is awaited, so that its answer is true.
        let answer = block_on(async {
            let asked = requests.clone();
            let asking = tokio::spawn(async move { asked.execute(None, Duration::ZERO, |_, _| 7).await });
            let work = work.recv().await.unwrap();
            work(&mut state, Now::read());
            asking.await.unwrap()
        });
        assert_eq!(answer, Some(7));
    }

    #[test]
    fn questions_keep_neither_changes_nor_the_process_out() {
        let (requests, mut work) = Requests::<u32>::new();
        let mut state = 0;
        block_on(async {
            let ask = || {
                let requests = requests.clone();
                tokio::spawn(async move { requests.ask(|state, _| *state).await })
            };
            let waiting: Vec<_> = (0..MAX_QUESTIONS).map(|_| ask()).collect();
            assert_eq!(ask().await.unwrap(), None, "one more");
            let add = |state: &mut u32, _| *state += 1;
            let (own, change) = (requests.clone(), requests.clone());
            let own = tokio::spawn(async move { own.own(add).await });
            let change = tokio::spawn(async move { change.change(add).await });
            tokio::task::yield_now().await;
            assert_eq!((execute(&mut work, &mut state), state), (MAX_QUESTIONS + 2, 2));
            for asked in waiting {
                assert_eq!(asked.await.unwrap(), Some(0));
            }
            assert_eq!((own.await.unwrap(), change.await.unwrap()), (Some(()), Some(())));
            let again = ask();
            tokio::task::yield_now().await;
            assert_eq!(execute(&mut work, &mut state), 1);
            assert_eq!(again.await.unwrap(), Some(2));
        });
    }
}
