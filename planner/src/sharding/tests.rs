//! What is found against how maps go by themselves, and against all ways that there are.

use super::*;
use crate::rewrite::Algebra;
use roundelay_codegen::{
    Everywhere, LoweringChoice, Neighbour, Piece, StageError, StageForm, Stages, Storage,
    stages_in,
};
use roundelay_dsl::{Disk, Model, NoFiles, SourceFile, parse};
use roundelay_kernels::{Joint, Kernel};
use roundelay_schedule::{Collective, Contraction, Float, Id, Rewrite, Sequence, Tensor};
use std::{collections::BTreeSet, sync::Mutex};

pub(super) const EXAMPLES: u64 = 2;

pub(super) fn model(text: &str) -> Model {
    let text = format!(
        "model test {{ {text} }}
         device core {{ memory 1 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
         link bus {{ bandwidth 8 GB/s, latency 2 us }}
         cluster test {{ 4 x core joined by bus }}
         train {{ data synthetic, batch 4, optimizer sgd(lr = 0.1), steps 1, seed 1 }}"
    );
    match parse(&SourceFile::new("test.rdl", text.as_str()), &NoFiles) {
        Ok((program, _)) => program.model,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

fn gpt(length: u64, width: u64, heads: u64, classes: u64) -> String {
    format!(
        "input tokens:  i32[batch, {length}]
         input targets: i32[batch, {length}]
         x = embedding(tokens, {classes}, {width}) + positions({length}, {width})
         repeat 2 as layer {{
             x = x + attention(layer_norm(x), {heads}, causal = true)
             x = x + linear(gelu(linear(layer_norm(x), 4 * {width})), {width})
         }}
         loss cross_entropy(linear(layer_norm(x), {classes}), targets)"
    )
}

const LLAMA: &str = include_str!("../../../tests/fixtures/models/llama.model");

const STORED: &str = include_str!("../../../tests/fixtures/models/stored.model");

/// Norms right behind maps, and sums of values that lie differently: no pairs of maps that take turns.
const MIXED: &str = "
    input x: real[batch, 6, 8]
    input y: real[batch, 6, 4]
    a = linear(x, 24)
    b = linear(relu(linear(a, 16)), 24)
    c = layer_norm(a + b) * rms_norm(b)
    d = dropout(linear(c, 24) + c, 0.25)
    e = softmax(linear(d, 24))
    loss mse(linear(e + a, 4), y)";

const MAPS: &str = "
    input x: real[batch, 6, 12]
    input y: real[batch, 6, 4]
    loss mse(linear(relu(linear(x, 24)), 4), y)";

const DEEP_HEAD: &str = include_str!("../../../tests/fixtures/models/deep_head.model");

const IMAGES: &str = "
    input images: real[batch, 4, 4, 3]
    input targets: i32[batch]
    x = relu(batch_norm(conv2d(images, 24)))
    x = x + batch_norm(conv2d(relu(conv2d(x, 24)), 24))
    loss cross_entropy(linear(relu(linear(global_pool(x), 48)), 24), targets)";

fn models() -> Vec<Model> {
    let gpts = [gpt(12, 24, 12, 64), gpt(8, 32, 2, 256)];
    let others = [LLAMA, STORED, MAPS, DEEP_HEAD, IMAGES].map(str::to_owned);
    gpts.iter().chain(&others).map(|text| model(text)).collect()
}

/// Every grid of at most eight parts.
pub(super) fn grids() -> impl Iterator<Item = Tensor> {
    let all = (1..=8u32).flat_map(|rows| (1..=8).map(move |columns| (rows, columns)));
    let fits = all.filter(|(rows, columns)| (2..=8).contains(&(rows * columns)));
    fits.flat_map(|(rows, columns)| {
        let grid = Tensor::grid(rows, columns);
        let ways = Contraction::ALL.iter();
        ways.map(move |contraction| Tensor { contraction: *contraction, ..grid })
            .filter(|tensor| tensor.can_contract())
    })
}

/// Hands on what some other choice says, and keeps it beside what maps do by themselves.
struct Heard<'a> {
    says: &'a dyn LoweringChoice,
    heard: Mutex<Option<[MapWays; 2]>>,
}

impl LoweringChoice for Heard<'_> {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        Everywhere.choose(neighbours)
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        let said = self.says.ways(divided);
        *self.heard.lock().unwrap() = Some([divided.ways.clone(), said.clone()]);
        said
    }
}

pub(super) fn stages(
    model: &Model,
    tensor: Tensor,
    choice: &dyn LoweringChoice,
) -> Option<Stages> {
    lowered(model, tensor, choice).ok()
}

/// The only stage of a model on a grid, or why there is none.
pub(super) fn lowered(
    model: &Model,
    tensor: Tensor,
    choice: &dyn LoweringChoice,
) -> Result<Stages, StageError> {
    let (cut, form) = ((&[][..], tensor), |_| StageForm::default());
    let storage = Storage { dtype: Float::F32, padding: 16 };
    stages_in(model, cut, EXAMPLES, storage, form, choice)
}

/// How maps go by themselves and how they are sent; none where the grid does not split the model.
pub(super) fn both(
    model: &Model,
    tensor: Tensor,
    says: &dyn LoweringChoice,
) -> Option<[MapWays; 2]> {
    let heard = Heard { says, heard: Mutex::default() };
    Piece::new(model, (&[][..], tensor), &heard).ok()?;
    heard.heard.into_inner().unwrap()
}

/// The models of the examples.
pub(super) fn examples() -> Vec<(String, Model)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let files = std::fs::read_dir(folder).expect("there are examples");
    let mut paths: Vec<_> = files.map(|file| file.expect("it is there").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "rdl"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let (name, text) = (path.display().to_string(), std::fs::read_to_string(path));
        let file = SourceFile::new(name.as_str(), text.expect("it is text").as_str());
        let model = parse(&file, &Disk).map(|(program, _)| program.model);
        model.ok().map(|model| (name, model))
    };
    paths.iter().filter_map(read).collect()
}

