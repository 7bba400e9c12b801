//! How the values of decisions are spelled, in files, programs and messages.

use super::{Placement, Recompute, Reduction, States};
use crate::{Contraction, Images, MapWay, Order, Rewrite, Sequence};
use std::{fmt, str::FromStr};

macro_rules! spelled {
    ($($name:ident, $what:literal { $($variant:ident $text:literal,)* })*) => {$(
        impl $name {
            /// All values, in the order in which a search tries them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)* })
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!(
                        concat!("unknown ", $what, " `{}`; known are {}"),
                        text,
                        [$($text),*].join(", "),
                    )),
                }
            }
        }
    )*};
}

spelled! {
    Placement, "placement" {
        Accumulate "accumulate", Concurrent "concurrent", Data "data", Shared "shared",
        Pipeline "pipeline",
    }
    Order, "order" {
        Sequential "sequential", Parallel "parallel", Cyclic "cyclic", Gpipe "gpipe",
        OneForwardOneBackward "1f1b", Eager "eager_1f1b", Interleaved "interleaved",
        BreadthFirst "breadth_first", ZeroBubbleH1 "zb_h1", ZeroBubbleH2 "zb_h2",
        ZeroBubbleOneP "zb_1p", ZeroBubbleTwoP "zb_2p", ZeroBubbleAuto "zb_auto",
        ZeroBubbleV "zb_v", HalfV "v_half", MinimalV "v_min", Wave "wave",
        Chimera "chimera", DualPipe "dualpipe", DualPipePaired "dualpipe_paired",
        SlicesOneForwardOneBackward "seq1f1b", TeraPipe "terapipe", Listed "listed",
    }
    States, "states" {
        Replicated "replicated", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3", Hsdp "hsdp",
        Handoff "handoff",
    }
    Reduction, "reduction" {
        Sequential "sequential", ByDevice "by_device", ByReplica "by_replica",
        ByMicroBatch "by_micro_batch", ByShard "by_shard", ByDirection "by_direction",
    }
    Sequence, "sequence" { Whole "whole", Split "split", }
    Images, "images" { Whole "whole", Split "split", }
    Contraction, "contraction" { Alternate "alternate", Gather "gather", Each "each", }
    MapWay, "way of a map" {
        ColumnsToRows "columns_to_rows", RowsToColumns "rows_to_columns",
        WholeToColumns "whole_to_columns", ColumnsToColumns "columns_to_columns",
        ColumnsToWhole "columns_to_whole", RowsToWhole "rows_to_whole",
        WholeToAll "whole_to_all",
    }
    Recompute, "recompute" { None "none", Selective "selective", Full "full", }
    Rewrite, "rewrite" {
        Affine "affine", AffineRelu "affine_relu", AffineGelu "affine_gelu",
        AffineGeluTanh "affine_gelu_tanh", AffineAdd "affine_add",
        MatmulGeluTanhBackward "matmul_gelu_tanh_backward",
        AffineGradients "affine_gradients", BatchNormAdd "batch_norm_add",
        BatchNormRelu "batch_norm_relu",
        BatchNormBackwardRelu "batch_norm_backward_relu",
        GatherOfScatter "gather_of_scatter", GatherOfPart "gather_of_part",
        PartOfSum "part_of_sum",
    }
}
