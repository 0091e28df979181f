//! A slab allocator for runs of hops in the arena. It manages positions only; the arena's owner copies the contents.
//!
//! The arena consists of pages of [`PAGE`] hops. All runs of a page have the length of one size class; an empty page returns to
//! the pool that all classes share. Any mix of path lengths can therefore use all memory. If a class needs a page and the pool
//! is empty, the runs of a sparsely used page of another class move into free runs of that class. So when the arena counts as
//! full, at most about one page per class is unused, and one allocation copies at most one page.

/// Number of hops in a page.
pub(crate) const PAGE: usize = 256;

/// Lengths of runs, in hops. All are even, so that each run is aligned to a cache line (two hop states).
const CLASSES: [usize; 14] = [2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256];

/// Maximum number of runs in a page, reached by the first class.
const MAX_RUNS: usize = PAGE / CLASSES[0];

/// Number of pages of a class that a search for the emptiest visits.
const PAGES_PER_SEARCH: usize = 8;

/// Null value of a page number.
const NONE: u32 = u32::MAX;

/// A run of hops: its position and size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) class: u8,
}

impl Run {
    /// A run without hops, which belongs to no page.
    pub(crate) const EMPTY: Self = Self {
        start: 0,
        class: u8::MAX,
    };

    /// Returns the maximum number of hops in the run.
    pub(crate) fn capacity(self) -> usize {
        CLASSES.get(usize::from(self.class)).copied().unwrap_or(0)
    }

    /// Returns true if this run has the size class of a path of `hops` hops.
    pub(crate) fn fits(self, hops: usize) -> bool {
        if hops == 0 {
            self == Self::EMPTY
        } else {
            usize::from(self.class) == class_of(hops)
        }
    }
}

/// A run that moved; the owner copies `run.capacity()` hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Relocation {
    pub(crate) owner: u32,
    pub(crate) from: u32,
    pub(crate) run: Run,
}

#[derive(Clone, Debug)]
struct Page {
    /// Bit i: run i is free.
    free: u128,
    /// Neighbours in the list of the class's partly used pages; `next` also links the pool.
    next: u32,
    previous: u32,
    class: u8,
    used: u8,
}

/// The allocator of runs; see the module documentation.
#[derive(Debug)]
pub(crate) struct Runs {
    pages: Vec<Page>,
    /// The owner of each run: [`MAX_RUNS`] entries per page.
    owners: Vec<u32>,
    max_pages: usize,
    /// Position of the first page.
    base: usize,
    /// Head of the list of empty pages.
    empty_pages: u32,
    /// Head of the list of partly used pages of each class.
    partly_used: [u32; CLASSES.len()],
    /// Number of free runs of each class.
    free_runs: [usize; CLASSES.len()],
    used_hops: usize,
}

impl Runs {
    /// Creates an allocator of at most `max_pages` pages, the first of which begins at `base`.
    pub(crate) fn with_pages(max_pages: usize, base: usize) -> Self {
        Self {
            pages: Vec::with_capacity(max_pages),
            owners: Vec::with_capacity(max_pages * MAX_RUNS),
            max_pages,
            base,
            empty_pages: NONE,
            partly_used: [NONE; CLASSES.len()],
            free_runs: [0; CLASSES.len()],
            used_hops: 0,
        }
    }

    /// Returns the end of the pages used so far.
    pub(crate) fn end(&self) -> usize {
        self.base + self.pages.len() * PAGE
    }

    /// Returns the number of hops in all allocated runs.
    pub(crate) fn used_hops(&self) -> usize {
        self.used_hops
    }

    /// Returns the number of hops in all pages.
    pub(crate) fn capacity(&self) -> usize {
        self.max_pages * PAGE
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * size_of::<Page>() + self.owners.len() * size_of::<u32>()
    }

    /// Returns true if a run for `hops` hops is available, possibly after moving others.
    pub(crate) fn has_room(&self, hops: usize) -> bool {
        hops == 0
            || self.empty_pages != NONE
            || self.pages.len() < self.max_pages
            || self.partly_used[class_of(hops)..]
                .iter()
                .any(|page| *page != NONE)
            || self.sparsest().is_some()
    }