/// Where maps take turns or all gather, what is found is what lowering does by itself.
#[test]
fn pinned_contractions_find_what_maps_do_by_themselves() {
    let algebra = Algebra::default();
    let (mut compared, mut different) = (0, Vec::new());
    for (number, model) in models().iter().enumerate() {
        for tensor in grids().filter(|own| own.contraction != Contraction::Each) {
            for sequence in [Sequence::Whole, Sequence::Split] {
                let tensor = Tensor { sequence, ..tensor };
                if !tensor.can_contract() {
                    continue;
                }
                let Some([alone, found]) = both(model, tensor, &algebra) else {
                    continue;
                };
                compared += 1;
                if found != alone {
                    different.push(format!(
                        "model {number} on {tensor:?}: {found:?} for {alone:?}"
                    ));
                }
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(compared > 200, "only {compared} were compared");
    let stops = algebra.map_stops();
    assert_eq!(stops.keys().collect::<Vec<_>>(), [&Stop::Saturated], "{stops:?}");
}

/// In one row lowering divides the heads of what columns divide, or refuses: in front of heads that they
/// do not divide maps leave features whole, though they would send less.
#[test]
fn heads_that_columns_do_not_divide_are_whole() {
    let attention = |heads: &str| {
        format!(
            "input x: real[batch, 4, 24]
             input y: real[batch, 4, 24]
             loss mse(linear(attention(x, {heads}), 24), y)"
        )
    };
    let parallel = "
        input tokens: i32[batch, 4]
        input y: real[batch, 4, 24]
        x = embedding(tokens, 64, 24)
        h = layer_norm(x)
        loss mse(x + attention(h, 6) + linear(gelu(linear(h, 48)), 24), y)";
    let of_heads = ["6, rotary = 100.0", "12, key_heads = 6", "6, stored_scores = true"];
    let all = of_heads.map(attention).into_iter().chain([parallel.to_owned()]);
    let tensor = Tensor { contraction: Contraction::Each, ..Tensor::grid(1, 4) };
    for text in all {
        let algebra = Algebra::default();
        let code = lowered(&model(&text), tensor, &algebra);
        assert!(code.is_ok(), "{:?}\n{text}", code.err());
        let stops = algebra.map_stops();
        assert_eq!(stops.keys().collect::<Vec<_>>(), [&Stop::Saturated], "{text}");
    }
}

/// The numbers that one part sends in both passes, times the parts of the grid.
pub(super) fn sent(code: &Stages, tensor: Tensor) -> u64 {
    let stage = &code.stages[Id::new(0)];
    let both = [&stage.forward, stage.backward.first()[0]];
    let calls = both.iter().flat_map(|routine| &routine.calls);
    let kernels = calls.map(|call| Kernel::parse(call).expect("it is one"));
    let of = |exchange: roundelay_kernels::Exchange| {
        let rounds = match exchange.kind {
            Joint::Collective(Collective::AllReduce) => 2,
            Joint::Collective(Collective::AllGather | Collective::ReduceScatter) => 1,
            Joint::Halo(_) | Joint::HaloAdd(_) => panic!("there are no images"),
        };
        let parts = u64::from(exchange.line.parts);
        exchange.elements() as u64 * rounds * (parts - 1) * u64::from(tensor.parts())
            / parts
    };
    kernels.filter_map(|kernel| kernel.exchange()).map(of).sum()
}

/// Where norms stand right behind maps, rows alone do such maps whole by themselves; what is found
/// divides more of them.
#[test]
fn rows_repeat_less_where_maps_stand_alone() {
    let (algebra, model) = (Algebra::default(), model(MIXED));
    for rows in [2, 4, 8] {
        let tensor = Tensor::grid(rows, 1);
        let [alone, found] = both(&model, tensor, &algebra).expect("it splits");
        let [own, other] = [found, alone].map(|ways| cost(&model, tensor, &ways));
        let ([work, _], [repeated, _]) =
            (own.expect("it splits").into(), other.expect("it splits").into());
        let (work, repeated): (u64, u64) = (work, repeated);
        assert!(4 * work < 3 * repeated, "{rows}: {work} for {repeated}");
    }
}

/// A choice of ways that are written down.
pub(super) struct Sent(pub(super) MapWays);

impl LoweringChoice for Sent {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        Everywhere.choose(neighbours)
    }

    fn ways(&self, _: &Divided<'_>) -> MapWays {
        self.0.clone()
    }
}

/// What `found` sends one layer of a model, times the parts of the grid.
fn of_layer(text: &str, tensor: Tensor, says: &dyn LoweringChoice) -> u64 {
    let of = |layers: u32| {
        let model = model(&text.replace("repeat 2", &format!("repeat {layers}")));
        let [_, ways] = both(&model, tensor, says).expect("it splits");
        sent(&stages(&model, tensor, &Sent(ways)).expect("it splits"), tensor)
    };
    of(3) - of(2)
}

/// In one row columns that choose send 10 h for each token of a layer of a transformer: both operands
/// are gathered in three exchanges of h, both sums scattered in two. In turn they send 24 h, and
/// every column does all of attention; all gathering they send 21 h.
#[test]
fn maps_that_choose_send_less_than_all_in_turn_or_all_gathering() {
    const WIDTH: u64 = 48;
    let (length, text) = (12, gpt(12, WIDTH, 8, 64));
    for columns in [2, 4] {
        let grid = Tensor::grid(1, columns);
        let of = |contraction, says: &dyn LoweringChoice| {
            let all = of_layer(&text, Tensor { contraction, ..grid }, says);
            // Two norms with two statistics in both passes.
            let norms = 2 * 2 * 2 * 2 * EXAMPLES * length * u64::from(columns - 1);
            (all - norms) / (EXAMPLES * length * u64::from(columns - 1))
        };
        let algebra = Algebra::default();
        assert_eq!(of(Contraction::Alternate, &Everywhere), 24 * WIDTH);
        assert_eq!(of(Contraction::Gather, &Everywhere), 21 * WIDTH);
        assert_eq!(of(Contraction::Each, &algebra), 10 * WIDTH);
    }
}

/// The maps of a model, by their numbers.
pub(super) fn maps(model: &Model) -> Vec<u32> {
    let all = model.nodes.iter().filter(|(_, node)| is_map(node));
    all.map(|(id, _)| u32::try_from(id.index()).unwrap()).collect()
}

fn is_map(node: &roundelay_dsl::Node) -> bool {
    use roundelay_dsl::Operation;
    matches!(node.operation, Operation::Linear | Operation::Conv2d { groups: 1, .. })
}

/// What the products of maps with ways take, and what is sent: as the law of costs puts them.
pub(super) fn cost(model: &Model, tensor: Tensor, ways: &MapWays) -> Option<(u64, u64)> {
    let code = stages(model, tensor, &Sent(ways.clone()))?;
    let parts = |direction: Option<roundelay_schedule::Direction>| {
        direction.map_or(1, |direction| u64::from(tensor.line(direction).parts))
    };
    let work = |(id, node): (roundelay_dsl::NodeId, &roundelay_dsl::Node)| {
        if !is_map(node) {
            return 0;
        }
        let filters = model.shape(node.operands[1]);
        let read: u64 = filters.iter().skip(1).map(|extent| extent.size).product();
        let made: u64 = node.shape.iter().map(|extent| extent.size).product();
        let way = ways.of(u32::try_from(id.index()).unwrap());
        let divided = way.map_or(1, |way| {
            let to = way.to().filter(|to| Some(*to) != way.from());
            parts(way.from()) * parts(to)
        });
        read * made * u64::from(tensor.parts()) / divided
    };
    Some((model.nodes.iter().map(work).sum(), sent(&code, tensor)))
}

/// The ways of a map on a grid, none among them, each once: in one row what rows divide is whole.
fn different_ways(tensor: Tensor) -> Vec<Option<MapWay>> {
    let is_another = |way: &MapWay| {
        let from_rows = matches!(way, MapWay::RowsToColumns | MapWay::RowsToWhole);
        tensor.rows > 1 || !from_rows
    };
    let ways = MapWay::ALL.iter().copied().filter(is_another);
    ways.map(Some).chain([None]).collect()
}

/// Every way of each of these maps.
pub(super) fn all_ways(maps: &[u32], tensor: Tensor) -> impl Iterator<Item = MapWays> {
    let different = different_ways(tensor);
    let count = maps.iter().fold(1, |count, _| count * different.len());
    (0..count).map(move |mut number| {
        let mut sent = MapWays::default();
        for site in maps {
            sent.send(*site, different[number % different.len()]);
            number /= different.len();
        }
        sent
    })
}

/// Every way of every map of small models, as lowering makes it and as its exchanges count: nothing
/// costs less than what is found.
#[test]
fn nothing_costs_less_than_what_is_found() {
    let perceptron = "
        input tokens:  i32[batch, 4]
        input targets: i32[batch, 4]
        x = embedding(tokens, 64, 16)
        x = x + linear(gelu(linear(layer_norm(x), 48)), 16)
        loss cross_entropy(linear(layer_norm(x), 32), targets)";
    let narrow = "
        input tokens:  i32[batch, 4]
        input targets: i32[batch, 4]
        x = embedding(tokens, 64, 32)
        x = x + linear(relu(linear(relu(linear(rms_norm(x), 8)), 32)), 32)
        loss cross_entropy(x, targets)";
    let algebra = Algebra::default();
    let mut better = 0;
    for text in [perceptron, narrow] {
        let model = model(text);
        let maps = maps(&model);
        for (rows, columns) in [(1, 2), (1, 4), (2, 2), (4, 2), (2, 4)] {
            let contraction = Contraction::Each;
            let tensor = Tensor { contraction, ..Tensor::grid(rows, columns) };
            let [alone, found] = both(&model, tensor, &algebra).expect("it splits");
            let own = cost(&model, tensor, &found).expect("it splits");
            better += usize::from(own < cost(&model, tensor, &alone).expect("it splits"));
            for ways in all_ways(&maps, tensor) {
                if let Some(other) = cost(&model, tensor, &ways) {
                    assert!(
                        own <= other,
                        "{tensor:?}: {found:?} {own:?}, {ways:?} {other:?}"
                    );
                }
            }
        }
    }
    assert!(better >= 4, "only {better} are better than by themselves");
}
