//! Weights come back as they were written, from every element type, and every mistake is named.

use super::*;
use crate::{
    Dataset, Provenance, checkpoint::Checkpoints, data::tests::job, scratch::Scratch,
};
use half::{bf16, f16};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{
    Belonging, Data, Division, Float, Id, Initial, Method, ParameterKind, Stage,
    Treatment,
};
use safetensors::{Dtype, tensor::TensorView};
use std::fs;

/// A job of two parameters.
fn trained(dtype: Float) -> Job {
    let parameter = |name: &str, shape: &[u64]| Parameter {
        belonging: Belonging::Model,
        name: name.into(),
        stage: Stage::new(0),
        offset: 0,
        shape: shape.to_vec(),
        kind: ParameterKind::Plain,
        split: Division::Whole,
        initial: Initial::Normal(1.0),
        treatment: Treatment::Decayed,
    };
    let mut job = job(Data::Synthetic, &[]);
    job.dtype = dtype;
    job.optimizer.method = Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
    job.parameters = vec![
        parameter("layer.query.weight", &[2, 3]),
        parameter("layer.query.bias", &[3]),
    ];
    job
}

/// An array of a file: name, type, shape, bytes.
pub(super) type Row<'a> = (&'a str, Dtype, &'a [usize], Vec<u8>);