    /// Allocates a run for `hops` hops, or the longest shorter one; [`Run::EMPTY`] if no run is free. Calls `relocate` for each
    /// run that moves.
    pub(crate) fn acquire(&mut self, hops: usize, owner: u32, mut relocate: impl FnMut(Relocation)) -> Run {
        if hops == 0 {
            return Run::EMPTY;
        }
        let class = class_of(hops);
        if self.partly_used[class] == NONE && (self.has_page() || self.empty_page(&mut relocate)) {
            self.add_page(class);
        }
        let longer = class..CLASSES.len();
        let shorter = (0..class).rev();
        longer
            .chain(shorter)
            .find_map(|class| self.allocate_in(class, owner))
            .unwrap_or(Run::EMPTY)
    }

    pub(crate) fn release(&mut self, run: Run) {
        let class = usize::from(run.class);
        let Some(length) = CLASSES.get(class) else { return };
        let position = run.start as usize - self.base;
        let page_index = position / PAGE;
        let page = &mut self.pages[page_index];
        let was_full = page.free == 0;
        page.free |= 1 << (position % PAGE / length);
        page.used -= 1;
        let is_empty = page.used == 0;
        self.free_runs[class] += 1;
        self.used_hops -= length;
        match (was_full, is_empty) {
            (true, false) => self.link(page_index),
            (false, true) => {
                self.unlink(page_index);
                self.return_page(page_index);
            }
            (true, true) => self.return_page(page_index),
            (false, false) => {}
        }
    }

    fn has_page(&self) -> bool {
        self.empty_pages != NONE || self.pages.len() < self.max_pages
    }

    /// Allocates a free run from a class's partly used pages.
    fn allocate_in(&mut self, class: usize, owner: u32) -> Option<Run> {
        let page_index = self.partly_used[class] as usize;
        let page = self.pages.get_mut(page_index)?;
        let number = page.free.trailing_zeros() as usize;
        page.free &= page.free - 1;
        page.used += 1;
        if page.free == 0 {
            self.unlink(page_index);
        }
        self.free_runs[class] -= 1;
        self.used_hops += CLASSES[class];
        self.owners[page_index * MAX_RUNS + number] = owner;
        Some(Run {
            start: self.start(page_index, number * CLASSES[class]),
            class: class as u8,
        })
    }

    fn start(&self, page: usize, hop: usize) -> u32 {
        (self.base + page * PAGE + hop) as u32
    }

    /// Assigns an empty page to a class. The caller has checked that there is one.
    fn add_page(&mut self, class: usize) {
        let runs = PAGE / CLASSES[class];
        let free = u128::MAX >> (128 - runs);
        let page = Page {
            free,
            next: NONE,
            previous: NONE,
            class: class as u8,
            used: 0,
        };
        let page_index = self.empty_pages as usize;
        if let Some(pooled) = self.pages.get_mut(page_index) {
            self.empty_pages = pooled.next;
            *pooled = page;
            self.link(page_index);
        } else {
            self.pages.push(page);
            self.owners.resize(self.pages.len() * MAX_RUNS, NONE);
            self.link(self.pages.len() - 1);
        }
        self.free_runs[class] += runs;
    }

    /// Returns a page without used runs to the pool. The page is already unlinked.
    fn return_page(&mut self, page_index: usize) {
        let class = usize::from(self.pages[page_index].class);
        self.free_runs[class] -= PAGE / CLASSES[class];
        self.pages[page_index].next = self.empty_pages;
        self.empty_pages = page_index as u32;
    }

    /// Returns the class with the most free memory in runs, if that amounts to at least a page.
    fn sparsest(&self) -> Option<usize> {
        (0..CLASSES.len())
            .filter(|&class| self.free_runs[class] >= PAGE / CLASSES[class])
            .max_by_key(|&class| self.free_runs[class] * CLASSES[class])
    }

