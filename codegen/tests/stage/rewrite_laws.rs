//! The law of every rule: what the line after makes has the bits of the lines before, on random
//! arrays of random shapes, for the plain references at 64 bits and the fast kernels at 32, also where
//! some are infinite or none; and a rule that is wrong is found out.

use crate::support::{build::Numbers, machine::context};
use roundelay_codegen::{CallPattern, FORMS, RewriteForm};
use roundelay_kernels::{Context, Kernel, Real};
use roundelay_schedule::{
    Attribute, Attributes, Bytes, Call, Element, Float, Operand, Rewrite,
};
use std::collections::BTreeMap;

/// The extents of one trial.
#[derive(Clone, Copy)]
struct Sizes {
    /// Rows of devices.
    parts: usize,
    m: u64,
    k: u64,
    n: u64,
    /// Columns that stay together where arrays are cut into parts; divides n.
    inner: u64,
}

/// Which numbers the arrays of a trial have.
#[derive(Clone, Copy)]
enum Numbered {
    Finite,
    /// Some are zero, infinite, or none.
    All,
}

/// What stands among numbers that are finite.
const ODD: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];

/// What the devices that split tensors have under each name, one after another.
type Arrays<R> = BTreeMap<&'static str, Vec<Vec<R>>>;

/// The extents of an array in a rule.
fn shape(form: &RewriteForm, name: &str, sizes: Sizes) -> Vec<u64> {
    let Sizes { parts, m, k, n, inner } = sizes;
    let part = (n / inner).div_ceil(parts as u64) * inner;
    let is_affine = [&form.before[0], &form.after].iter().any(|line| {
        line.kernel.starts_with("affine") || line.kernel.starts_with("matmul")
    });
    match (form.rewrite, name) {
        (Rewrite::GatherOfScatter | Rewrite::GatherOfPart, "t")
        | (Rewrite::PartOfSum, "y") => vec![m, part],
        (Rewrite::MatmulGeluTanhBackward, "weight") => vec![k, n],
        (Rewrite::MatmulGeluTanhBackward, "dz") => vec![m, k],
        (_, "dweight") => vec![n, k],
        (_, "x") if is_affine => vec![m, k],
        (_, "weight") => vec![n, k],
        (_, "gain" | "bias" | "dgain" | "dbias") => vec![n],
        (_, name) if name.contains("mean") || name.contains("variance") => vec![n],
        _ => vec![m, n],
    }
}

/// An array that nobody in the rule makes.
fn drawn<R: Real>(
    form: &RewriteForm,
    name: &str,
    (sizes, numbered): (Sizes, Numbered),
    numbers: &mut Numbers,
) -> Vec<Vec<R>> {
    let count: u64 = shape(form, name, sizes).iter().product();
    let mut array = || -> Vec<R> {
        let positive = name.starts_with("variance");
        let value = |number: f64| if positive { number.abs() + 0.1 } else { number };
        let mut one = || match numbered {
            Numbered::All if !positive && numbers.below(16) == 0 => numbers.pick(&ODD),
            Numbered::All | Numbered::Finite => value(numbers.real()),
        };
        (0..count).map(|_| R::of(one())).collect()
    };
    match form.rewrite {
        // What is cut into parts is what all rows have alike.
        Rewrite::GatherOfPart => vec![array(); sizes.parts],
        _ => (0..sizes.parts).map(|_| array()).collect(),
    }
}

fn call(form: &RewriteForm, line: &CallPattern, sizes: Sizes) -> Call {
    let mut attributes: Attributes =
        line.flags.iter().map(|flag| ((*flag).into(), Attribute::Flag(true))).collect();
    let moves = ["all_reduce", "all_gather", "reduce_scatter", "part"];
    if moves.contains(&line.kernel) {
        attributes.insert("parts".into(), Attribute::Integer(sizes.parts as i64));
    }
    if moves[1..].contains(&line.kernel) {
        attributes.insert("inner".into(), Attribute::Integer(sizes.inner as i64));
    }
    let operand = |name: &str| Operand {
        argument: 0,
        offset: Bytes(0),
        element: Element::Real,
        shape: shape(form, name, sizes).into(),
    };
    let made = if line.is_in_place() { &[] } else { line.made };
    let operands = line.read.iter().chain(made).map(|name| operand(name)).collect();
    Call { kernel: line.kernel.into(), attributes: attributes.into(), operands }
}

/// Runs a line on all devices.
fn run<R: Real>(
    form: &RewriteForm,
    line: &CallPattern,
    sizes: Sizes,
    arrays: &mut Arrays<R>,
) {
    let call = call(form, line, sizes);
    let kernel = Kernel::parse(&call).unwrap_or_else(|wrong| panic!("{line}: {wrong}"));
    let count = |name: &str| -> usize {
        shape(form, name, sizes).iter().product::<u64>() as usize
    };
    let mut made: Vec<Vec<Vec<R>>> = Vec::new();
    for part in 0..sizes.parts {
        let read = line.read.iter().map(|name| arrays[name][part].clone());
        let fresh = line.made.iter().map(|name| vec![R::of(f64::NAN); count(name)]);
        let mut own: Vec<Vec<R>> = match line.is_in_place() {
            true => read.collect(),
            false => read.chain(fresh).collect(),
        };
        match kernel.exchange() {
            None => launch(&kernel, &mut own, part),
            Some(exchange) => {
                let all: Vec<&[R]> =
                    arrays[line.read[0]].iter().map(Vec::as_slice).collect();
                exchange.join(
                    &all,
                    part,
                    own.last_mut().expect("a call makes something"),
                );
            }
        }
        made.push(own.split_off(own.len() - line.made.len()));
    }
    for (place, name) in line.made.iter().enumerate() {
        let all = made.iter().map(|own| own[place].clone()).collect();
        arrays.insert(name, all);
    }
}

