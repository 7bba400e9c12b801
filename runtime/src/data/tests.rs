//! What every source of data must keep: the same examples for every split, and no leak of
//! held-out tokens.

use super::*;
use crate::scratch::Scratch;
use roundelay_schedule::{
    Evaluation, Float, Id, Input, Method, Optimizer, Origin, Rate, Table, TokenWidth,
};

/// A job that trains nothing; its batch is four.
pub(crate) fn job(data: Data, inputs: &[Input]) -> Job {
    Job {
        model: "none".into(),
        data,
        batch: 4,
        seed: 7,
        steps: 1,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Sgd { momentum: 0.0, nesterov: false },
            rate: Rate::Constant(0.1),
            weight_decay: 0.0,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
        inputs: inputs.iter().cloned().collect(),
        metrics: Vec::new(),
        parameters: Vec::new(),
        elements: Table::new(),
    }
}

/// An input.
pub(crate) fn input(name: &str, element: Element, shape: &[u64], bound: u64) -> Input {
    Input {
        name: name.into(),
        element,
        shape: shape.to_vec(),
        bound,
        origin: Origin::Data,
    }
}

fn id(index: usize) -> InputId {
    InputId::new(index)
}

/// Token inputs of micro-batches of `examples` examples.
fn pair(examples: u64, sequence: u64, bound: u64) -> [Input; 2] {
    ["tokens", "targets"]
        .map(|name| input(name, Element::I32, &[examples, sequence], bound))
}

fn text(folder: &Scratch, globs: &[&str]) -> Data {
    let root = folder.path().to_str().unwrap().to_string();
    Data::Text { root, globs: globs.iter().map(ToString::to_string).collect() }
}

/// All numbers of an input in micro-batches `micro_batches`.
fn numbers(
    feed: &mut impl Feed,
    input: usize,
    t: u64,
    micro_batches: std::ops::Range<u64>,
    count: usize,
) -> Vec<i32> {
    let mut all = Vec::new();
    for micro_batch in micro_batches {
        let mut bytes = vec![0xab; 4 * count];
        feed.fill(id(input), t, micro_batch, &mut bytes);
        let (words, _) = bytes.as_chunks::<4>();
        all.extend(words.iter().map(|word| i32::from_ne_bytes(*word)));
    }
    all
}

/// Distinct two-byte tokens 0, 1, 2, …: a token tells its position.
fn counting(name: &str, tokens: u16) -> (Scratch, Data) {
    let folder = Scratch::new(name);
    let bytes: Vec<u8> = (0..tokens).flat_map(u16::to_le_bytes).collect();
    folder.write("count.bin", &bytes);
    let root = folder.path().to_str().unwrap().to_string();
    let data = Data::Tokens { root, file: "count.bin".into(), width: TokenWidth::U16 };
    (folder, data)
}

#[test]
fn targets_follow_tokens_and_windows_stay_in_the_training_part() {
    let (_folder, data) = counting("data-windows", 1000);
    let mut data = Dataset::open(&job(data, &pair(4, 6, 1000)), None).unwrap();
    let mut starts = std::collections::BTreeSet::new();
    for t in 0..2000 {
        let tokens = numbers(&mut data, 0, t, 0..1, 24);
        let targets = numbers(&mut data, 1, t, 0..1, 24);
        for (tokens, targets) in tokens.chunks(6).zip(targets.chunks(6)) {
            assert!(tokens.iter().zip(targets).all(|(a, b)| a + 1 == *b));
            assert!(tokens.windows(2).all(|w| w[0] + 1 == w[1]));
            assert!(targets[5] < 900, "the last tenth is held out");
            starts.insert(tokens[0]);
        }
    }
    assert_eq!((starts.first(), starts.last()), (Some(&0), Some(&893)));
}

