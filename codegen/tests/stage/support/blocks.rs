//! Blocks of a language model whose every byte is known in closed form.

use roundelay_dsl::Model;

/// Extents of such a model.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) examples: u64,
    pub(crate) length: u64,
    pub(crate) width: u64,
    pub(crate) heads: u64,
}

/// Pre-norm blocks without dropout: attention, called with these further arguments, with a product, and two
/// products with a GELU.
pub(crate) fn gpt(extents: Extents, layers: u32, attention: &str) -> Model {
    let Extents { examples, length, width, heads } = extents;
    let job = crate::models::job(examples as u32);
    let program = crate::models::program(&format!(
        "model gpt {{
            input tokens:  i32[batch, {length}]
            input targets: i32[batch, {length}]
            x = embedding(tokens, 48, {width}) + positions({length}, {width})
            repeat {layers} as layer {{
                x = x + attention(layer_norm(x), {heads}{attention})
                x = x + linear(gelu(linear(layer_norm(x), 4 * {width})), {width})
            }}
            loss cross_entropy(linear(layer_norm(x), 48), targets)
        }}
        {job}"
    ));
    program.model
}

/// Where the second blocks of a [`translator`] begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// At what is there before the memory.
    Before,
    /// At what is made of it.
    Memory,
    /// The same, while a class that was made of it waits for its loss.
    Class,
}

impl Begin {
    /// The line before the first blocks, those behind them, and what the loss has besides.
    fn lines(self) -> [&'static str; 3] {
        match self {
            Self::Before => ["y = embedding(targets, 48, width)", "", ""],
            Self::Memory => ["", "y = linear(x, width)", ""],
            Self::Class => [
                "",
                "class = linear(tanh(linear(select(x, 0), 20)), 7)
                 y = linear(x, width)",
                "+ cross_entropy(class, classes)",
            ],
        }
    }
}

/// Blocks as those of [`gpt`] that make a memory, and others of which each adds it to what it attends to.
pub(crate) fn translator(
    extents: Extents,
    [encoder, decoder]: [u32; 2],
    begin: Begin,
) -> Model {
    let Extents { examples, length, width, heads } = extents;
    let job = crate::models::job(examples as u32);
    let [before, behind, loss] = begin.lines();
    let program = crate::models::program(&format!(
        "model translator {{
            width = {width}
            input tokens:  i32[batch, {length}]
            input targets: i32[batch, {length}]
            input classes: i32[batch]
            {before}
            x = embedding(tokens, 48, width) + positions({length}, width)
            repeat {encoder} as encoder {{
                x = x + attention(layer_norm(x), {heads})
                x = x + linear(gelu(linear(layer_norm(x), 4 * width)), width)
            }}
            {behind}
            repeat {decoder} as decoder {{
                y = y + attention(layer_norm(y + x), {heads}, causal = true)
                y = y + linear(gelu(linear(layer_norm(y), 4 * width)), width)
            }}
            loss cross_entropy(linear(layer_norm(y), 48), targets) {loss}
        }}
        {job}"
    ));
    program.model
}
