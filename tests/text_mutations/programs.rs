//! Damaged programs; and where one can be formatted, that is done once and changes no meaning.

use crate::{
    damage::{Damage, both_pieces},
    memory::{self, peak},
    random::Random,
};
use roundelay_dsl::{
    Diagnostic, NoFiles, Program, SourceFile, SourcePlace, format, parse,
};

const TEXTS: usize = 20_000;

/// A small one that can be planned.
pub(crate) const PROGRAM: &str = "\
model m {
    input x: real[batch, 4]
    z = x
    repeat 1 as i { z = z + linear(z, 4) }
    loss mse(z, x)
}
device d { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
link l { bandwidth 1 GB/s, latency 1 us }
cluster c { 4 x d joined by l }
train { data synthetic, batch 8, optimizer sgd(lr = 0.1), steps 4 }
plan { rule sync, placement accumulate, stages 1, micro_batches 2, memory <= 1 GB }
";

const SEEDS: [&str; 5] = [
    PROGRAM,
    include_str!("../../examples/quickstart.rdl"),
    r#"import "roundelay:devices/a100.rdl"
link nvlink     { bandwidth 300 GB/s, latency 2.5 us }
link infiniband { bandwidth 25 GB/s, latency 5 us }
cluster selene { node = 8 x a100 joined by nvlink, 64 x node joined by infiniband }
plan {
    minimize  step_time
    tensor    { rows <= 8, columns 1 }
    stages    8 | 16 .. 32
    recompute selective | none
}
model m { input x: real[batch, 2], loss mse(linear(x, 2), x) }
"#,
    r#"block mlp(x, width, rate) {
    inner = dropout(relu(linear(x, 4 * width)), rate)
    return linear(inner, width, bias = false)
}
model m {
    shape = [batch, 8]    # a list
    input x: real[batch, 2, 4]
    input y: real[batch, 8]
    param gain: [8] = uniform(bound = 0.5)
    z = reshape(x, [shape[0], shape[1]])
    repeat 3 as i { z = z + mlp(z * gain, 8, rate = 0.1 * i) }
    loss mse(-z / 2, y) + 0.5 * mse(softmax(z), y)
}
train { data synthetic, optimizer sgd(step(0.1, 0.5, 10), momentum = 0.9, no_decay = ["mlp.*"]) }
plan  { cuts [1, 2], rule cyclic(slack = 1) | sync, devices >= 2 }
"#,
    r#"model m {
    ,
    input x: real[batch, 8],,

    ,
    y = (x
        + x
        - x # of three
        - x),,
    loss mse(linear(
        - y, 8), x)
},
train {
    batch 4

    , # alone
    steps 3,, seed 1,
}
,
"#,
];

/// Pieces of one language alone.
const SCRAPS: [&str; 23] = [
    "+",
    "-",
    "*",
    "/",
    "<=",
    "repeat 9999999999 {",
    "x",
    "batch",
    "4",
    "1e308",
    "99999999999999999999",
    "0",
    "GB",
    "us",
    "# ",
    "model",
    "train",
    "linear(",
    "as",
    "§",
    "return x",
    "sharing",
    "repeat 99999 {",
];

/// What a text says, or all that is wrong with it, each with places in the text.
fn meaning(text: &str) -> Result<Program, Vec<String>> {
    let said = parse(&SourceFile::new("x.rdl", text), &NoFiles);
    let told = |wrong: &Diagnostic| {
        let places = wrong.labels.iter().map(|(place, _)| place);
        for place in places.chain([&*wrong.place]) {
            assert!(is_in(place, text), "{place:?} in\n{text}");
        }
        wrong.message.clone()
    };
    said.map(|(program, _)| program).map_err(|wrong| wrong.iter().map(told).collect())
}

fn is_in(place: &SourcePlace, text: &str) -> bool {
    let line = (place.line as usize).checked_sub(1);
    let line = line.and_then(|line| text.split('\n').nth(line));
    line.is_some_and(|line| {
        (1..=line.chars().count() + 1).contains(&(place.column as usize))
    })
}

/// Looks at a text as everyone would; whether it is a program.
fn look_at(text: &str) -> bool {
    let meant = meaning(text);
    match format(text) {
        Ok(once) => {
            assert_eq!(format(&once).as_ref(), Ok(&once), "from\n{text}");
            assert_eq!(meaning(&once), meant, "from\n{text}\nto\n{once}");
        }
        Err(_) => assert!(meant.is_err(), "{text}"),
    }
    let is_told = |wrong: &Vec<String>| {
        !wrong.is_empty() && wrong.iter().all(|own| !own.is_empty())
    };
    assert!(meant.as_ref().err().is_none_or(is_told), "{text}");
    meant.is_ok()
}

#[test]
fn damaged_programs_end_soon_and_small() {
    assert!(look_at(PROGRAM));
    assert!(SEEDS.iter().filter(|text| look_at(text)).count() >= 3);
    let originals: Vec<_> = SEEDS.iter().flat_map(|text| both_pieces(text)).collect();
    let mut random = Random::new(1);
    let mut accepted = 0;
    for original in originals.iter().cycle().take(TEXTS) {
        let text = Damage(&SCRAPS).to(original, &mut random);
        let held = peak(|| accepted += usize::from(look_at(&text)));
        assert!(held <= memory::MOST, "{held} bytes for\n{text}");
    }
    assert!(accepted > TEXTS / 100, "some damage is harmless: {accepted}");
}
