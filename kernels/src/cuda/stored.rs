//! Attention whose scores are stored.

use super::{
    attention::extents,
    draft::{Draft, Shape, adding, extent},
    form::{Form, Role},
    source::STORED,
};
use crate::{
    attention::Heads,
    store::Store,
    stored::{Mix, MixBackward, Scores},
};
use roundelay_schedule::Bytes;

/// One block for each row of `of` heads.
fn write(draft: &mut Draft, name: &str, heads: &Heads, of: usize, store: Store) {
    let rows = heads.batch * of * heads.sequence;
    let shape =
        Shape { grid: [extent(rows), 1, 1], block: [128, 1, 1], shared: Bytes(0) };
    let operands: [_; 3] = draft.operands(0);
    let extents = extents(heads).into_iter().chain([adding(store)]);
    let arguments = operands.into_iter().chain(extents).collect();
    draft.narrow((STORED, name), shape, arguments);
}

macro_rules! form {
    ($($name:ident is $symbol:literal over $of:ident),*) => {$(
        impl Form for $name {
            fn roles(&self) -> Vec<Role> {
                vec![Role::Narrow; 3]
            }
            fn write(&self, draft: &mut Draft) -> Result<(), String> {
                write(draft, $symbol, &self.heads, self.heads.$of, self.store);
                Ok(())
            }
        }
    )*};
}

form!(
    Scores is "scores" over heads,
    Mix is "mix" over heads,
    MixBackward is "mix_backward" over key_heads
);
