//! Rotary positions and windows: what each layer's attention sees, and how it turns.

use super::{call::number, fields::Fields, pattern::Kind};
use roundelay_dsl::Code;
use serde_json::Value;

/// Bases of the rotary angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bases {
    /// Of layers that see everything.
    pub(super) full: f64,
    /// Of layers with a window.
    pub(super) sliding: f64,
}

/// Base of the angles, from `name` or `rope_parameters`; of layers that see everything, where
/// layers differ. Angles that are scaled are warned of.
pub(super) fn base(fields: &mut Fields<'_>, name: &str, default: f64) -> f64 {
    let base = fields.above_zero(name, default);
    let base = match fields.value("rope_scaling") {
        Some(scaling) => scaled(fields, "rope_scaling", &scaling, base),
        None => base,
    };
    let Some(parameters) = fields.value("rope_parameters") else { return base };
    let own = parameters.get("full_attention").unwrap_or(&parameters);
    scaled(fields, "rope_parameters", own, base)
}

/// Base of layers with a window, from `rope_local_base_freq` or `rope_parameters`.
pub(super) fn local_base(fields: &mut Fields<'_>, default: f64) -> f64 {
    let base = fields.above_zero("rope_local_base_freq", default);
    let parameters = fields.value("rope_parameters");
    match parameters.as_ref().and_then(|all| all.get("sliding_attention")) {
        Some(parameters) => scaled(fields, "rope_parameters", parameters, base),
        None => base,
    }
}

/// The share of every head that turns, from `name` or `rope_parameters`.
pub(super) fn share(fields: &mut Fields<'_>, name: &str, default: f64) -> f64 {
    let share = fields.real_or(name, default);
    let parameters = fields.value("rope_parameters");
    let nested = parameters.as_ref().and_then(|all| all.get(SHARE));
    nested.and_then(Value::as_f64).unwrap_or(share)
}

/// Notes heads that have no pairs to turn.
pub(super) fn pairs(fields: &mut Fields<'_>, name: &str, head_width: u64) {
    if fields.is_clean() && !head_width.is_multiple_of(2) {
        let message =
            format!("a head of {head_width} has no pairs that rotary positions turn");
        let hint = "the width of a head must be even";
        fields.refuse(name, Code::Value, message, hint);
    }
}

/// Holds families whose heads turn as a whole to that.
pub(super) fn whole(fields: &mut Fields<'_>) {
    if share(fields, SHARE, 1.0) != 1.0 {
        let message = format!("`{SHARE}` is for families whose heads turn in part");
        let name = if fields.has(SHARE) { SHARE } else { "rope_parameters" };
        fields.refuse(name, Code::NotYet, message, "");
    }
}

/// The field of that share.
const SHARE: &str = "partial_rotary_factor";

/// Fields of scaled angles, besides base and share.
const SCALING: [&str; 16] = [
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "high_freq_factor",
    "long_factor",
    "long_mscale",
    "low_freq_factor",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "rope_type",
    "short_factor",
    "short_mscale",
    "truncate",
    "type",
];

/// The base within an object of rotary positions; warns of angles that are scaled for long texts.
fn scaled(fields: &mut Fields<'_>, name: &str, rope: &Value, base: f64) -> f64 {
    let kinds = ["rope_type", "type"].map(|key| rope.get(key).and_then(Value::as_str));
    let kind = kinds.into_iter().flatten().next();
    let (Some(entries), Some(kind)) = (rope.as_object(), kind) else {
        let message = format!("`{name}` must be an object with `rope_type`");
        fields.refuse(name, Code::Type, message, "");
        return base;
    };
    let known =
        |key: &str| SCALING.contains(&key) || [SHARE, "rope_theta"].contains(&key);
    if let Some(unknown) = entries.keys().find(|key| !known(key)) {
        let message = format!("unknown field `{unknown}` within `{name}`");
        fields.refuse(name, Code::UnknownKey, message, "");
    }
    if kind != "default" {
        let message = format!(
            "rotary positions are not scaled ({kind}): shapes, costs and parameters are the \
             same, the angles of long texts are not"
        );
        fields.warn(name, message);
    }
    match entries.get("rope_theta").map(Value::as_f64) {
        None => base,
        Some(Some(theta)) if theta > 0.0 => theta,
        Some(_) => {
            let message =
                format!("`rope_theta` within `{name}` must be a number above 0");
            fields.refuse(name, Code::Type, message, "");
            base
        }
    }
}

/// What each of `layers` layers sees. `rule` says whether a layer has the window where
/// `layer_types` does not.
pub(super) fn kinds(
    fields: &mut Fields<'_>,
    layers: u64,
    window: Option<u64>,
    bases: Bases,
    rule: impl Fn(u64) -> bool,
) -> Vec<Kind> {
    let types = fields.texts("layer_types");
    let by_rule = |layer| window.filter(|_| rule(layer));
    let windows: Vec<Option<u64>> = match types {
        None => (0..layers).map(by_rule).collect(),
        Some(types) => {
            if types.len() as u64 != layers {
                let message =
                    format!("`layer_types` names {} layers of {layers}", types.len());
                fields.refuse("layer_types", Code::Value, message, "");
            }
            types.iter().map(|name| seen(fields, name, window)).collect()
        }
    };
    let kind = |window: Option<u64>| {
        let base = if window.is_some() { bases.sliding } else { bases.full };
        Kind { window, rotary: Some(number(base)) }
    };
    windows.into_iter().map(kind).collect()
}

fn seen(fields: &mut Fields<'_>, name: &str, window: Option<u64>) -> Option<u64> {
    match name {
        "full_attention" => None,
        "sliding_attention" if window.is_some() => window,
        "sliding_attention" => {
            let message = "`layer_types` has windows, but `sliding_window` is not given";
            let hint = "say how many positions a layer sees: `\"sliding_window\": 4096`";
            fields.refuse("layer_types", Code::Missing, message.to_owned(), hint);
            None
        }
        other => {
            let message = format!("layers of the type `{other}` cannot be imported");
            let hint = "layers have `full_attention` or `sliding_attention`";
            fields.refuse("layer_types", Code::NotYet, message, hint);
            None
        }
    }
}
