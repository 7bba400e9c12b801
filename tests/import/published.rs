//! Weights under the names that families publish them with: the loss of each small model is what
//! transformers computes from the same arrays, and they come back as they were.
//!
//! `benches/transformers_losses.py` computes the losses and lists the arrays, from the cases that this
//! test writes into the folder `ROUNDELAY_CASES`.

use super::{
    accepted,
    small::small,
    support::Scratch,
    training::{compiled, program},
};
use roundelay::{
    Checked, Imported, OutputFile, Weights, WeightsFiles,
    parts::{
        runtime::{Cpu, CpuOptions, Feed},
        schedule::{Element, Float, InputId, Job},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, env, fs, path::Path};

/// What classes make and do not read.
const UNREAD: [&str; 2] = ["cls.predictions.bias", "lm_head.bias"];

/// Examples of a step.
const BATCH: u64 = 4;

/// What transformers says of a case.
#[derive(Deserialize)]
pub(crate) struct Reference {
    /// Extents of the arrays that its class saves.
    pub(crate) arrays: BTreeMap<String, Vec<u64>>,
    /// The loss of the formula's inputs, in 64 bits but where the class itself takes 32.
    loss: f64,
}

/// The cases, without dropout.
pub(crate) fn cases() -> Vec<(&'static str, String)> {
    let plain = |text: String| {
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        let fields = config.as_object_mut().expect("an object");
        for (name, value) in fields.iter_mut() {
            if name.contains("drop") && value.is_number() {
                *value = json!(0.0);
            }
        }
        config.to_string()
    };
    small().into_iter().map(|(name, text)| (name, plain(text))).collect()
}

/// Number `index` of a name: a multiple of 2⁻¹², at least −1/2 and below 1/2.
fn number(name: &str, index: u64) -> f64 {
    let digest = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut x = digest.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 52) as f64 / 4096.0 - 0.5
}

/// The numbers of an array; gains are about one, unless what is stored of them is less by one.
fn array(name: &str, shape: &[u64], is_less: bool) -> Vec<f32> {
    let count: u64 = shape.iter().product();
    let is_gain = shape.len() == 1 && name.ends_with("weight");
    let more = if is_gain && !is_less { 1.0 } else { 0.0 };
    (0..count).map(|index| (number(name, index) + more) as f32).collect()
}

/// Extents and bytes of arrays.
type Arrays = BTreeMap<String, (Value, Vec<u8>)>;

/// A safetensors file of arrays of the formula.
pub(crate) fn write_file(
    path: &Path,
    arrays: &BTreeMap<String, Vec<u64>>,
    is_less: bool,
) {
    let bytes = |name: &str, shape: &[u64]| {
        array(name, shape, is_less).into_iter().flat_map(f32::to_le_bytes).collect()
    };
    let arrays = arrays
        .iter()
        .map(|(name, shape)| (name.clone(), (json!(shape), bytes(name, shape))));
    write_arrays(path, &arrays.collect());
}

/// A safetensors file of numbers in f32.
fn write_arrays(path: &Path, arrays: &Arrays) {
    let (mut header, mut numbers) = (serde_json::Map::new(), Vec::new());
    for (name, (shape, bytes)) in arrays {
        let start = numbers.len();
        numbers.extend_from_slice(bytes);
        let offsets = [start, numbers.len()];
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": offsets});
        header.insert(name.clone(), entry);
    }
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let header = Value::Object(header).to_string().into_bytes();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length[..], &header, &numbers].concat()).expect("it is written");
}

/// The extents and bytes of the arrays of a file.
pub(crate) fn stored(path: &Path) -> Arrays {
    let bytes = fs::read(path).expect("it is there");
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (header, numbers) = rest.split_at(length as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).expect("JSON");
    let arrays = header.into_iter().filter(|(name, _)| name != "__metadata__");
    arrays
        .map(|(name, entry)| {
            let place =
                |end: usize| entry["data_offsets"][end].as_u64().expect("a place");
            let own = numbers[place(0) as usize..place(1) as usize].to_vec();
            (name, (entry["shape"].clone(), own))
        })
        .collect()
}

