//! What is counted of the steps that libraries make.

use std::ops::AddAssign;

/// How many steps libraries make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibrarySteps {
    /// Products by cuBLASLt.
    pub products: u64,
    /// Convolutions by cuDNN.
    pub convolutions: u64,
    /// Attention by cuDNN.
    pub attentions: u64,
}

impl LibrarySteps {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { products, convolutions, attentions } = self;
        products + convolutions + attentions
    }
}

impl AddAssign for LibrarySteps {
    fn add_assign(&mut self, other: Self) {
        let Self { products, convolutions, attentions } = other;
        self.products += products;
        self.convolutions += convolutions;
        self.attentions += attentions;
    }
}
