//! The decisions that are numbers, of one combination.

use crate::space::family::Family;
use roundelay_schedule::{
    Contraction, Images, Order, Placement, Plan, Sequence, Tensor, counted,
};
use std::fmt;

/// The decisions that are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// N.
    pub micro_batches: u32,
    /// S.
    pub stages: u32,
    /// Stages on one device of a pipeline.
    pub chunks: u32,
    /// Slices of each sequence.
    pub slices: u32,
    /// R.
    pub replicas: u32,
    /// Replicas that split states among them.
    pub shards: u32,
    /// Devices that split tensors among them, and how.
    pub tensor: Tensor,
    /// The first of its devices.
    pub first_device: u32,
}

impl Counts {
    /// Micro-batches of one training step.
    pub(crate) fn all_micro_batches(self) -> u32 {
        self.micro_batches.saturating_mul(self.replicas)
    }

    /// How many devices it takes in a family; a listed order has this many lists. No number is too
    /// large to ask: what cannot be counted is the largest there is.
    pub(crate) fn devices(self, family: Family, lists: usize) -> u32 {
        let Self { micro_batches: n, stages: s, replicas, chunks, .. } = self;
        let pipeline = match family.order {
            Order::Listed => u32::try_from(lists).unwrap_or(u32::MAX),
            _ => s / chunks.max(1),
        };
        let cell = family.placement.devices(family.rule, n, s, pipeline);
        cell.saturating_mul(replicas).saturating_mul(self.tensor.parts())
    }

    /// All but how tensors are split.
    pub(crate) fn numbers(self) -> [u32; 7] {
        let Self {
            micro_batches,
            stages,
            chunks,
            slices,
            replicas,
            shards,
            tensor: _,
            first_device,
        } = self;
        [micro_batches, stages, chunks, slices, replicas, shards, first_device]
    }

    /// Replicas or workers that hold the same stages.
    pub(crate) fn members(self, family: Family) -> u32 {
        match (family.placement, family.rule.is_synchronous()) {
            (Placement::Data | Placement::Shared, true) => self.all_micro_batches(),
            _ => self.replicas,
        }
    }

    /// Among how many members the parameters of a stage are divided.
    pub(crate) fn depth(self, family: Family) -> u32 {
        family.states.depth(self.members(family), self.shards)
    }
}

impl From<&Plan> for Counts {
    fn from(plan: &Plan) -> Self {
        let Plan {
            micro_batches, stages, chunks, slices, replicas, shards, tensor, ..
        } = *plan;
        let first_device = plan.first_device();
        Self {
            micro_batches,
            stages,
            chunks,
            slices,
            replicas,
            shards,
            tensor,
            first_device,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            micro_batches,
            stages,
            chunks,
            slices,
            replicas,
            shards,
            tensor,
            first_device,
        } = self;
        write!(f, "N = {micro_batches}, S = {stages}")?;
        if *chunks > 1 {
            write!(f, ", v = {chunks}")?;
        }
        if *slices > 1 {
            write!(f, ", {slices} slices")?;
        }
        if *replicas > 1 {
            write!(f, ", R = {replicas}")?;
        }
        if *shards > 1 {
            write!(f, ", {shards} shards")?;
        }
        match tensor {
            Tensor { rows: 1, columns: 1, .. } => {}
            Tensor { rows, columns: 1, .. } => write!(f, ", {rows} rows")?,
            Tensor { columns, contraction: Contraction::Gather, .. } => {
                write!(f, ", {columns} columns that gather")?;
            }
            Tensor {
                rows,
                columns,
                contraction: Contraction::Alternate | Contraction::Each,
                ..
            } => {
                let rows = counted((*rows).into(), "row");
                write!(f, ", {rows} x {columns} columns")?;
            }
        }
        f.write_str(match (tensor.sequence, tensor.images) {
            (Sequence::Whole, Images::Whole) => "",
            (Sequence::Split, Images::Whole) => " that split the sequence",
            (Sequence::Whole, Images::Split) => " that split images",
            (Sequence::Split, Images::Split) => " that split the sequence and images",
        })?;
        match tensor.overdecompose {
            1 => {}
            halves => write!(f, ", overdecompose {halves}")?,
        }
        match first_device {
            0 => Ok(()),
            first => write!(f, ", from device {first} on"),
        }
    }
}