/// Inputs of the formula.
struct Formula {
    job: Job,
}

impl Feed for Formula {
    fn fill(&mut self, input: InputId, _: u64, micro_batch: u64, bytes: &mut [u8]) {
        let input = &self.job.inputs[input];
        let count: u64 = input.shape.iter().product();
        let first = micro_batch * count;
        let numbers = (first..first + count).map(|index| number(&input.name, index));
        let numbers: Vec<u8> = match input.element {
            Element::Real | Element::Wide => numbers.flat_map(f64::to_ne_bytes).collect(),
            Element::I32 => numbers
                .flat_map(|x| (((x + 0.5) * input.bound as f64) as i32).to_ne_bytes())
                .collect(),
        };
        bytes.copy_from_slice(&numbers);
    }
}

/// The loss of a file of weights.
fn loss(schedule: &Checked, weights: &Path) -> f64 {
    let state = Weights::open(weights).expect("it is whole").state(&schedule.job);
    let state = state.unwrap_or_else(|wrong| panic!("{wrong}"));
    let feed = Box::new(Formula { job: schedule.job.clone() });
    let mut cpu = Cpu::new(schedule, feed, CpuOptions::default()).expect("small");
    cpu.load(&state.held().expect("it is there")).expect("a state of this model");
    let mut losses = Vec::new();
    cpu.replay(1, &mut |loss| losses.push(loss.loss)).expect("nothing fails");
    losses.iter().sum::<f64>() / losses.len() as f64
}

fn schedule(imported: &Imported) -> Checked {
    let mut program = program(&imported.text);
    program.train.dtype = Float::F64;
    compiled(&program)
}

/// The cases as the script takes them.
fn write_cases(folder: &Path) {
    let case = |(name, config): (&str, String)| {
        let schedule = schedule(&accepted(&config));
        let inputs: Vec<Value> = schedule
            .job
            .data_inputs()
            .map(|(_, input)| {
                let shape = [&[BATCH], &input.shape[1..]].concat();
                json!({"name": input.name, "shape": shape, "bound": input.bound})
            })
            .collect();
        let config: Value = serde_json::from_str(&config).expect("JSON");
        json!({"name": name, "config": config, "inputs": inputs})
    };
    let cases: Vec<Value> = cases().into_iter().map(case).collect();
    let text = serde_json::to_string_pretty(&cases).expect("JSON is text");
    fs::write(folder.join("cases.json"), text).expect("it is written");
}

pub(crate) fn references() -> BTreeMap<String, Reference> {
    let text = include_str!("../fixtures/transformers.json");
    serde_json::from_str(text).expect("the script writes it")
}

/// The files that `export` writes for the cases.
fn write_exported(folder: &Path) {
    let references = references();
    for (name, config) in cases() {
        let Some(Reference { arrays, .. }) = references.get(name) else { continue };
        let imported = accepted(&config);
        let own = folder.join(name);
        fs::create_dir_all(&own).expect("it is made");
        let [theirs, ours, back] =
            ["theirs", "ours", "model.safetensors"].map(|name| own.join(name));
        write_file(&theirs, arrays, imported.family.starts_with("gemma"));
        there_and_back(&imported, [&theirs, &ours, &back]);
    }
}

/// Imports the first file as the second one, and exports that as the third one. Returns what is left out.
fn there_and_back(imported: &Imported, [theirs, ours, back]: [&Path; 3]) -> Vec<String> {
    let files = WeightsFiles::open(theirs).expect("it is whole");
    let output = OutputFile::new(ours).expect("it can be written");
    let rest = imported.weights.ours(&files, &output);
    let rest = rest.unwrap_or_else(|wrong| panic!("{wrong}"));
    let output = OutputFile::new(back).expect("it can be written");
    let own = Weights::open(ours).expect("it is whole");
    imported.weights.theirs(&own, &output).expect("it is written");
    rest
}

