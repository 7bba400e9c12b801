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
