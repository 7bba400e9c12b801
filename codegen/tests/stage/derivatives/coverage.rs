//! What the tests of derivatives cover: every operation of the language's graph, and every
//! attribute with more than one value. The variants are read from the source of the enum, so a
//! new one cannot be forgotten.

use roundelay_dsl::{Model, Operation};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

const SOURCE: &str = include_str!("../../../../dsl/src/program.rs");

/// Operations that no gradient passes.
const WITHOUT_DERIVATIVE: [&str; 2] = ["Accuracy", "Boundary"];

thread_local! {
    /// The operations of the models that this thread's tests would hold, while they are gathered.
    static GATHERED: RefCell<Option<Vec<Operation>>> = const { RefCell::new(None) };
}

/// Notes a model's operations while they are gathered; whether they are.
pub(crate) fn gathers(model: &Model) -> bool {
    let operations = model.nodes.values().map(|node| node.operation);
    GATHERED.with_borrow_mut(|gathered| match gathered {
        Some(all) => {
            all.extend(operations);
            true
        }
        None => false,
    })
}

/// The values of every attribute of every operation that the tests hold, as text.
fn held(tests: &[fn()]) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    GATHERED.set(Some(Vec::new()));
    tests.iter().for_each(|test| test());
    let mut all: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
    for operation in GATHERED.take().unwrap_or_default() {
        let text = format!("{operation:?}");
        let name = text.split([' ', '(']).next().unwrap_or(&text);
        let values: &mut BTreeMap<_, BTreeSet<_>> =
            all.entry(name.to_owned()).or_default();
        for (attribute, value) in text.split(", ").filter_map(attribute) {
            values.entry(attribute.to_owned()).or_default().insert(value.to_owned());
        }
    }
    all
}

/// The attribute and its value in a part of a text. A struct that is an attribute has its name, and
/// counts by its own attributes; a variant that has some is a value.
fn attribute(mut part: &str) -> Option<(&str, &str)> {
    while let Some((head, inner)) = part.split_once(" { ") {
        let is_struct = |(name, of): (&str, &str)| of.eq_ignore_ascii_case(name);
        if !head.split_once(": ").is_none_or(is_struct) {
            break;
        }
        part = inner;
    }
    part.trim_end_matches([' ', '}', ')']).split_once(": ")
}

/// The variants of `Operation`, as its source names them.
fn variants() -> Vec<&'static str> {
    let (_, body) = SOURCE.split_once("pub enum Operation {\n").expect("the enum");
    let (body, _) = body.split_once("\n}").expect("the enum ends");
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names.filter_map(|line| line.split([',', ' ', '{', '(']).next()).collect()
}

/// Asserts that the tests hold every operation, and attributes with several values.
pub(crate) fn hold_all(tests: &[fn()]) {
    let held = held(tests);
    let variants = variants();
    assert!(variants.len() > 20, "the source names its variants: {variants:?}");
    for name in variants {
        let values = held.get(name);
        // Parts have no meaning alone: their tests have all rows (stage_tensor.rs). Slices are held
        // by a test of their own, and all together in pipelines.
        let made = ["Part", "Sliced"].contains(&name);
        let derived = !WITHOUT_DERIVATIVE.contains(&name) && !made;
        assert_eq!(values.is_some(), derived, "{name}: is its derivative held?");
        for (attribute, values) in values.into_iter().flatten() {
            assert!(values.len() > 1, "{name}: {attribute} is always {values:?}");
        }
    }
}
