//! Long lists in pieces, so that what is there stays where it is while they grow.

/// How many a piece has.
const PIECE: usize = 1 << 10;

/// A list in pieces, none of which is empty.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<T>(Vec<Vec<T>>);

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Pieces<T> {
    /// How many it has.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Puts others behind, in their own pieces.
    pub(crate) fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    fn push(&mut self, one: T) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(one),
            _ => {
                // Many lists have a few alone.
                let room = if self.0.is_empty() { 0 } else { PIECE };
                let mut piece = Vec::with_capacity(room);
                piece.push(one);
                self.0.push(piece);
            }
        }
    }
}

/// Piece by piece.
impl<T> IntoIterator for Pieces<T> {
    type Item = Vec<T>;
    type IntoIter = std::vec::IntoIter<Vec<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T> Extend<T> for Pieces<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|one| self.push(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_order() {
        let mut all = Pieces::default();
        for part in [0..1, 1..3_000, 3_000..3_000, 3_000..5_000] {
            all.extend(part);
        }
        let mut later = Pieces::default();
        later.extend(5_000..5_001);
        all.append(later);
        assert_eq!(all.len(), 5_001);
        assert!(all.0.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
        assert!(all.into_iter().flatten().eq(0..5_001));
    }
}
