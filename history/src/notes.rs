//! Warnings about query results, such as about damaged files. They are collected per response in a task-local, because queries
//! return many different types.

use std::{cell::RefCell, collections::BTreeSet};

tokio::task_local! {
    static NOTES: RefCell<BTreeSet<String>>;
}

/// Adds warnings to the response of the current task.
pub fn add(notes: Vec<String>) {
    // Fails outside a response, where nobody reads them.
    let _ = NOTES.try_with(|all| all.borrow_mut().extend(notes));
}

/// Awaits a response. Returns it with the warnings of the queries that it made.
pub async fn collect<T>(response: impl Future<Output = T>) -> (T, BTreeSet<String>) {
    let scoped = async {
        let response = response.await;
        (response, NOTES.with(RefCell::take))
    };
    NOTES.scope(RefCell::default(), scoped).await
}
