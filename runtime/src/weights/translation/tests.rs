//! Arrays of another program become parameters and come back, and every mistake is named.

use super::*;
use crate::{
    State,
    scratch::Scratch,
    weights::tests::{Row, convolving, file, kept, numbers, stored},
};
use std::{fs, path::PathBuf};

fn parameter(name: &str, shape: &[u64]) -> TwinParameter {
    let (name, shape) = (name.to_owned(), shape.to_vec());
    TwinParameter { name, shape, kind: ParameterKind::Plain }
}

fn twin(names: &[&str], layout: TwinLayout, parameters: Vec<TwinParameter>) -> Twin {
    let mut names = names.iter().map(|name| (*name).to_owned());
    let name = names.next().unwrap();
    Twin { name, older: names.collect(), parameters, layout }
}

/// An array of each layout.
fn translation() -> Translation {
    use TwinLayout::{LessOne, Same, Transposed, Within};
    Translation {
        twins: vec![
            twin(&["base.table", "table"], Same, vec![parameter("table", &[3, 2])]),
            twin(
                &["pair.weight"],
                Transposed,
                vec![parameter("a.weight", &[1, 2]), parameter("b.weight", &[2, 2])],
            ),
            twin(
                &["pair.bias"],
                Transposed,
                vec![parameter("a.bias", &[1]), parameter("b.bias", &[2])],
            ),
            twin(&["token"], Within(2), vec![parameter("x.token", &[2])]),
            twin(&["norm"], LessOne, vec![parameter("norm.gain", &[2])]),
        ],
        idle: vec![".mask".to_owned()],
        skipped: BTreeSet::from(["planned".to_owned()]),
    }
}

/// The arrays of the translation, all of one type: the numbers 0, 1, … of each.
fn theirs(dtype: Dtype) -> Vec<Row<'static>> {
    let row = |name, shape: &'static [usize]| {
        let count: usize = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|number| number as f64).collect();
        (name, dtype, shape, stored(dtype, &values).0)
    };
    vec![
        row("table", &[3, 2]),
        row("pair.weight", &[2, 3]),
        row("pair.bias", &[3]),
        row("token", &[1, 1, 2]),
        row("norm", &[2]),
    ]
}

fn opened(scratch: &Scratch, rows: &[Row<'_>]) -> WeightsFiles {
    scratch.write("theirs", &file(rows));
    WeightsFiles::open(&scratch.path().join("theirs")).unwrap()
}

fn output(scratch: &Scratch, name: &str) -> (PathBuf, OutputFile) {
    let path = scratch.path().join(name);
    (path.clone(), OutputFile::new(&path).unwrap())
}

/// What a file has, by name.
fn arrays(path: &std::path::Path) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let array = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    file.tensors().into_iter().map(array).collect()
}

#[test]
fn every_layout_goes_both_ways_in_every_type() {
    let scratch = Scratch::new("translation-layouts");
    for dtype in [Dtype::F64, Dtype::F32, Dtype::BF16, Dtype::F16] {
        let files = opened(&scratch, &theirs(dtype));
        let (ours, output_ours) = output(&scratch, "ours");
        assert!(translation().ours(&files, &output_ours).unwrap().is_empty());
        let found = arrays(&ours);
        let expect = |name: &str, shape: &[usize], values: &[f64], dtype| {
            let expected = (dtype, shape.to_vec(), stored(dtype, values).0);
            assert_eq!(found[name], expected, "{name}");
        };
        expect("table", &[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], dtype);
        expect("a.weight", &[1, 2], &[0.0, 3.0], dtype);
        expect("b.weight", &[2, 2], &[1.0, 4.0, 2.0, 5.0], dtype);
        expect("a.bias", &[1], &[0.0], dtype);
        expect("b.bias", &[2], &[1.0, 2.0], dtype);
        expect("x.token", &[2], &[0.0, 1.0], dtype);
        let wide = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        expect("norm.gain", &[2], &[1.0, 2.0], wide);
        let (back, output_back) = output(&scratch, "back");
        let own = Weights::open(&ours).unwrap();
        translation().theirs(&own, &output_back).unwrap();
        let mut expected = arrays(&scratch.path().join("theirs"));
        let table = expected.remove("table").unwrap();
        expected.insert("base.table".to_owned(), table);
        let norm = (wide, vec![2], stored(wide, &[0.0, 1.0]).0);
        expected.insert("norm".to_owned(), norm);
        assert_eq!(arrays(&back), expected);
    }
}

