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

/// One base for all layers, from `name` or `rope_parameters`; scaled angles are warned of.
pub(super) fn base(fields: &mut Fields<'_>, name: &str, default: f64) -> f64 {
    let base = fields.above_zero(name, default);
    let scaling = fields.value("rope_scaling");
    scaled(fields, "rope_scaling", scaling);
    match fields.value("rope_parameters") {
        Some(parameters) => nested(fields, &parameters, base),
        None => base,
    }
}

/// The base of layers with a window, from `rope_local_base_freq` or `rope_parameters`.
pub(super) fn local_base(fields: &mut Fields<'_>, default: f64) -> f64 {
    let base = fields.above_zero("rope_local_base_freq", default);
    let parameters = fields.value("rope_parameters");
    match parameters.as_ref().and_then(|all| all.get("sliding_attention")) {
        Some(parameters) => {
            scaled(fields, "rope_parameters", Some(parameters.clone()));
            theta(fields, parameters, base)
        }
        None => base,
    }
}

/// The base within `rope_parameters`; for layers that see everything, where kinds differ.
fn nested(fields: &mut Fields<'_>, parameters: &Value, base: f64) -> f64 {
    let parameters = parameters.get("full_attention").unwrap_or(parameters);
    scaled(fields, "rope_parameters", Some(parameters.clone()));
    theta(fields, parameters, base)
}

fn theta(fields: &mut Fields<'_>, parameters: &Value, base: f64) -> f64 {
    match parameters.get("rope_theta") {
        None => base,
        Some(value) => value.as_f64().filter(|base| *base > 0.0).unwrap_or_else(|| {
            let message = format!("`rope_theta` must be a number above 0, found {value}");
            fields.refuse("rope_parameters", Code::Type, message, "");
            base
        }),
    }
}

/// Warns of angles that are scaled for long texts.
fn scaled(fields: &mut Fields<'_>, name: &str, scaling: Option<Value>) {
    let Some(scaling) = scaling else { return };
    let kinds = ["rope_type", "type"].map(|key| scaling.get(key).and_then(Value::as_str));
    match kinds.into_iter().flatten().next() {
        Some("default") => {}
        Some(kind) => fields.warn(
            name,
            format!(
                "rotary angles are not scaled ({kind}): shapes, costs and parameters are the \
                 same, the angles of long texts are not"
            ),
        ),
        None => {
            let message = format!("`{name}` must be an object with `rope_type`");
            fields.refuse(name, Code::Type, message, "");
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
