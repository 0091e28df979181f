//! A small cache of values that are computed once per shape of report, such as the offsets of its items.

/// Values by shape. Few shapes are in use, since sources rarely change their instructions; the oldest is evicted.
#[derive(Debug)]
pub(crate) struct Shapes<T> {
    /// Cached shapes and their values, up to [`Shapes::MAX_SHAPES`].
    known: Vec<(u64, T)>,
    /// The shape found last, and its index.
    latest: (u64, u8),
    next: usize,
}

impl<T> Shapes<T> {
    /// Maximum number of cached shapes; `add` then replaces the oldest.
    const MAX_SHAPES: usize = 32;

    pub(crate) fn new() -> Self {
        Self {
            known: Vec::with_capacity(Self::MAX_SHAPES),
            latest: (u64::MAX, 0),
            next: 0,
        }
    }

    /// Returns the index of a shape, or `None` if it is not cached.
    #[inline(always)]
    pub(crate) fn find(&mut self, shape: u64) -> Option<u8> {
        if self.latest.0 == shape {
            Some(self.latest.1)
        } else {
            self.search(shape)
        }
    }

    #[inline(never)]
    fn search(&mut self, shape: u64) -> Option<u8> {
        let at = self.known.iter().position(|(known, _)| *known == shape)? as u8;
        self.latest = (shape, at);
        Some(at)
    }

    /// Adds a shape, and returns its index. It may evict a shape whose index [`Shapes::find`] returned earlier.
    pub(crate) fn add(&mut self, shape: u64, made: T) -> u8 {
        let at = self.next;
        match self.known.get_mut(at) {
            Some(old) => *old = (shape, made),
            None => self.known.push((shape, made)),
        }
        (self.latest, self.next) = ((shape, at as u8), (at + 1) % Self::MAX_SHAPES);
        at as u8
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u8) -> Option<&T> {
        self.known.get(usize::from(at)).map(|(_, made)| made)
    }
}