#[allow(unsafe_code, reason = "kernels take addresses")]
fn launch<R: Real>(kernel: &Kernel, own: &mut [Vec<R>], part: usize) {
    let context = Context { part: part as u32, ..context(0, 0) };
    let operands: Vec<*mut u8> =
        own.iter_mut().map(|array| array.as_mut_ptr().cast()).collect();
    // SAFETY: every operand is an array of its own, as long as the call says.
    match R::DTYPE {
        Float::F64 => unsafe { kernel.run_plain::<R>(&operands, &context) },
        _ => unsafe { kernel.run::<R>(&operands, &context) },
    }
}

/// Whether a rule holds for one trial. What is no number has no bits that anybody says.
fn holds<R: Real>(
    form: &RewriteForm,
    (sizes, numbered): (Sizes, Numbered),
    numbers: &mut Numbers,
) -> bool {
    let [first, second] = &form.before;
    let mut before = Arrays::<R>::new();
    for name in first.read.iter().chain(second.read) {
        if !first.made.contains(name) && !before.contains_key(name) {
            before.insert(name, drawn(form, name, (sizes, numbered), numbers));
        }
    }
    let mut after = before.clone();
    run(form, first, sizes, &mut before);
    run(form, second, sizes, &mut before);
    run(form, &form.after, sizes, &mut after);
    let bits = |all: &Vec<Vec<R>>| -> Vec<u64> {
        let bits = |value: f64| if value.is_nan() { u64::MAX } else { value.to_bits() };
        all.iter().flatten().map(|value| bits(value.widen())).collect()
    };
    form.after.made.iter().all(|name| bits(&before[name]) == bits(&after[name]))
}

fn always_holds(form: &RewriteForm, numbers: &mut Numbers) -> bool {
    (0..60).all(|trial| {
        let mut size = |least| least + numbers.below(12);
        let (m, k, n) = (size(2), size(1), size(1));
        let moves = form.after.read == ["x"];
        let parts = if moves { 1 + numbers.below(4) as usize } else { 1 };
        let inner = if moves { 1 + numbers.below(3) } else { 1 };
        let sizes = Sizes { parts, m, k, n: n * inner, inner };
        let numbered = if trial % 3 == 2 { Numbered::All } else { Numbered::Finite };
        let trial = (sizes, numbered);
        holds::<f64>(form, trial, numbers) && holds::<f32>(form, trial, numbers)
    })
}

#[test]
fn every_rule_holds() {
    for form in &FORMS {
        assert!(always_holds(form, &mut Numbers(5)), "{form}");
    }
    for rewrite in Rewrite::ALL {
        let forms = FORMS.iter().filter(|form| form.rewrite == *rewrite);
        assert!(forms.count() > 0, "{rewrite} has no form");
    }
}

/// Rules that are almost right.
#[test]
fn wrong_rules_are_found_out() {
    let of = |rewrite| {
        let mut forms = FORMS.iter().filter(move |form| form.rewrite == rewrite);
        *forms.next_back().unwrap()
    };
    let after = |rewrite, kernel, read| {
        let form: RewriteForm = of(rewrite);
        RewriteForm { after: CallPattern { kernel, read, ..form.after }, ..form }
    };
    let map = &["x", "weight", "bias"];
    let norm = of(Rewrite::BatchNormRelu);
    let opened = of(Rewrite::BatchNormBackwardRelu);
    let again = FORMS.iter().find(|form| form.after.flags.contains(&"again"));
    let again = *again.expect("a rectifier makes its norm again");
    let reading = |read| {
        let after = CallPattern { read, ..again.after };
        RewriteForm { after, ..again }
    };
    let gradients = of(Rewrite::AffineGradients);
    let wrong = [
        after(Rewrite::Affine, "affine_relu", map),
        after(Rewrite::AffineRelu, "affine", map),
        after(Rewrite::AffineGeluTanh, "affine_gelu", map),
        after(Rewrite::AffineAdd, "affine", map),
        after(Rewrite::MatmulGeluTanhBackward, "matmul", &["dz", "weight"]),
        RewriteForm {
            before: [gradients.before[0], {
                let [_, sums] = gradients.before;
                CallPattern { read: &["other"], ..sums }
            }],
            ..gradients
        },
        RewriteForm { after: CallPattern { flags: &["residual"], ..norm.after }, ..norm },
        RewriteForm {
            after: CallPattern {
                read: &["x", "gain", "mean", "variance", "dy", "y"],
                ..opened.after
            },
            ..opened
        },
        reading(&["x", "gain", "mean", "variance", "gain", "dy"]),
        reading(&["x", "gain", "mean", "variance", "bias", "x"]),
        RewriteForm {
            after: CallPattern {
                flags: &[],
                read: &["x", "gain", "mean", "variance", "dy"],
                ..again.after
            },
            ..again
        },
        after(Rewrite::GatherOfScatter, "copy", &["x"]),
        after(Rewrite::GatherOfPart, "all_reduce", &["x"]),
        after(Rewrite::PartOfSum, "part", &["x"]),
    ];
    for form in wrong {
        assert!(!always_holds(&form, &mut Numbers(5)), "{form}");
    }
}

/// The table of the documents has every form, as it is.
#[test]
fn every_rule_is_written_down() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rewrites.md");
    let text = std::fs::read_to_string(folder).expect("the document is there");
    for form in &FORMS {
        let row = format!("| `{}` | `{form}` |", form.rewrite);
        assert!(text.contains(&row), "{row}");
    }
    let rows = text.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, FORMS.len());
}