    /// Frees a page by moving its runs to other pages of its class. Returns `false` if no class has room for that.
    fn empty_page(&mut self, relocate: &mut impl FnMut(Relocation)) -> bool {
        let Some(class) = self.sparsest() else {
            return false;
        };
        let pages = std::iter::successors(Some(self.partly_used[class]), |page_index| {
            self.pages.get(*page_index as usize).map(|page| page.next)
        });
        let pages = pages
            .take(PAGES_PER_SEARCH)
            .filter(|page_index| *page_index != NONE);
        let Some(page_index) = pages.min_by_key(|page_index| self.pages[*page_index as usize].used) else {
            return false;
        };
        let page_index = page_index as usize;
        self.unlink(page_index);
        let length = CLASSES[class];
        let free = self.pages[page_index].free;
        for number in (0..PAGE / length).filter(|number| free >> number & 1 == 0) {
            let owner = self.owners[page_index * MAX_RUNS + number];
            // Other pages have enough free runs: the free runs of all pages amount to at least a page.
            let Some(run) = self.allocate_in(class, owner) else {
                continue;
            };
            self.used_hops -= length;
            // The old run counts as free until the page returns to the pool.
            self.free_runs[class] += 1;
            relocate(Relocation {
                owner,
                from: self.start(page_index, number * length),
                run,
            });
        }
        self.pages[page_index].used = 0;
        self.return_page(page_index);
        true
    }

    /// Puts a page first in its class's list: it was full or is new, so it should fill up before others.
    fn link(&mut self, page_index: usize) {
        let class = usize::from(self.pages[page_index].class);
        let next = std::mem::replace(&mut self.partly_used[class], page_index as u32);
        (self.pages[page_index].next, self.pages[page_index].previous) = (next, NONE);
        if let Some(next) = self.pages.get_mut(next as usize) {
            next.previous = page_index as u32;
        }
    }

    fn unlink(&mut self, page_index: usize) {
        let Page {
            next,
            previous,
            class,
            ..
        } = self.pages[page_index];
        match self.pages.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.partly_used[usize::from(class)] = next,
        }
        if let Some(next) = self.pages.get_mut(next as usize) {
            next.previous = previous;
        }
    }
}

