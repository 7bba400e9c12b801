//! Damaged programs: whatever the text, reading it ends with a program or with diagnostics, and
//! formatting what is right changes no meaning.

use crate::{
    damage::{Damage, pieces},
    random::Random,
};
use roundelay_dsl::{NoFiles, SourceFile, format, parse};

const SEEDS: [&str; 4] = [
    include_str!("quickstart.rdl"),
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

const SCRAPS: [&str; 36] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "\n",
    "=",
    "+",
    "-",
    "*",
    "/",
    "|",
    "..",
    "<=",
    ":",
    "repeat 9999999999 {",
    "x",
    "batch",
    "4",
    "1e308",
    "99999999999999999999",
    "0",
    "GB",
    "us",
    "\"",
    "# ",
    "model",
    "train",
    "linear(",
    "as",
    "§",
    "\u{0}",
    "return x",
    "sharing",
];

const DAMAGE: Damage<'_> =
    Damage { scraps: &SCRAPS, numbers: &["0", "1", "3", "7", "1e308", "-1"] };

#[test]
fn no_damaged_program_panics_or_hangs() {
    let seeds = SEEDS.map(pieces);
    let mut random = Random::new(1);
    let mut accepted = 0;
    for round in 0..20_000 {
        let text = DAMAGE.to(&seeds[round % seeds.len()], &mut random);
        match parse(&SourceFile::new("x.rdl", text.as_str()), &NoFiles) {
            Ok(_) => accepted += 1,
            Err(wrong) => assert!(wrong.iter().all(|d| !d.message.is_empty()), "{text}"),
        }
    }
    assert!(accepted > 100, "some damage is harmless: {accepted}");
}

#[test]
fn formatting_is_idempotent_and_keeps_meaning() {
    let seeds = SEEDS.map(pieces);
    let mut random = Random::new(2);
    for round in 0..3_000 {
        let text = match round < SEEDS.len() {
            true => SEEDS[round].to_owned(),
            false => DAMAGE.to(&seeds[round % seeds.len()], &mut random),
        };
        let Ok(once) = format(&text) else { continue };
        let twice =
            format(&once).unwrap_or_else(|wrong| panic!("{text}\n{once}\n{wrong}"));
        assert_eq!(once, twice, "from\n{text}");
        let [before, after] = [&text, &once].map(|text| {
            parse(&SourceFile::new("x.rdl", text.as_str()), &NoFiles)
                .map(|(p, _)| p)
                .map_err(|d| d.iter().map(|d| d.message.clone()).collect::<Vec<_>>())
        });
        assert_eq!(before, after, "from\n{text}\nto\n{once}");
    }
}

#[test]
fn deep_and_long_texts_end() {
    let deep = |open: &str, close: &str| {
        format!("model m {{ x = {}1{} }}", open.repeat(100_000), close.repeat(100_000))
    };
    let repeats = "repeat 1000 { ".repeat(30);
    let texts = [
        deep("(", ")"),
        deep("[", "]"),
        deep("relu(", ")"),
        deep("-", ""),
        format!("model m {{ x = {}1 }}", "1 + ".repeat(100_000)),
        format!("model m {{ {repeats} y = 1 {} }}", "}".repeat(30)),
        format!("plan {}", "{ x ".repeat(100_000)),
        "block f(x) { return f(f(x)) } model m { y = f(1) }".to_owned(),
        "model m { y = [1, 1], repeat 1000 { y = [y, y] } }".to_owned(),
        "link l { bandwidth 1 B/s, latency 1 s } device d { memory 1 B, compute 1 FLOP/s, bandwidth 1 B/s }
         cluster c { a = 9999 x d joined by l, b = 9999 x a joined by l, 9999 x b }".to_owned(),
        "cluster c { a = 2 x b, b = 2 x a, 2 x a }".to_owned(),
        "{".repeat(100_000),
        "a".repeat(100_000),
    ];
    for text in texts {
        let start: String = text.chars().take(60).collect();
        assert!(parse(&SourceFile::new("x.rdl", text), &NoFiles).is_err(), "{start}");
    }
}

#[test]
fn large_texts_end() {
    let parts = [
        "(",
        "x = (\n",
        "1 + ",
        "x\n",
        "x = 1\n",
        "\u{0}",
        "\"",
        "linear(x, 8), ",
        "plan { rule sync }\n",
        "import \"a\"\n",
        "device d { memory 1 GB }\n",
        "}\n",
        "stepz 4\n",
        "a 1,",
        "input x: real[batch, 8]\n",
    ];
    for part in parts {
        for head in ["", "model m {\n", "train {\n"] {
            let text = format!("{head}{}", part.repeat(100_000 / part.len()));
            assert!(
                parse(&SourceFile::new("x.rdl", text), &NoFiles).is_err(),
                "{head}{part}"
            );
        }
    }
    let too_large =
        SourceFile::new("x.rdl", " ".repeat(roundelay_dsl::limit::FILE_BYTES + 1));
    assert!(parse(&too_large, &NoFiles).is_err());
    assert!(format(&too_large.text).is_err());
}

#[test]
fn long_lines_are_formatted_in_the_end() {
    for part in [
        "a = b[0], ",
        "repeat 1 { y = -1 }, ",
        "# x\n",
        "y = [1, 2] # x\n",
        "z = f(\n1), ",
    ] {
        let text = format!("model m {{ {} }}", part.repeat(300_000 / part.len()));
        let once = format(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(format(&once).as_ref(), Ok(&once), "{part}");
    }
}
