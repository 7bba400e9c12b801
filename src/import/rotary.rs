//! Rotary positions and windows: what each layer's attention sees, and how it turns.

use super::{
    call::{Call, number},
    fields::Fields,
    pattern::Kind,
    stretch,
};
use roundelay_dsl::{Code, Stretch};
use roundelay_schedule::nearest_hint;
use serde_json::Value;

/// By what angles a layer turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Angles {
    pub(super) base: f64,
    pub(super) stretch: Stretch,
}

/// Those of layers that differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turns {
    /// Of layers that see everything.
    pub(super) full: Angles,
    /// Of layers with a window.
    pub(super) sliding: Angles,
}

impl Turns {
    /// All layers turn alike.
    pub(super) fn alike(angles: Angles) -> Self {
        Self { full: angles, sliding: angles }
    }
}

/// Angles with their base from one of `names` or the object of rotary positions.
pub(super) fn angles(fields: &mut Fields<'_>, names: &[&str], default: f64) -> Angles {
    let angles = plain(fields, names, default);
    refuse_both(fields);
    let objects = OBJECTS.into_iter().rev();
    let object = objects.filter_map(|name| Some((name, fields.value(name)?))).next();
    match object {
        Some((name, object)) => scaled(fields, name, &object, (names, angles)),
        None => angles,
    }
}

/// Angles of layers that see everything, with their base from `rope_theta`, and of those with a
/// window, from `rope_local_base_freq`; `rope_parameters` may have an object for each of both.
pub(super) fn turns(fields: &mut Fields<'_>, [full, sliding]: [f64; 2]) -> Turns {
    const LOCAL: &[&str] = &["rope_local_base_freq"];
    let local = plain(fields, LOCAL, sliding);
    let Some(parameters) = fields.value(OBJECTS[1]).filter(is_by_layer) else {
        return Turns { full: angles(fields, THETA, full), sliding: local };
    };
    refuse_both(fields);
    let keys = parameters.as_object().into_iter().flat_map(|entries| entries.keys());
    for unknown in keys.filter(|key| !LAYERS.contains(&key.as_str())) {
        let near = nearest_hint(unknown, LAYERS);
        let message = format!("unknown layers `{unknown}` within `{}`{near}", OBJECTS[1]);
        fields.refuse(OBJECTS[1], Code::UnknownKey, message, "");
    }
    let all = plain(fields, THETA, full);
    let mut of = |layers, names, angles| match parameters.get(layers) {
        Some(own) => scaled(fields, OBJECTS[1], own, (names, angles)),
        None => angles,
    };
    Turns { full: of(LAYERS[0], THETA, all), sliding: of(LAYERS[1], LOCAL, local) }
}

/// The field that most families have the base of their angles in.
pub(super) const THETA: &[&str] = &["rope_theta"];

/// Angles with their base from one of these fields; those that are there must agree.
fn plain(fields: &mut Fields<'_>, names: &[&str], default: f64) -> Angles {
    let mut given = None;
    for &name in names {
        let own = fields.above_zero(name, default);
        if fields.has(name) {
            let (first, base) = *given.get_or_insert((name, own));
            agree(fields, (name, own), (&format!("`{first}`"), base));
        }
    }
    let base = given.map_or(default, |(_, base)| base);
    Angles { base, stretch: Stretch::None }
}

/// Refuses a field that says another number than another place says.
fn agree(fields: &mut Fields<'_>, (name, own): (&str, f64), (place, other): (&str, f64)) {
    if fields.is_clean() && own != other {
        let message = format!("`{name}` is {own}, but {place} is {other}");
        fields.refuse(name, Code::Value, message, "keep the one that was trained with");
    }
}

/// The objects of rotary positions, as older and newer releases of transformers write them.
const OBJECTS: [&str; 2] = ["rope_scaling", "rope_parameters"];

/// The layers for which the newer one may have an object each.
const LAYERS: [&str; 2] = ["full_attention", "sliding_attention"];

fn is_by_layer(parameters: &Value) -> bool {
    LAYERS.iter().any(|layers| parameters.get(layers).is_some())
}

fn refuse_both(fields: &mut Fields<'_>) {
    if OBJECTS.map(|name| fields.has(name)) == [true, true] {
        let message = "`rope_scaling` and `rope_parameters` both say how positions turn";
        let hint =
            "keep the one that was trained with, and `rope_theta` beside it or within";
        fields.refuse(OBJECTS[1], Code::Value, message.to_owned(), hint);
    }
}

/// Attention with what stretches its angles.
pub(super) fn stretched(attention: Call, stretch: Stretch) -> Call {
    match stretch {
        Stretch::None => attention,
        Stretch::Even { factor } => attention.with("rotary_factor", number(factor)),
        Stretch::Long { factor, original, low, high } => {
            let attention = attention.with("rotary_factor", number(factor));
            let attention = attention.with("rotary_original", original);
            attention.with("rotary_low", number(low)).with("rotary_high", number(high))
        }
    }
}