/// Returns the size class of a path of this many hops, at most [`PAGE`].
fn class_of(hops: usize) -> usize {
    CLASSES
        .iter()
        .position(|length| hops <= *length)
        .unwrap_or(CLASSES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Jitter;

    /// Owners with their stored contents, to check the invariants of the allocator after each step.
    struct Model {
        runs: Runs,
        arena: Vec<u64>,
        held: Vec<(Run, Vec<u64>)>,
        moved: usize,
    }

    impl Model {
        fn with_pages(pages: usize, owners: usize) -> Self {
            Self {
                runs: Runs::with_pages(pages, 1),
                arena: vec![0; 1 + pages * PAGE],
                held: vec![(Run::EMPTY, Vec::new()); owners],
                moved: 0,
            }
        }

        /// Replaces an owner's run by one for `hops` hops, filled with `seed`. Returns its capacity.
        fn set(&mut self, owner: usize, hops: usize, seed: u64) -> usize {
            let Self {
                runs,
                arena,
                held,
                moved,
            } = self;
            runs.release(held[owner].0);
            held[owner] = (Run::EMPTY, Vec::new());
            let before = *moved;
            let run = runs.acquire(hops, owner as u32, |relocation| {
                let from = relocation.from as usize;
                let to = relocation.run.start as usize;
                assert_eq!(
                    held[relocation.owner as usize].0.start as usize, from,
                    "the owner's run"
                );
                arena.copy_within(from..from + relocation.run.capacity(), to);
                held[relocation.owner as usize].0 = relocation.run;
                *moved += relocation.run.capacity();
            });
            assert!(*moved - before <= PAGE, "{} hops moved at once", *moved - before);
            let content: Vec<u64> = (0..run.capacity().min(hops) as u64)
                .map(|hop| seed << 9 | hop)
                .collect();
            let start = run.start as usize;
            arena[start..start + content.len()].copy_from_slice(&content);
            held[owner] = (run, content);
            held[owner].0.capacity()
        }

        /// No two runs overlap, everything stored is still there, and the sums agree.
        fn check(&self) {
            let mut taken = vec![false; self.arena.len()];
            for (run, content) in &self.held {
                let start = run.start as usize;
                assert_eq!(&self.arena[start..start + content.len()], &content[..]);
                for hop in &mut taken[start..start + run.capacity()] {
                    assert!(!std::mem::replace(hop, true), "two runs overlap");
                }
            }
            let used = taken.iter().filter(|taken| **taken).count();
            assert_eq!(self.runs.used_hops(), used);
            let free: usize = (0..CLASSES.len()).map(|class| self.runs.free_runs[class]).sum();
            let listed: u32 = self.partial_pages().map(|page| page.free.count_ones()).sum();
            assert_eq!(free, listed as usize);
        }

        fn partial_pages(&self) -> impl Iterator<Item = &Page> {
            let page = |at: u32| self.runs.pages.get(at as usize);
            let list = move |first: u32| std::iter::successors(page(first), move |at| page(at.next));
            self.runs.partly_used.iter().flat_map(move |first| list(*first))
        }
    }

    #[test]
    fn random_mixes_never_overlap_and_keep_what_was_stored() {
        let mut moved = 0;
        for (pages, most) in [(4, 16), (16, 64), (40, 256), (3, 256)] {
            let mut model = Model::with_pages(pages, 300);
            let mut random = Jitter::new(pages as u64);
            let mut below = |bound: usize| (random.around(1 << 30) as usize >> 4) % bound;
            for step in 0..6000_u64 {
                // Phases of short paths alternate with phases of long ones.
                let most = if step / 1000 % 2 == 0 { most } else { 12 };
                let hops = if below(4) == 0 { 0 } else { 1 + below(most) };
                model.set(below(300), hops, step);
                if step % 16 == 0 {
                    model.check();
                }
            }
            moved += model.moved;
        }
        assert!(moved > 1000, "{moved} hops moved");
    }

    #[test]
    fn each_length_alone_fills_the_arena() {
        for length in (1..=16).chain([24, 32, 48, 64, 128, 250, 256]) {
            let mut model = Model::with_pages(8, 2000);
            let each = CLASSES[class_of(length)];
            let room = 8 * (PAGE / each);
            let stored = |model: &mut Model, owner| model.set(owner, length, owner as u64);
            assert!(
                (0..room.min(2000)).all(|owner| stored(&mut model, owner) >= length),
                "{length} hops"
            );
            if room < 2000 {
                assert_eq!(stored(&mut model, room), 0, "{length} hops");
                assert!(!model.runs.has_room(length));
            }
            model.check();
        }
    }

    #[test]
    fn a_class_gets_the_pages_that_others_use_sparsely() {
        let mut model = Model::with_pages(8, 2000);
        for owner in 0..8 * 64 {
            model.set(owner, 4, 1);
        }
        // Every second run is freed: each page stays half used.
        for owner in (0..8 * 64).step_by(2) {
            model.set(owner, 0, 0);
        }
        for owner in 600..604 {
            assert!(model.runs.has_room(200));
            assert_eq!(model.set(owner, 200, 2), 256);
        }
        assert!(!model.runs.has_room(200));
        assert_eq!((model.set(605, 200, 3), model.runs.used_hops()), (0, 8 * PAGE));
        model.check();
    }

    #[test]
    fn without_a_page_a_longer_run_is_used_and_then_a_shorter_one() {
        let mut model = Model::with_pages(2, 400);
        assert_eq!((model.set(0, 128, 1), model.set(1, 4, 1)), (128, 4));
        assert_eq!(model.set(2, 6, 1), 128, "the rest of the page of long runs");
        assert_eq!(model.set(3, 6, 1), 4, "a shorter run when no other is left");
        model.check();
    }

    #[test]
    fn runs_begin_with_a_cache_line() {
        assert!(CLASSES.iter().all(|length| length % 2 == 0));
    }
}