/// Everything that does not fit, in words.
fn mistakes(error: TranslationError) -> Vec<String> {
    let TranslationError::Weights(WeightsError::Mismatch { mistakes, .. }) = error else {
        panic!("{error}")
    };
    mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn everything_that_does_not_fit_is_named_and_nothing_is_written() {
    let scratch = Scratch::new("translation-mistakes");
    let mut rows = theirs(Dtype::F32);
    rows[0].0 = "base.tabel";
    rows[3] = ("token", Dtype::F32, &[2], rows[3].3.clone());
    rows[4] = ("norm", Dtype::I64, &[2], vec![0; 16]);
    let files = opened(&scratch, &rows);
    let (path, to) = output(&scratch, "ours");
    let found = mistakes(translation().ours(&files, &to).unwrap_err());
    let expected = [
        "`base.table` is missing; nearest is `base.tabel`",
        "`token` has shape [2] in the file, the model wants [1, 1, 2]",
        "`norm` holds i64 numbers; f32, f64, bf16 and f16 are read",
    ];
    assert_eq!(found, expected);
    assert!(!path.exists());
}

#[test]
fn arrays_without_a_parameter_are_told_unless_they_hold_nothing() {
    let scratch = Scratch::new("translation-rest");
    let mut rows = theirs(Dtype::F32);
    rows.push(("layer.mask", Dtype::U8, &[1], vec![1]));
    rows.push(("pooler", Dtype::F32, &[1], vec![0; 4]));
    rows.push(("planned", Dtype::F32, &[1], vec![0; 4]));
    rows.push(("unplanned", Dtype::F32, &[1], vec![0; 4]));
    // The newer name of an array is taken, and the older one is left.
    rows.push(("base.table", Dtype::F32, &[3, 2], vec![0; 24]));
    let files = opened(&scratch, &rows);
    let (path, to) = output(&scratch, "ours");
    assert_eq!(
        translation().ours(&files, &to).unwrap(),
        ["pooler", "table", "unplanned"]
    );
    assert_eq!(arrays(&path)["table"].2, [0; 24]);
}

#[test]
fn what_begins_as_it_is_drawn_is_not_asked_for() {
    let scratch = Scratch::new("translation-fresh");
    let rows = &theirs(Dtype::F32)[..4];
    let fresh = ["norm".to_owned(), "a.bias".to_owned()];
    let translation = translation().without(&fresh).unwrap();
    let (path, to) = output(&scratch, "ours");
    assert!(translation.ours(&opened(&scratch, rows), &to).unwrap().is_empty());
    let found = arrays(&path);
    assert!(!found.contains_key("norm.gain") && found.contains_key("a.bias"));
    let found = translation.without(&["x.tokn".to_owned(), "b".to_owned()]);
    let told = found.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told, ["no parameter lies in `x.tokn`; nearest is `x.token`"]);
}

/// What a description leaves open is no array and no panic.
#[test]
fn descriptions_may_be_empty() {
    let scratch = Scratch::new("translation-empty");
    let rows = [
        ("nothing", Dtype::F32, &[0][..], vec![]),
        ("scalar", Dtype::F32, &[], vec![0, 0, 128, 63]),
    ];
    let files = opened(&scratch, &rows);
    let nothing = twin(&["nothing"], TwinLayout::Same, vec![]);
    let scalar = twin(&["scalar"], TwinLayout::LessOne, vec![parameter("one", &[])]);
    let translation =
        Translation { twins: vec![nothing, scalar], ..Translation::default() };
    let (ours, to) = output(&scratch, "ours");
    assert!(translation.ours(&files, &to).unwrap().is_empty());
    assert_eq!(arrays(&ours)["one"].2, 2_f32.to_le_bytes());
    let (back, to) = output(&scratch, "back");
    translation.theirs(&Weights::open(&ours).unwrap(), &to).unwrap();
    assert_eq!(arrays(&back), arrays(&scratch.path().join("theirs")));
}

#[test]
fn descriptions_that_no_array_can_keep_are_refused() {
    use TwinLayout::{Same, Transposed};
    let scratch = Scratch::new("translation-unsound");
    let files = opened(&scratch, &theirs(Dtype::F32));
    scratch.write("ours", &file(&[]));
    let own = Weights::open(&scratch.path().join("ours")).unwrap();
    let (_, to) = output(&scratch, "out");
    for (layout, shapes) in [
        (Transposed, &[&[2, 2, 2][..]][..]),
        (Same, &[&[1, 2], &[1, 3]]),
        (Same, &[&[1, 2], &[2]]),
        (Same, &[&[], &[]]),
        (Same, &[&[1, 1 << 63]]),
        (Same, &[&[1 << 59], &[1 << 59], &[1 << 59], &[1 << 59]]),
    ] {
        let parameters = shapes.iter().map(|shape| parameter("a", shape)).collect();
        let twins = vec![twin(&["pair.weight"], layout, parameters)];
        let translation = Translation { twins, ..Translation::default() };
        let expected = "the description of `pair.weight` does not hold";
        for error in [
            translation.ours(&files, &to).unwrap_err(),
            translation.theirs(&own, &to).unwrap_err(),
        ] {
            let told = error.to_string();
            assert!(told.contains(expected), "{shapes:?}: {told}");
        }
    }
}

