//! Sentences that the user must see about an answer, such as about damaged files of its time. They are collected while a response is
//! made, because answers have many forms.

use std::{cell::RefCell, collections::BTreeSet};

tokio::task_local! {
    static NOTES: RefCell<BTreeSet<String>>;
}

/// Adds notes to the response that this task makes.
pub(crate) fn add(notes: Vec<String>) {
    // Outside a response nobody reads them.
    let _ = NOTES.try_with(|all| all.borrow_mut().extend(notes));
}

/// Makes a response. Returns it with the notes of its answers.
pub async fn collect<T>(response: impl Future<Output = T>) -> (T, BTreeSet<String>) {
    let made = async {
        let response = response.await;
        (response, NOTES.with(RefCell::take))
    };
    NOTES.scope(RefCell::default(), made).await
}