pub(super) fn file(rows: &[Row<'_>]) -> Vec<u8> {
    let view = |(name, dtype, shape, bytes): &'_ Row<'_>| {
        ((*name).to_owned(), *dtype, shape.to_vec(), bytes.clone())
    };
    let rows: Vec<_> = rows.iter().map(view).collect();
    let views = rows.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

pub(super) fn numbers(count: usize) -> Vec<f64> {
    let stream = Stream::new(3, &[]);
    (0..count as u64).map(|k| 2.0 * stream.normal(k)).collect()
}

/// Numbers in a type, and what they are worth in it.
pub(super) fn stored(dtype: Dtype, values: &[f64]) -> (Vec<u8>, Vec<f64>) {
    let one = |value: &f64| match dtype {
        Dtype::F64 => (value.to_le_bytes().to_vec(), *value),
        Dtype::F32 => ((*value as f32).to_le_bytes().to_vec(), f64::from(*value as f32)),
        Dtype::BF16 => {
            let value = bf16::from_f64(*value);
            (value.to_le_bytes().to_vec(), value.to_f64())
        }
        _ => {
            let value = f16::from_f64(*value);
            (value.to_le_bytes().to_vec(), value.to_f64())
        }
    };
    let (bytes, worth): (Vec<_>, Vec<_>) = values.iter().map(one).unzip();
    (bytes.concat(), worth)
}

fn read(scratch: &Scratch, bytes: &[u8], job: &Job) -> Result<State, WeightsError> {
    scratch.write("weights.safetensors", bytes);
    Ok(Weights::open(&scratch.path().join("weights.safetensors"))?
        .state(job)?
        .held()
        .unwrap())
}

/// Everything that does not fit, in words.
fn mistakes(scratch: &Scratch, rows: &[Row<'_>]) -> Vec<String> {
    match read(scratch, &file(rows), &trained(Float::F32)) {
        Err(WeightsError::Mismatch { mistakes, .. }) => {
            mistakes.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// A model and its units differ in heads: one that is missing is as it is drawn, one too many is left out.
#[test]
fn a_model_and_its_units_exchange_weights() {
    const HEAD: &str = "unit0.head.linear.bias";
    let scratch = Scratch::new("weights-heads");
    let path = scratch.path().join("weights");
    let plain = trained(Float::F64);
    let mut local = plain.clone();
    let head =
        |name: &str| Parameter { name: name.into(), ..plain.parameters[1].clone() };
    local.parameters.push(Parameter { belonging: Belonging::Head, ..head(HEAD) });
    for (from, to, drawn) in [(&plain, &local, &[HEAD][..]), (&local, &plain, &[])] {
        let kept = State::initial(from);
        kept.write_weights(from, &OutputFile::new(&path).unwrap()).unwrap();
        let weights = Weights::open(&path).unwrap();
        assert_eq!(weights.drawn_heads(to), drawn);
        let state = weights.state(to).unwrap().held().unwrap();
        let fresh = State::initial(to);
        assert_eq!(
            state.tensors.keys().collect::<Vec<_>>(),
            fresh.tensors.keys().collect::<Vec<_>>()
        );
        assert!(to.parameters.iter().all(|own| {
            let source =
                if kept.tensors.contains_key(&own.name) { &kept } else { &fresh };
            state.tensors[&own.name] == source.tensors[&own.name]
        }));
    }
    // Only heads of units are, not what has such a name otherwise.
    let mut other = plain.clone();
    other.parameters.push(head("united.head.bias"));
    State::initial(&other)
        .write_weights(&other, &OutputFile::new(&path).unwrap())
        .unwrap();
    assert!(Weights::open(&path).unwrap().state(&plain).is_err());
    // What a model itself calls so is no head.
    let mut own = plain.clone();
    own.parameters.push(head(HEAD));
    State::initial(&plain)
        .write_weights(&plain, &OutputFile::new(&path).unwrap())
        .unwrap();
    let weights = Weights::open(&path).unwrap();
    assert!(weights.drawn_heads(&own).is_empty());
    let error = weights.state(&own).unwrap_err().to_string();
    assert!(error.contains("`unit0.head.linear.bias` is missing"), "{error}");
}

/// How much comes of a pipe or a device is known by nobody before its end.
#[test]
fn what_is_no_regular_file_is_not_called_damaged() {
    let error = Weights::open("/dev/null".as_ref()).unwrap_err().to_string();
    assert!(error.contains("it is not a regular file"), "{error}");
    let scratch = Scratch::new("weights-folder");
    let error = Weights::open(scratch.path()).unwrap_err().to_string();
    assert!(
        error.contains("it is a folder; name a file in it, such as `model."),
        "{error}"
    );
}

/// A list of names alone would not say that the whole file is of another kind.
#[test]
fn names_of_another_program_are_told_as_such() {
    let scratch = Scratch::new("weights-names");
    let told = |names: [&str; 2]| {
        let row = |name, shape, count| {
            (name, Dtype::F64, shape, stored(Dtype::F64, &numbers(count)).0)
        };
        let rows = [row(names[0], &[2, 3][..], 6), row(names[1], &[3], 3)];
        let read = read(&scratch, &file(&rows), &trained(Float::F64));
        read.expect_err("a name is another").to_string()
    };
    let foreign = told(["transformer.h.0.attn.weight", "transformer.h.0.attn.bias"]);
    assert!(foreign.contains("`run --save` writes"), "{foreign}");
    let slip = told(["layer.query.weight", "layer.query.bais"]);
    assert!(!slip.contains("another program"), "{slip}");
}

#[test]
fn what_is_written_comes_back() {
    let scratch = Scratch::new("weights-back");
    let path = scratch.path().join("kept.safetensors");
    for dtype in [Float::F32, Float::F64] {
        let job = trained(dtype);
        let drawn = State::initial(&Job { seed: 99, ..job.clone() });
        let older = |tensor: &mut crate::ParameterState| tensor.versions.push(vec![1; 4]);
        let mut trained = State { step: 7, origin: 2, ..drawn.clone() };
        trained.tensors.values_mut().for_each(older);
        let target = OutputFile::new(&path).unwrap();
        let mut short = drawn.clone();
        short.tensors.values_mut().for_each(|own| own.versions[0].truncate(1));
        let refused = short.write_weights(&job, &target).unwrap_err().to_string();
        assert!(refused.contains("its shape takes"), "{refused}");
        trained.write_weights(&job, &target).unwrap();
        assert_eq!(
            Weights::open(&path).unwrap().state(&job).unwrap().held().unwrap(),
            drawn
        );
    }
}

/// A job of six filters, each of one row, two columns and three channels.
pub(super) fn convolving() -> Job {
    let mut job = trained(Float::F32);
    job.parameters.truncate(1);
    job.parameters[0].shape = vec![6, 1, 2, 3];
    job.parameters[0].kind = ParameterKind::Filters;
    job
}

/// The order of PyTorch in files of weights, and our own in checkpoints.
#[test]
fn filters_have_channels_before_height_in_files_of_weights_alone() {
    const NAME: &str = "layer.query.weight";
    let scratch = Scratch::new("weights-filters");
    let job = convolving();
    let numbers = |order: [u8; 6]| -> Vec<u8> {
        let all = (0..6).flat_map(|filter| order.map(|place| 6 * filter + place));
        all.flat_map(|number| f32::from(number).to_le_bytes()).collect()
    };
    let (ours, theirs) = (numbers([0, 1, 2, 3, 4, 5]), numbers([0, 3, 1, 4, 2, 5]));
    let row = |shape| (NAME, Dtype::F32, shape, theirs.clone());
    let state = read(&scratch, &file(&[row(&[6, 3, 1, 2][..])]), &job).unwrap();
    let native = |number: &[u8; 4]| f32::from_le_bytes(*number).to_ne_bytes();
    let own: Vec<u8> = ours.as_chunks().0.iter().flat_map(native).collect();
    assert_eq!(state.tensors[NAME].versions, [own]);
    let written = encoded(&state, &job);
    assert!(written.ends_with(&theirs));
    assert_eq!(read(&scratch, &written, &job).unwrap(), state);
    let last = read(&scratch, &file(&[row(&[6, 1, 2, 3])]), &job).unwrap_err();
    let told = "has shape [6, 1, 2, 3] in the file, the model wants [6, 3, 1, 2]";
    assert!(last.to_string().contains(told), "{last}");
    let path = kept(&scratch, &job, &state);
    assert_eq!(Weights::open(&path).unwrap().state(&job).unwrap().held().unwrap(), state);
}

#[test]
fn every_real_type_is_read_as_the_nearest_number() {
    let scratch = Scratch::new("weights-types");
    let (weight, bias) = (numbers(6), vec![0.0, -1.5, 3.0]);
    for from in [Dtype::F64, Dtype::F32, Dtype::BF16, Dtype::F16] {
        let [(weight, worth), (bias, _)] = [&weight, &bias].map(|v| stored(from, v));
        let rows = [
            ("layer.query.weight", from, &[2, 3][..], weight),
            ("layer.query.bias", from, &[3], bias),
        ];
        let narrow = read(&scratch, &file(&rows), &trained(Float::F32)).unwrap();
        let expected: Vec<u8> =
            worth.iter().flat_map(|x| (*x as f32).to_ne_bytes()).collect();
        assert_eq!(narrow.tensors["layer.query.weight"].versions, [expected], "{from:?}");
        let wide = read(&scratch, &file(&rows), &trained(Float::F64)).unwrap();
        let expected: Vec<u8> = worth.iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(wide.tensors["layer.query.weight"].versions, [expected], "{from:?}");
        assert_eq!((wide.step, wide.origin), (0, 0));
        let zero = vec![vec![0; 48]; 2];
        assert_eq!(wide.tensors["layer.query.weight"].optimizer, zero);
    }
}

#[test]
fn every_mistake_is_named_with_the_nearest_name() {
    let scratch = Scratch::new("weights-mistakes");
    let f32s = |count: usize| vec![0; 4 * count];
    let found = mistakes(
        &scratch,
        &[
            ("layer.qery.weight", Dtype::F32, &[2, 3], f32s(6)),
            ("layer.query.bias", Dtype::F32, &[4], f32s(4)),
            ("something.else.altogether", Dtype::F32, &[1], f32s(1)),
            // A name that would clear the screen.
            ("\u{1b}[2J", Dtype::F32, &[1], f32s(1)),
        ],
    );
    assert_eq!(
        found,
        [
            r"`\u{1b}[2J` is not a parameter of the model",
            "`layer.qery.weight` is not a parameter of the model; nearest is `layer.query.weight`",
            "`something.else.altogether` is not a parameter of the model",
            "`layer.query.weight` is missing; nearest is `layer.qery.weight`",
            "`layer.query.bias` has shape [4] in the file, the model wants [3]",
        ]
    );
    let huge = [1.0, 1e300, 2.0].into_iter().flat_map(f64::to_le_bytes).collect();
    let found = mistakes(
        &scratch,
        &[
            ("layer.query.weight", Dtype::I64, &[2, 3], vec![0; 48]),
            ("layer.query.bias", Dtype::F64, &[3], huge),
        ],
    );
    assert_eq!(
        found,
        [
            "`layer.query.weight` holds i64 numbers; f32, f64, bf16 and f16 are read",
            "number 1 of `layer.query.bias` is too large for f32; set `dtype` to f64 or \
             clip it",
        ]
    );
    assert_eq!(mistakes(&scratch, &[]).len(), 2);
}

/// A file is looked through in blocks.
#[test]
fn a_number_that_is_too_large_is_found_wherever_it_stands() {
    const FAR: usize = 140_000;
    let scratch = Scratch::new("weights-far");
    let mut job = trained(Float::F32);
    job.parameters.truncate(1);
    job.parameters[0].shape = vec![FAR as u64 + 1];
    let mut values = vec![1.0; FAR + 1];
    values[FAR] = -1e300;
    let bytes = values.iter().copied().flat_map(f64::to_le_bytes).collect();
    let row = ("layer.query.weight", Dtype::F64, &[FAR + 1][..], bytes);
    let told = read(&scratch, &file(&[row]), &job).unwrap_err().to_string();
    assert!(
        told.contains("number 140000 of `layer.query.weight` is too large"),
        "{told}"
    );
}

fn encoded(state: &State, job: &Job) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, state, job).unwrap();
    bytes
}

#[test]
fn damaged_files_are_found_out_and_never_panic() {
    let scratch = Scratch::new("weights-damage");
    let job = trained(Float::F32);
    let whole = encoded(&State::initial(&job), &job);
    assert_eq!(read(&scratch, &whole, &job).unwrap(), State::initial(&job));
    for length in 0..whole.len() {
        let cut = read(&scratch, &whole[..length], &job);
        assert!(matches!(cut, Err(WeightsError::Damaged { .. })), "{length}: {cut:?}");
    }
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for bit in 0..8 * header {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // A letter of a name, or of the metadata, may have become another one.
        if let Err(error) = read(&scratch, &flipped, &job) {
            assert!(!error.to_string().is_empty());
        }
    }
    let error = Weights::open(&scratch.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, WeightsError::Read { .. }));
}

#[test]
fn what_a_damaged_file_has_too_much_or_too_little_of_is_told() {
    let scratch = Scratch::new("weights-length");
    let job = trained(Float::F32);
    let whole = encoded(&State::initial(&job), &job);
    let told = |bytes: &[u8]| read(&scratch, bytes, &job).unwrap_err().to_string();
    let cut = told(&whole[..whole.len() - 1]);
    assert!(cut.ends_with(": it ends too early"), "{cut}");
    let more = told(&[whole.as_slice(), b"more"].concat());
    assert!(more.ends_with(": 4 bytes stand behind its last array"), "{more}");
    let other = told(b"a text that is no such file");
    assert!(other.contains("its header would take"), "{other}");
}

/// The file of a checkpoint of a state.
pub(super) fn kept(scratch: &Scratch, job: &Job, state: &State) -> PathBuf {
    let schedule = crate::checkpoint::tests::scheduled(job.clone());
    let data = Dataset::open(job, None).unwrap();
    let folder = scratch.path().join("kept");
    let provenance = Provenance::new(&schedule, &data);
    Checkpoints::start(&folder, provenance).unwrap().save(state).unwrap().path
}

#[test]
fn the_newest_parameters_of_a_checkpoint_are_weights_too() {
    let scratch = Scratch::new("weights-checkpoint");
    let job = trained(Float::F32);
    let mut state = State::initial(&Job { seed: 5, ..job.clone() });
    let expected = state.clone();
    for tensor in state.tensors.values_mut() {
        tensor.versions.push(tensor.versions[0].clone());
    }
    state.step = 3;
    let path = kept(&scratch, &job, &state);
    assert_eq!(
        Weights::open(&path).unwrap().state(&job).unwrap().held().unwrap(),
        expected
    );
}

#[test]
fn a_damaged_checkpoint_is_not_taken_for_weights() {
    let scratch = Scratch::new("weights-damaged-checkpoint");
    let job = trained(Float::F32);
    let path = kept(&scratch, &job, &State::initial(&job));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = Weights::open(&path).unwrap_err();
    assert!(matches!(error, WeightsError::Damaged { .. }), "{error}");
    assert!(error.to_string().ends_with("its digest differs from its contents"));
}
