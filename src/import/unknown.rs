//! Families that cannot be imported, with the reason.

use super::family::FAMILIES;

/// Reasons with the `model_type`s that they concern.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "mixture of experts is not supported: every feed-forward block is dense",
        &[
            "arctic",
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "ernie4_5_moe",
            "flex_olmo",
            "glm4_moe",
            "gpt_oss",
            "granitemoe",
            "granitemoeshared",
            "grok-1",
            "jamba",
            "jetmoe",
            "llama4",
            "llama4_text",
            "lfm2_moe",
            "minimax",
            "mixtral",
            "nllb-moe",
            "olmoe",
            "phimoe",
            "qwen2_moe",
            "qwen3_moe",
            "qwen3_next",
            "switch_transformers",
        ],
    ),
    (
        "attention reads one sequence; encoders with decoders are not supported",
        &[
            "bart",
            "blenderbot",
            "encoder-decoder",
            "fsmt",
            "led",
            "longt5",
            "m2m_100",
            "marian",
            "mbart",
            "mt5",
            "pegasus",
            "prophetnet",
            "speech_to_text",
            "t5",
            "umt5",
            "whisper",
        ],
    ),
    (
        "recurrence over positions is not supported",
        &[
            "falcon_h1",
            "falcon_mamba",
            "mamba",
            "mamba2",
            "recurrent_gemma",
            "rwkv",
            "zamba",
            "zamba2",
            "bamba",
        ],
    ),
    (
        "images and text in one model are not supported; for the text alone save the object \
         under `text_config` as a file of its own",
        &[
            "blip",
            "blip-2",
            "clip",
            "gemma3",
            "gemma3n",
            "git",
            "idefics",
            "llava",
            "llava_next",
            "mistral3",
            "mllama",
            "paligemma",
            "pixtral",
            "qwen2_5_vl",
            "qwen2_vl",
            "siglip",
        ],
    ),
    ("its biases of distances (ALiBi) are not in the language", &["bloom", "mpt"]),
    (
        "its heads share one key head in a fused map that depends on the release",
        &["falcon", "gpt_bigcode", "RefinedWeb", "RefinedWebModel"],
    ),
    (
        "its rotary positions turn neighbours, not halves of a head",
        &["chatglm", "codegen", "cohere", "cohere2", "glm", "glm4", "gptj"],
    ),
    ("its attention is of another kind", &["albert", "deberta", "deberta-v2", "xlnet"]),
    ("it scales its branches and logits", &["granite", "minicpm"]),
];

/// What is wrong with a configuration that names no family, and what to do.
pub(super) fn untold(message: &str) -> (String, String) {
    (message.to_owned(), imported())
}

/// The families that there are.
fn imported() -> String {
    let known = FAMILIES.map(|family| family.model_type).join(", ");
    format!("these are imported: {known}")
}

/// Why a `model_type` is refused, and what to do.
pub(super) fn refusal(model_type: &str) -> (String, String) {
    let families = imported();
    let reason = REFUSED.iter().find(|(_, types)| types.contains(&model_type));
    let near = roundelay_schedule::nearest_hint(
        model_type,
        FAMILIES.iter().map(|family| family.model_type),
    );
    match reason {
        Some((reason, _)) => {
            (format!("`{model_type}` cannot be imported: {reason}"), families)
        }
        None => (format!("unknown family `{model_type}`{near}"), families),
    }
}
