//! What the rules know of each operation of a model, as lowering makes it.

use super::{fits, region::Kind};
use roundelay_codegen::Divided;
use roundelay_dsl::{Node, NodeId, Operation, Projections, Source};
use roundelay_schedule::{Contraction, Id, MapWay, Tensor};

/// What rules know of an operation; nothing of those that only move or bring values.
pub(super) fn kind(divided: &Divided<'_>, id: NodeId, node: &Node) -> Option<Kind> {
    if let Operation::Linear | Operation::Conv2d { groups: 1, .. } = node.operation {
        return map(divided, id, node);
    }
    let is_node = |operand: &Source| matches!(operand, Source::Node(_));
    if !node.operands.first().is_some_and(is_node) {
        return None;
    }
    Some(match node.operation {
        Operation::Relu
        | Operation::Gelu
        | Operation::GeluTanh
        | Operation::Silu
        | Operation::SoftCap { .. }
        | Operation::Scale { .. }
        | Operation::Dropout { .. } => Kind::Each,
        Operation::Add | Operation::Multiply => return pair(divided, id, node),
        Operation::LayerNorm { .. } => Kind::Norm { sums: Some(2) },
        Operation::RmsNorm { .. } => Kind::Norm { sums: Some(1) },
        Operation::Softmax => Kind::Norm { sums: None },
        Operation::Attention { heads, projections, .. } => match projections {
            Projections::Apart => Kind::Attend { heads },
            Projections::Packed => Kind::AttendPacked { heads },
        },
        Operation::Scores { heads, .. } => Kind::Scores { heads },
        Operation::Mix { heads } => Kind::Mix { heads },
        Operation::Rotary(turning) => Kind::Rotary { heads: turning.groups() },
        Operation::CrossEntropy { .. } => Kind::Loss,
        Operation::MeanSquaredError => Kind::Whole,
        Operation::Conv2d { groups, .. } => return in_groups(divided, node, groups),
        Operation::BatchNorm
        | Operation::MaxPool { .. }
        | Operation::AvgPool { .. }
        | Operation::Upsample { .. } => {
            Kind::Channels { groups: channels(divided, node), products: 0 }
        }
        Operation::GroupNorm { groups } => Kind::Channels { groups, products: 0 },
        Operation::GlobalPool => Kind::Pool { channels: channels(divided, node) },
        _ => return None,
    })
}

/// How many features or channels an operation reads.
fn channels(divided: &Divided<'_>, node: &Node) -> u64 {
    divided.model.shape(node.operands[0]).last().map_or(1, |own| own.size)
}

/// Products for each number that a map or a convolution makes: the elements of one filter.
fn products(divided: &Divided<'_>, node: &Node) -> u64 {
    let filters = divided.model.shape(node.operands[1]);
    filters.iter().skip(1).map(|extent| extent.size).product()
}

fn map(divided: &Divided<'_>, id: NodeId, node: &Node) -> Option<Kind> {
    let site = u32::try_from(id.index()).ok()?;
    let alone = divided.ways.of(site).filter(|way| fits(divided, (site, *way)));
    let read = products(divided, node);
    let is_point = read == channels(divided, node);
    let fitting = divided.fitting.get(&site).into_iter().flatten().copied();
    let mut open: Vec<Option<MapWay>> = fitting.map(Some).chain([None]).collect();
    open.retain(|way| {
        *way == alone
            || match node.operation {
                Operation::Linear => is_open(divided.tensor, *way),
                _ => is_open_to_channels(divided.tensor, *way, is_point),
            }
    });
    Some(Kind::Map { read, open, alone })
}

/// Whether linear maps may go a way that they do not go by themselves: those that take turns or all
/// gather go as they are told. None is that every part does all of a map, which several columns
/// that take turns refuse.
fn is_open(tensor: Tensor, way: Option<MapWay>) -> bool {
    match (tensor.contraction, way) {
        (Contraction::Each, _) | (Contraction::Gather, None) => true,
        (Contraction::Gather, Some(way)) => way == MapWay::WholeToColumns,
        (Contraction::Alternate, None) => tensor.columns == 1,
        (Contraction::Alternate, Some(way)) => {
            matches!(way, MapWay::ColumnsToRows | MapWay::RowsToColumns)
        }
    }
}

/// The same of convolutions: where they take turns, those that see one pixel may turn back, which
/// is to be whole in one column.
fn is_open_to_channels(tensor: Tensor, way: Option<MapWay>, is_point: bool) -> bool {
    match (tensor.contraction, way) {
        (Contraction::Alternate, None) => is_point && tensor.columns == 1,
        (Contraction::Alternate, Some(MapWay::ColumnsToColumns)) => is_point,
        (_, way) => is_open(tensor, way),
    }
}

fn pair(divided: &Divided<'_>, id: NodeId, node: &Node) -> Option<Kind> {
    match node.operands[1] {
        Source::Parameter(_) => Some(Kind::Each),
        Source::Node(other) if divided.model.nodes[other].shape == node.shape => {
            let site = u32::try_from(id.index()).ok()?;
            let joins = divided.joins.contains(&site);
            Some(if joins { Kind::Join } else { Kind::Pair })
        }
        Source::Node(_) | Source::Input(_) => None,
    }
}

/// None where lowering would refuse some layouts of what it reads.
fn in_groups(divided: &Divided<'_>, node: &Node, groups: u64) -> Option<Kind> {
    let [rows, columns] = [divided.tensor.rows, divided.tensor.columns].map(u64::from);
    let divides = |parts| groups.is_multiple_of(parts);
    let fits = columns == 1 || (divides(rows) && divides(columns));
    fits.then(|| Kind::Channels { groups, products: products(divided, node) })
}
