//! The families that can be imported, and what their heads and dropouts have in common.

use super::{
    bert, encoder, fields::Fields, gemma, gpt, llama, model::Model,
    options::ImportOptions,
};
use roundelay_dsl::Code;

/// A family of models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// `model_type` of its configurations.
    pub(super) model_type: &'static str,
    /// Reads a configuration.
    pub(super) read: fn(&mut Fields<'_>, &ImportOptions) -> Model,
}

/// All families.
pub(super) const FAMILIES: [Family; 15] = [
    Family { model_type: "bert", read: bert::bert },
    Family { model_type: "gemma", read: gemma::gemma },
    Family { model_type: "gemma2", read: gemma::gemma2 },
    Family { model_type: "gemma3_text", read: gemma::gemma3 },
    Family { model_type: "gpt2", read: gpt::gpt2 },
    Family { model_type: "gpt_neox", read: gpt::gpt_neox },
    Family { model_type: "llama", read: llama::llama },
    Family { model_type: "mistral", read: llama::mistral },
    Family { model_type: "opt", read: gpt::opt },
    Family { model_type: "phi3", read: llama::phi3 },
    Family { model_type: "qwen2", read: llama::qwen2 },
    Family { model_type: "qwen3", read: llama::qwen3 },
    Family { model_type: "roberta", read: bert::roberta },
    Family { model_type: "vit", read: encoder::vit },
    Family { model_type: "xlm-roberta", read: bert::xlm_roberta },
];

/// What `architectures` says is trained; the first of `known` where it says nothing, or one of
/// the `headless`.
pub(super) fn head<T: Copy>(
    fields: &mut Fields<'_>,
    known: &[(&str, T)],
    headless: &[&str],
) -> T {
    let (usual, first) = known[0];
    let Some(named) = fields.texts("architectures") else { return first };
    match &named[..] {
        [] => first,
        [name] => {
            if let Some((_, head)) = known.iter().find(|(known, _)| known == name) {
                return *head;
            }
            if headless.contains(&name.as_str()) {
                let message = format!("`{name}` has no head; that of {usual} is added");
                fields.warn("architectures", message);
                return first;
            }
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let message = format!("`{name}` cannot be imported");
            let hint = format!("the family is imported as {}", names.join(" or "));
            fields.refuse("architectures", Code::NotYet, message, &hint);
            first
        }
        _ => {
            let message = "`architectures` names several heads";
            let hint = "keep the one that is to be trained";
            fields.refuse("architectures", Code::Value, message.to_owned(), hint);
            first
        }
    }
}

/// A decoder predicts the next token, or is refused.
pub(super) fn causal_head(fields: &mut Fields<'_>, known: &[&str], headless: &[&str]) {
    let known: Vec<(&str, ())> = known.iter().map(|name| (*name, ())).collect();
    head(fields, &known, headless);
}

/// Dropout of attention's weights is left out, and said to be.
pub(super) fn attention_dropout(fields: &mut Fields<'_>, name: &str, default: f64) {
    let rate = fields.rate(name, default);
    if rate > 0.0 {
        let message = format!(
            "`{name}` = {rate} is left out, for attention does not make the matrix of weights \
             that it would drop from; no shape, parameter or other dropout changes. With \
             `stored_scores = true, dropout = {rate}` in `attention(…)` it does"
        );
        fields.warn(name, message);
    }
}