#[test]
fn losses_of_published_weights_are_those_of_transformers() {
    if let Ok(folder) = env::var("ROUNDELAY_CASES") {
        write_cases(Path::new(&folder));
        return write_exported(Path::new(&folder));
    }
    let references = references();
    let scratch = Scratch::new("import-published");
    let [theirs, ours, back] = ["theirs", "ours", "back"].map(|name| scratch.path(name));
    for (name, config) in cases() {
        let imported = accepted(&config);
        let Reference { arrays, loss: expected } = &references[name];
        write_file(&theirs, arrays, imported.family.starts_with("gemma"));
        let rest = there_and_back(&imported, [&theirs, &ours, &back]);
        let found = loss(&schedule(&imported), &ours);
        let error = (found / expected - 1.0).abs();
        assert!(error < 1e-7, "{name}: {found}, but transformers says {expected}");
        let (back, mut whole) = (stored(&back), stored(&theirs));
        // Where the head has a table of its own, its class makes a bias that it does not read.
        whole.retain(|array, _| !rest.contains(array));
        assert!(
            rest.iter().all(|array| UNREAD.contains(&array.as_str())),
            "{name}: {rest:?}"
        );
        assert!(back == whole, "{name}: {:?}, not {:?}", back.keys(), whole.keys());
    }
}

/// Every parameter has a name in the tables, whatever a configuration drops, and dropout changes none: what
/// no row has would be called as here.
#[test]
fn names_do_not_depend_on_dropout_and_are_all_known() {
    let folder = super::support::root().join("tests/fixtures/huggingface");
    let files = fs::read_dir(folder).expect("it is there");
    let published = files.map(|file| {
        let path = file.expect("it is read").path();
        fs::read_to_string(path).expect("the fixture is text")
    });
    let dropping = |text: &str| {
        let mut config: Value = serde_json::from_str(text).expect("JSON");
        let names =
            ["resid_pdrop", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob"];
        for name in names.into_iter().chain(["dropout"]) {
            if config.get(name).is_some() {
                config[name] = json!(0.1);
            }
        }
        config.to_string()
    };
    for text in small().into_iter().map(|(_, text)| text).chain(published) {
        let weights = accepted(&text).weights;
        for twin in &weights.twins {
            let own = twin.parameters.iter().find(|own| own.name == twin.name);
            assert_eq!(own, None, "{text}");
        }
        assert_eq!(weights, accepted(&dropping(&text)).weights, "{text}");
    }
}

/// What an array was called before.
type Renamed = fn(&str) -> String;

/// Older releases have no prefix, other words for gains and biases of norms, and constants that later
/// classes make themselves.
#[test]
fn names_of_older_releases_are_read_too() {
    let old: [(&str, Renamed, &str); 3] = [
        (
            "bert",
            |name| {
                let gamma = name.replace("LayerNorm.weight", "LayerNorm.gamma");
                gamma.replace("LayerNorm.bias", "LayerNorm.beta")
            },
            "bert.embeddings.position_ids",
        ),
        ("gpt2", |name| name.replace("transformer.", ""), "h.0.attn.bias"),
        ("gpt_neox", str::to_owned, "gpt_neox.layers.0.attention.rotary_emb.inv_freq"),
    ];
    let scratch = Scratch::new("import-older");
    let [newer, older, ours, same] =
        ["newer", "older", "ours", "same"].map(|name| scratch.path(name));
    for (case, renamed, idle) in old {
        let (_, config) =
            cases().into_iter().find(|(name, _)| *name == case).expect(case);
        let imported = accepted(&config);
        write_file(&newer, &references()[case].arrays, false);
        let arrays = stored(&newer).into_iter().map(|(name, own)| (renamed(&name), own));
        let mut arrays: Arrays = arrays.collect();
        arrays.insert(idle.to_owned(), (json!([1]), vec![0; 4]));
        write_arrays(&older, &arrays);
        for (from, to) in [(&newer, &ours), (&older, &same)] {
            let output = OutputFile::new(to).expect("it can be written");
            let files = WeightsFiles::open(from).expect("it is whole");
            let rest = imported.weights.ours(&files, &output);
            assert_eq!(rest.expect("all is there"), Vec::<String>::new(), "{case}");
        }
        assert!(stored(&ours) == stored(&same), "{case}");
    }
}
