//! Every vector of `vectors/`, read, written, cut and spoilt.

mod support;

use support::{meaning, vectors};

#[test]
fn every_vector_means_what_it_says() {
    let mut wrong = 0;
    for vector in vectors::all() {
        let got = meaning::of(&vector);
        if got != vector.expect {
            wrong += 1;
            println!(
                "{}\n  expected {}\n  got      {}",
                vector.name,
                vector.expect.join("\n           "),
                got.join("\n           ")
            );
        }
    }
    assert_eq!(wrong, 0, "vectors that mean something else");
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = vectors::all().into_iter().map(|vector| vector.name).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