/// Weights of another model are told as such, instead of what to do about each array.
#[test]
fn weights_of_another_model_are_told_as_such() {
    let scratch = Scratch::new("translation-other");
    let files = opened(&scratch, &theirs(Dtype::F32)[..2]);
    let (_, to) = output(&scratch, "ours");
    let told = translation().ours(&files, &to).unwrap_err().to_string();
    assert!(told.ends_with("of another model than the configuration says"), "{told}");
    // All are there, in a type that is not read.
    let mut rows = theirs(Dtype::F32);
    rows.iter_mut().for_each(|row| row.1 = Dtype::I32);
    let told = translation().ours(&opened(&scratch, &rows), &to).unwrap_err().to_string();
    assert!(
        told.ends_with("`norm` holds i32 numbers; f32, f64, bf16 and f16 are read"),
        "{told}"
    );
}

#[test]
fn mistakes_of_a_file_of_ours_are_named() {
    let scratch = Scratch::new("translation-ours");
    let row = |name, dtype, shape, count| {
        (name, dtype, shape, stored(dtype, &numbers(count)).0)
    };
    let rows = [
        row("table", Dtype::F32, &[3, 2][..], 6),
        row("a.weight", Dtype::F32, &[1, 2], 2),
        row("b.weight", Dtype::BF16, &[2, 2], 4),
        row("a.bias", Dtype::F32, &[1], 1),
        row("b.bais", Dtype::F32, &[2], 2),
        row("x.token", Dtype::F32, &[3], 3),
        row("norm.gain", Dtype::F32, &[2], 2),
        row("unit0.head.linear.weight", Dtype::F32, &[2], 2),
    ];
    scratch.write("ours", &file(&rows));
    let own = Weights::open(&scratch.path().join("ours")).unwrap();
    let (_, to) = output(&scratch, "back");
    let expected = [
        "`b.bais` is not a parameter of the model; nearest is `b.bias`",
        "the parameters of `pair.weight` hold f32 and bf16 numbers, but are one array",
        "`b.bias` is missing; nearest is `a.bias`",
        "`x.token` has shape [3] in the file, the model wants [2]",
    ];
    assert_eq!(mistakes(translation().theirs(&own, &to).unwrap_err()), expected);
}

/// Checkpoints have filters in our order, files of weights in that of PyTorch.
#[test]
fn filters_of_a_checkpoint_are_turned() {
    let scratch = Scratch::new("translation-filters");
    let job = convolving();
    let own = &job.parameters[0];
    let (name, shape) = (own.name.clone(), own.shape.clone());
    let filters = TwinParameter { name, shape, kind: ParameterKind::Filters };
    let twins = vec![twin(&["conv.weight"], TwinLayout::Same, vec![filters])];
    let translation = Translation { twins, ..Translation::default() };
    let state = State::initial(&job);
    let checkpoint = kept(&scratch, &job, &state);
    let (weights, to) = output(&scratch, "weights");
    state.write_weights(&job, &to).unwrap();
    let expected = arrays(&weights).remove(&own.name).unwrap();
    assert_eq!(expected.1, [6, 3, 1, 2]);
    for file in [weights, checkpoint] {
        let (back, to) = output(&scratch, "back");
        translation.theirs(&Weights::open(&file).unwrap(), &to).unwrap();
        assert_eq!(arrays(&back)["conv.weight"], expected);
    }
}

#[test]
fn several_files_are_read_by_their_index() {
    let scratch = Scratch::new("translation-index");
    let rows = theirs(Dtype::F32);
    scratch.write("one.safetensors", &file(&rows[..2]));
    scratch.write("two.safetensors", &file(&rows[2..]));
    let open = |index: &str| {
        scratch.write("model.safetensors.index.json", index.as_bytes());
        WeightsFiles::open(scratch.path())
    };
    let files = open(
        r#"{"metadata": {"total_size": 1}, "weight_map": {
            "table": "one.safetensors", "pair.weight": "one.safetensors",
            "pair.bias": "two.safetensors", "norm": "two.safetensors"}}"#,
    );
    let (path, to) = output(&scratch, "ours");
    let files = files.unwrap();
    assert_eq!(files.files().len(), 3);
    assert!(translation().ours(&files, &to).unwrap().is_empty());
    assert_eq!(arrays(&path).len(), 7);
    scratch.write("three.safetensors", &file(&rows[..1]));
    for (index, expected) in [
        ("{", "does not say where weights lie: EOF"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map": {"a": "../one.safetensors"}}"#, "is not a file beside it"),
        (r#"{"weight_map": {"a": "/dev/null"}}"#, "is not a file beside it"),
        (r#"{"weight_map": {"a": "four.safetensors"}}"#, "cannot read `"),
        (
            r#"{"weight_map": {"a": "one.safetensors", "b": "three.safetensors"}}"#,
            "several of its files have `table`",
        ),
    ] {
        let told = open(index).unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    }
    fs::remove_file(scratch.path().join("model.safetensors.index.json")).unwrap();
    let told = WeightsFiles::open(scratch.path()).unwrap_err().to_string();
    assert!(told.contains("no weights lie in `"), "{told}");
}
