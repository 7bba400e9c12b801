//! The sources of all kernels: each with what it uses, as one text that needs no other file.

use super::Source;

macro_rules! source {
    ($(#[$doc:meta])* $name:ident = $file:literal with $($header:literal)*) => {
        $(#[$doc])*
        pub(crate) const $name: Source = Source {
            name: $file,
            text: concat!(
                $("#line 1 \"", $header, "\"\n", include_str!(concat!("../../cuda/", $header)), )*
                "#line 1 \"", $file, "\"\n",
                include_str!(concat!("../../cuda/", $file)),
            ),
        };
    };
}

source!(
    /// Sums, products and copies of arrays and of windows of rows.
    ELEMENTWISE = "elementwise.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h"
);
source!(
    /// Activations and their derivatives.
    ACTIVATION = "activation.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
);
source!(
    /// Kernels whose sums run along a row.
    NORM = "norm.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "reduce.h"
        "segments.h"
);
source!(
    /// Norms of rows that several devices have the columns of.
    PART_NORM = "part_norm.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "reduce.h"
);
source!(
    /// Sums over rows.
    COLUMNS = "columns.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "segments.h"
);
source!(
    /// Losses and metrics.
    LOSS = "loss.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "reduce.h"
);
source!(
    /// Table look-up.
    EMBEDDING = "embedding.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "segments.h"
);
source!(
    /// Optimizers.
    OPTIMIZER = "optimizer.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "reduce.h"
);
source!(
    /// Dropout.
    DROPOUT = "dropout.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "random.h"
);
source!(
    /// Matrix products.
    PRODUCT = "product.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "function.h" "tile.h"
);
source!(
    /// Attention for every size of head.
    ATTENTION = "attention.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "reduce.h" "heads.h"
);
source!(
    /// Attention on tensor cores.
    FLASH = "flash.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "heads.h"
        "bands.h" "flash.h"
);
source!(
    /// Attention on tensor cores by warp groups.
    FLASH_SM90 = "flash_sm90.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "heads.h" "bands.h" "flash.h" "warpgroup.h" "panels.h"
);
source!(
    /// Attention whose scores are stored.
    STORED = "stored.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "function.h" "heads.h"
);
source!(
    /// Rotary positions.
    ROTARY = "rotary.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h"
);
source!(
    /// Counts of words.
    SCAN = "scan.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "reduce.h"
);
source!(
    /// Batch normalisation.
    BATCH_NORM = "batch_norm.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "segments.h" "moments.h"
);
source!(
    /// Group normalisation.
    GROUP_NORM = "group_norm.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "reduce.h" "segments.h"
);
source!(
    /// Rows of images that several devices divide.
    HALO = "halo.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h"
);
source!(
    /// Norms of images whose pixels several devices divide.
    PIXEL_NORM = "pixel_norm.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h"
        "segments.h" "moments.h"
);
source!(
    /// Pooling.
    POOL = "pool.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "window.h" "segments.h"
);
source!(
    /// Convolutions, as tiles of matrix products.
    CONVOLUTION = "convolution.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "window.h"
        "view.h" "tile.h"
);
source!(
    /// Convolutions with few channels in a group.
    GROUPED = "grouped.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "window.h" "view.h"
);

/// All of them, in order of their names.
pub const SOURCES: &[Source] = &[
    ACTIVATION,
    ATTENTION,
    BATCH_NORM,
    COLUMNS,
    CONVOLUTION,
    DROPOUT,
    ELEMENTWISE,
    EMBEDDING,
    FLASH,
    FLASH_SM90,
    GROUP_NORM,
    GROUPED,
    HALO,
    LOSS,
    NORM,
    OPTIMIZER,
    PART_NORM,
    PIXEL_NORM,
    POOL,
    PRODUCT,
    ROTARY,
    SCAN,
    STORED,
];