#[test]
fn examples_do_not_depend_on_the_split() {
    let (_folder, tokens) = counting("data-split", 500);
    let pairs: fn(u64) -> Vec<Input> = |b| pair(b, 5, 500).to_vec();
    let mixed: fn(u64) -> Vec<Input> = |b| {
        let x = input("x", Element::Real, &[b, 5], 0);
        vec![x, input("y", Element::I32, &[b, 5], 3)]
    };
    let pictures: fn(u64) -> Vec<Input> = |b| {
        let x = input("images", Element::Real, &[b, 16, 16, 3], 0);
        vec![x, input("targets", Element::I32, &[b], 3)]
    };
    let shapes = Data::Shapes { classes: 3, size: 16, seed: 1 };
    let sources = [
        (tokens, pairs),
        (Data::Synthetic, pairs),
        (Data::Synthetic, mixed),
        (shapes, pictures),
    ];
    for (data, inputs) in sources {
        let all = |b: u64, input: usize| {
            let mut data = Dataset::open(&job(data.clone(), &inputs(b)), None).unwrap();
            let count = inputs(b)[input].shape.iter().product::<u64>() as usize;
            let step = numbers(&mut data, input, 3, 0..4 / b, count);
            let mut held_out = data.held_out(12).unwrap();
            let micro_batches = held_out.micro_batches();
            let seen = numbers(&mut held_out, input, 0, 0..micro_batches, count);
            (step, seen)
        };
        let whole = Dataset::open(&job(data.clone(), &inputs(4)), None).unwrap();
        let mut cut = whole.cut_for(&job(data.clone(), &inputs(2)));
        for input in 0..2 {
            let count = inputs(2)[input].shape.iter().product::<u64>() as usize;
            assert_eq!(numbers(&mut cut, input, 3, 0..2, count), all(2, input).0);
            assert_eq!(all(4, input), all(1, input));
            assert_eq!(all(4, input), all(2, input));
            assert!(!all(1, input).1.is_empty());
        }
    }
}

#[test]
fn examples_depend_on_seed_and_step() {
    let (_folder, data) = counting("data-seed", 500);
    for data in [data, Data::Synthetic] {
        let mut job = job(data, &pair(4, 5, 500));
        let mut first = Dataset::open(&job, None).unwrap();
        let tokens = numbers(&mut first, 0, 0, 0..1, 20);
        assert_eq!(tokens, numbers(&mut first.clone(), 0, 0, 0..1, 20));
        assert_ne!(tokens, numbers(&mut first, 0, 1, 0..1, 20));
        job.seed += 1;
        let mut second = Dataset::open(&job, None).unwrap();
        assert_ne!(tokens, numbers(&mut second, 0, 0, 0..1, 20));
    }
}

#[test]
fn held_out_windows_are_fixed_apart_and_spread() {
    let (_folder, data) = counting("data-held-out", 1000);
    let data = Dataset::open(&job(data, &pair(2, 6, 0)), None).unwrap();
    let mut held_out = data.held_out(10).unwrap();
    assert_eq!(held_out.micro_batches(), 4, "two batches of four examples");
    let tokens = numbers(&mut held_out, 0, 5, 0..4, 12);
    assert_eq!(tokens, numbers(&mut held_out, 0, 9, 0..4, 12), "whatever the step");
    let starts: Vec<i32> = tokens.chunks(6).map(|window| window[0]).collect();
    assert_eq!(starts[0], 900);
    assert!(starts.windows(2).all(|w| w[0] + 7 <= w[1]), "{starts:?}");
    assert!(starts[7] > 975 && starts[7] + 7 <= 1000, "{starts:?}");
    let few = data.held_out(1).unwrap();
    assert_eq!(few.micro_batches(), 2, "one batch at least");
}

/// Every class is met about as often as it is there, however classes come one after another.
#[test]
fn images_are_looked_at_round_and_round() {
    for windows in [1, 2, 3, 10, 997, 10_000] {
        let spread = Spread::Round(golden_distance(windows));
        let places = Places { windows, examples: windows, spread };
        let all: std::collections::BTreeSet<u64> =
            (0..windows).map(|place| places.index(place)).collect();
        assert_eq!(all.len() as u64, windows, "each once before any twice");
        let more = Places { examples: 2 * windows, ..places };
        assert!((0..windows).all(|place| places.index(place) == more.index(place)));
    }
    let (windows, examples) = (10_000, 1000);
    let places =
        Places { windows, examples, spread: Spread::Round(golden_distance(windows)) };
    let classes: [fn(u64) -> u64; 3] =
        [|image| image / 1000, |image| image % 10, |image| image / 10 % 10];
    for class in classes {
        let mut met = [0; 10];
        (0..examples).for_each(|place| met[class(places.index(place)) as usize] += 1);
        assert!(met.iter().all(|met| (98..=102).contains(met)), "{met:?}");
    }
}

#[test]
fn a_short_held_out_part_repeats_windows_or_is_an_error() {
    let (_folder, data) = counting("data-short", 100);
    let mut job = job(data, &pair(2, 4, 0));
    let mut held_out = Dataset::open(&job, None).unwrap().held_out(64).unwrap();
    let tokens = numbers(&mut held_out, 0, 0, 0..2, 8);
    let starts: Vec<i32> = tokens.chunks(4).map(|window| window[0]).collect();
    assert_eq!(starts, [90, 90, 95, 95]);
    job.inputs = pair(2, 10, 0).into_iter().collect();
    let error = Dataset::open(&job, None).unwrap().held_out(64).unwrap_err();
    assert!(matches!(error, DataError::TooShort { part: "held-out", .. }), "{error}");
    job.inputs = pair(2, 90, 0).into_iter().collect();
    let error = Dataset::open(&job, None).unwrap_err();
    assert!(matches!(error, DataError::TooShort { needed: 91, found: 90, .. }));
    job.inputs = pair(2, u64::MAX, 0).into_iter().collect();
    assert!(Dataset::open(&job, None).is_err());
}

