//! Affine maps that go ways of their own: whatever way each of them goes, parts in lockstep make
//! the loss and the gradients of the whole model; ways that do not fit are refused by name, with
//! what would fit.

use crate::support::split::{
    EXAMPLES, GPT, LLAMA, MAPS, PACKED, STORED, assert_same_by, model,
};
use roundelay_codegen::{
    Divided, Everywhere, LoweringChoice, Neighbour, StageForm, Stages, Storage, stages_in,
};
use roundelay_dsl::{Model, Operation};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{
    Contraction, Float, Id, MapWay, MapWays, Rewrite, Sequence, Tensor,
};
use std::collections::{BTreeMap, BTreeSet};

/// These ways, and calls that become one wherever they can.
struct Sent(MapWays);

impl LoweringChoice for Sent {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        Everywhere.choose(neighbours)
    }

    fn ways(&self, _: &Divided<'_>) -> MapWays {
        self.0.clone()
    }
}

fn sent(model: &Model, tensor: Tensor, ways: &MapWays) -> Result<Stages, String> {
    let (storage, form) =
        (Storage { dtype: Float::F32, padding: 16 }, |_| StageForm::default());
    let choice = Sent(ways.clone());
    let made = stages_in(model, (&[], tensor), EXAMPLES, storage, form, &choice);
    made.map_err(|error| error.to_string())
}

/// The affine maps of a model, by their numbers.
fn maps(model: &Model) -> Vec<u32> {
    let is_map = |operation| {
        matches!(operation, Operation::Linear | Operation::Conv2d { groups: 1, .. })
    };
    let all = model.nodes.iter().filter(|(_, node)| is_map(node.operation));
    all.map(|(id, _)| u32::try_from(id.index()).expect("few operations")).collect()
}

fn each(rows: u32, columns: u32) -> Tensor {
    let contraction = match columns {
        1 => Contraction::Alternate,
        _ => Contraction::Each,
    };
    Tensor { contraction, ..Tensor::grid(rows, columns) }
}

const IMAGES: &str = "model images {
    input images: real[batch, 4, 4, 4]
    input wanted: real[batch, 4, 4, 8]
    x = relu(batch_norm(conv2d(images, 8)))
    x = x + conv2d(group_norm(conv2d(x, 16), 4), 8, kernel = 1)
    z = conv2d(x, 8, bias = false) + conv2d(gelu(x), 8, bias = false)
    loss 1e-5 * mse(conv2d(z, 8), wanted)
}";

/// Random ways of all maps, drawn from those that fit: what is right for each is right together.
#[test]
fn every_way_of_every_map_makes_the_gradients_of_the_whole() {
    let mut gone = BTreeMap::<MapWay, usize>::new();
    for (number, text) in
        [GPT, PACKED, LLAMA, STORED, MAPS, IMAGES].into_iter().enumerate()
    {
        let model = model(text);
        for (rows, columns) in [(2, 1), (1, 2), (2, 2), (3, 2)] {
            for draw in 0..4 {
                let sequence = [Sequence::Whole, Sequence::Split][draw % 2];
                let tensor = Tensor { sequence, ..each(rows, columns) };
                let seed = [number as u64, u64::from(rows), u64::from(columns)];
                let stream = Stream::new(draw as u64, &seed);
                let Some(ways) = drawn(&model, tensor, &stream) else { continue };
                assert_same_by(
                    &model,
                    &[],
                    tensor,
                    StageForm::default(),
                    &Sent(ways.clone()),
                );
                ways.iter().for_each(|(_, way)| *gone.entry(way).or_default() += 1);
            }
        }
    }
    for way in MapWay::ALL {
        assert!(gone.get(way).is_some_and(|count| *count >= 4), "{way}: {gone:?}");
    }
}

/// Ways that fit, one map after another; none where nothing of the model would be split.
fn drawn(model: &Model, tensor: Tensor, stream: &Stream) -> Option<MapWays> {
    let mut ways = MapWays::default();
    for site in maps(model) {
        let fits = |way: &&MapWay| {
            let mut alone = MapWays::default();
            alone.insert(site, **way);
            !sent(model, tensor, &alone).is_err_and(|said| said.contains("maps"))
        };
        let fitting: Vec<&MapWay> = MapWay::ALL.iter().filter(fits).collect();
        let number = stream.below(site.into(), fitting.len() as u64 + 1) as usize;
        if let Some(way) = fitting.get(number) {
            ways.insert(site, **way);
        }
    }
    sent(model, tensor, &ways).ok().map(|_| ways)
}

#[test]
fn a_way_that_does_not_fit_is_refused_with_what_would() {
    let text = "model small {
        input x: real[batch, 6, 10]
        input y: real[batch, 6, 4]
        loss mse(linear(relu(linear(x, 24)), 4), y)
    }";
    let model = model(text);
    let sites = maps(&model);
    let refused = |tensor, site, way| {
        let mut ways = MapWays::default();
        ways.insert(site, way);
        sent(&model, tensor, &ways).expect_err("it does not fit")
    };
    let grid = each(2, 4);
    for (tensor, site, way, words) in [
        (
            grid,
            sites[0],
            MapWay::ColumnsToRows,
            "but its 10 input features do not divide among 4 tensor columns; what fits: \
             rows_to_columns, whole_to_columns, rows_to_whole, whole_to_all, no way, so that every part",
        ),
        (
            Tensor { contraction: Contraction::Alternate, ..grid },
            sites[1],
            MapWay::WholeToColumns,
            "but `contraction alternate` has no such maps; what fits: columns_to_rows, rows_to_columns, \
             no way",
        ),
        (
            each(2, 1),
            sites[1],
            MapWay::RowsToWhole,
            "but `contraction alternate` has no such maps; what fits: columns_to_rows, rows_to_columns",
        ),
        (
            each(1, 2),
            sites[1],
            MapWay::RowsToWhole,
            "but it divides nothing on 1 tensor row and 2 columns",
        ),
        (grid, sites[0] + 1, MapWay::ColumnsToRows, "but it is not a map of features"),
        (grid, 99, MapWay::ColumnsToRows, "but the model has fewer operations"),
    ] {
        let said = refused(tensor, site, way);
        let place = format!("send o{site} by {way}");
        assert!(said.contains(words) && said.contains(&place), "{said}");
    }
}