/// Layers may differ in a factor of all their angles, and in nothing else that stretches them.
pub(super) fn factors(fields: &mut Fields<'_>, kinds: &[Kind]) {
    let is_long = |kind: &Kind| match kind.stretch {
        Stretch::Long { .. } => true,
        Stretch::None | Stretch::Even { .. } => false,
    };
    let alike = kinds.windows(2).all(|pair| pair[0].stretch == pair[1].stretch);
    if !alike && kinds.iter().any(is_long) {
        let is_there = OBJECTS.into_iter().find(|name| fields.has(name));
        let name = is_there.unwrap_or(OBJECTS[0]);
        let message = "layers that differ in how `llama3` scales their positions cannot be \
                       imported";
        fields.refuse(name, Code::NotYet, message.to_owned(), "");
    }
}

/// The share of every head that turns, from `name` or the object of rotary positions.
pub(super) fn share(fields: &mut Fields<'_>, name: &str, default: f64) -> f64 {
    let share = fields.real_or(name, default);
    let within = shares(fields);
    if fields.has(name) {
        for other in &within {
            agree(fields, (name, share), (&format!("`{SHARE}` of its object"), *other));
        }
    }
    within.into_iter().next().unwrap_or(share)
}

/// The shares that the objects of rotary positions name.
fn shares(fields: &mut Fields<'_>) -> Vec<f64> {
    let mut all = Vec::new();
    for name in OBJECTS {
        let Some(object) = fields.value(name) else { continue };
        let own = match is_by_layer(&object) {
            true => LAYERS.into_iter().filter_map(|layers| object.get(layers)).collect(),
            false => vec![&object],
        };
        for share in own.into_iter().filter_map(|object| object.get(SHARE)) {
            match share.as_f64() {
                Some(share) => all.push(share),
                None => {
                    let message = format!("`{SHARE}` within `{name}` must be a number");
                    fields.refuse(name, Code::Type, message, "");
                }
            }
        }
    }
    all
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
    let share = fields.real_or(SHARE, 1.0);
    let within = shares(fields);
    let wrong = match within.iter().all(|share| *share == 1.0) {
        false => OBJECTS.into_iter().rev().find(|name| fields.has(name)),
        true => (share != 1.0).then_some(SHARE),
    };
    if let Some(name) = wrong {
        let message = format!("`{SHARE}` is for families whose heads turn in part");
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

/// Angles, whose base is from one of `names`, with what an object of rotary positions says of them.
fn scaled(
    fields: &mut Fields<'_>,
    name: &str,
    rope: &Value,
    (names, angles): (&[&str], Angles),
) -> Angles {
    let kinds = ["rope_type", "type"].map(|key| rope.get(key).and_then(Value::as_str));
    let is_scaled = SCALING.iter().any(|key| rope.get(key).is_some());
    let usual = (name == OBJECTS[1] && !is_scaled).then_some("default");
    let kind = kinds.into_iter().flatten().next().or(usual);
    let (Some(entries), Some(kind)) = (rope.as_object(), kind) else {
        let message = format!("`{name}` must be an object with `rope_type`");
        fields.refuse(name, Code::Type, message, "");
        return angles;
    };
    let known =
        |key: &str| SCALING.contains(&key) || [SHARE, "rope_theta"].contains(&key);
    if let Some(unknown) = entries.keys().find(|key| !known(key)) {
        let message = format!("unknown field `{unknown}` within `{name}`");
        fields.refuse(name, Code::UnknownKey, message, "");
    }
    let stretch = match kind {
        "default" => angles.stretch,
        kind => stretch::of(fields, name, (entries, kind)),
    };
    let base = match entries.get("rope_theta").map(Value::as_f64) {
        None => angles.base,
        Some(Some(theta)) if theta > 0.0 => {
            if let Some(beside) = names.iter().find(|name| fields.has(name)) {
                let place = format!("`rope_theta` within `{name}`");
                agree(fields, (*beside, angles.base), (&place, theta));
            }
            theta
        }
        Some(_) => {
            let message =
                format!("`rope_theta` within `{name}` must be a number above 0");
            fields.refuse(name, Code::Type, message, "");
            angles.base
        }
    };
    Angles { base, stretch }
}

/// What each of `layers` layers sees. `rule` says whether a layer has the window where
/// `layer_types` does not.
pub(super) fn kinds(
    fields: &mut Fields<'_>,
    layers: u64,
    window: Option<u64>,
    turns: Turns,
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
        let angles = if window.is_some() { turns.sliding } else { turns.full };
        Kind { window, rotary: Some(number(angles.base)), stretch: angles.stretch }
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