#[test]
fn another_root_can_be_given() {
    let [here, there] = ["data-here", "data-there"].map(Scratch::new);
    here.write("a.txt", &[b'a'; 100]);
    there.write("a.txt", &[b'b'; 100]);
    let job = job(text(&here, &["*.txt"]), &pair(1, 4, 256));
    let mut own = Dataset::open(&job, None).unwrap();
    let mut other = Dataset::open(&job, Some(there.path())).unwrap();
    assert_eq!(numbers(&mut own, 0, 0, 0..1, 4), [97; 4]);
    assert_eq!(numbers(&mut other, 0, 0, 0..1, 4), [98; 4]);
    assert_ne!(own.digest(), other.digest());
    assert_eq!(own.tokens(), Some((90, 10)));
}

#[test]
fn bytes_that_are_read_otherwise_are_other_data() {
    let folder = Scratch::new("data-widths");
    folder.write("a.bin", &[0; 128]);
    let digest = |width| {
        let root = folder.path().display().to_string();
        let data = Data::Tokens { root, file: "a.bin".to_owned(), width };
        Dataset::open(&job(data, &pair(1, 4, 256)), None).unwrap().digest()
    };
    assert_ne!(digest(TokenWidth::U8), digest(TokenWidth::U16));
    assert_eq!(digest(TokenWidth::U8), digest(TokenWidth::U8));
}

/// It would be left unread without a word.
#[test]
fn another_root_is_refused_where_it_changes_nothing() {
    let folder = Scratch::new("data-absolute");
    folder.write("a.txt", &[b'a'; 100]);
    let (root, path) = (String::new(), folder.path().join("a.txt").display().to_string());
    let mixed = vec!["*.txt".to_owned(), path.clone()];
    for data in [
        Data::Text { root: root.clone(), globs: mixed },
        Data::Tokens { root: root.clone(), file: path.clone(), width: TokenWidth::U8 },
        Data::Images { root, folder: path.clone() },
        Data::Synthetic,
    ] {
        let job = job(data, &pair(1, 4, 256));
        let error = Dataset::open(&job, Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("drop --data"), "{error}");
        let is_named = error.contains(&format!("the absolute path `{path}`"));
        assert_eq!(is_named, job.data != Data::Synthetic, "{error}");
    }
}

#[test]
fn mistakes_are_errors_with_a_hint() {
    let folder = Scratch::new("data-mistakes");
    folder.write("a.txt", "zwölf Boxkämpfer jagen Viktor".as_bytes());
    let open = |data, inputs: &[Input]| Dataset::open(&job(data, inputs), None);
    let cases = [
        (open(text(&folder, &["*.rs"]), &pair(1, 4, 256)), "--data DIR"),
        (open(text(&folder, &["*.txt"]), &pair(1, 4, 128)), "byte 2: token 195"),
        (open(text(&folder, &["*.txt"]), &[]), "this model has no input"),
        (open(text(&folder, &["*.txt"]), &pair(1, 64, 256)), "shorten the sequence"),
        (open(Data::Synthetic, &pair(1, u64::MAX, 256)), "elements per example"),
    ];
    for (result, expected) in cases {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn reals_come_in_the_type_of_the_job() {
    let inputs =
        [input("x", Element::Real, &[2, 3], 0), input("y", Element::Real, &[2, 1], 0)];
    let mut job = job(Data::Synthetic, &inputs);
    let mut single = Dataset::open(&job, None).unwrap();
    job.dtype = Float::F64;
    let mut double = Dataset::open(&job, None).unwrap();
    for (input, count) in [(0, 6), (1, 2)] {
        let [mut narrow, mut wide] = [vec![0; 4 * count], vec![0; 8 * count]];
        single.fill(id(input), 1, 1, &mut narrow);
        double.fill(id(input), 1, 1, &mut wide);
        for (narrow, wide) in narrow.chunks_exact(4).zip(wide.chunks_exact(8)) {
            let narrow = f32::from_ne_bytes(narrow.try_into().unwrap());
            let wide = f64::from_ne_bytes(wide.try_into().unwrap());
            assert_eq!(narrow, wide as f32);
        }
    }
}
