//! The sources of all kernels: each with what it uses, as one text that needs no other file.

use super::Source;

/// The text of a file whose lines the compiler counts anew.
macro_rules! lines {
    ($file:literal) => {
        concat!("#line 1 \"", $file, "\"\n", include_str!(concat!("../../cuda/", $file)))
    };
}

macro_rules! source {
    ($(#[$doc:meta])* $name:ident = $file:literal with $($header:literal)*) => {
        $(#[$doc])*
        pub(crate) const $name: Source =
            Source { name: $file, text: concat!($(lines!($header), )* lines!($file)) };
    };
}

/// Functions of one file for one type and one size of head: what a training needs is a fourth of
/// all, and this much takes a compiler long enough.
macro_rules! heads {
    ($doc:literal $headers:tt $($name:ident = $file:literal of $heads:literal),*) => {
        $(heads!(@one $doc $headers $name = $file of $heads);)*
    };
    (@one $doc:literal ($($header:literal)*) $name:ident = $file:literal of $heads:literal) => {
        #[doc = $doc]
        pub(crate) const $name: Source = Source {
            name: $file,
            text: concat!($(lines!($header), )* "EXPORT_HEADS", $heads, "\n"),
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
heads!(
    "Attention on tensor cores."
    ("kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "heads.h" "bands.h" "flash.h"
        "flash.cu")
    FLASH_BF16_32 = "flash_bf16_32.cu" of "(bf16, 32)",
    FLASH_BF16_64 = "flash_bf16_64.cu" of "(bf16, 64)",
    FLASH_BF16_80 = "flash_bf16_80.cu" of "(bf16, 80)",
    FLASH_BF16_96 = "flash_bf16_96.cu" of "(bf16, 96)",
    FLASH_BF16_128 = "flash_bf16_128.cu" of "(bf16, 128)",
    FLASH_F16_32 = "flash_f16_32.cu" of "(f16, 32)",
    FLASH_F16_64 = "flash_f16_64.cu" of "(f16, 64)",
    FLASH_F16_80 = "flash_f16_80.cu" of "(f16, 80)",
    FLASH_F16_96 = "flash_f16_96.cu" of "(f16, 96)",
    FLASH_F16_128 = "flash_f16_128.cu" of "(f16, 128)"
);
heads!(
    "Attention on tensor cores by warp groups."
    ("kernel.h" "ptx.h" "number.h" "pack.h" "map.h" "function.h" "heads.h" "bands.h" "flash.h"
        "warpgroup.h" "panels.h" "flash_sm90.cu")
    FLASH_SM90_BF16_64 = "flash_sm90_bf16_64.cu" of "(bf16, 64)",
    FLASH_SM90_BF16_128 = "flash_sm90_bf16_128.cu" of "(bf16, 128)",
    FLASH_SM90_F16_64 = "flash_sm90_f16_64.cu" of "(f16, 64)",
    FLASH_SM90_F16_128 = "flash_sm90_f16_128.cu" of "(f16, 128)"
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
    /// Rows of images that several devices divide.
    HALO = "halo.cu" with "kernel.h" "ptx.h" "number.h" "pack.h" "map.h"
);
source!(
    /// Group normalisation, and norms of images whose pixels several devices divide.
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
    FLASH_BF16_128,
    FLASH_BF16_32,
    FLASH_BF16_64,
    FLASH_BF16_80,
    FLASH_BF16_96,
    FLASH_F16_128,
    FLASH_F16_32,
    FLASH_F16_64,
    FLASH_F16_80,
    FLASH_F16_96,
    FLASH_SM90_BF16_128,
    FLASH_SM90_BF16_64,
    FLASH_SM90_F16_128,
    FLASH_SM90_F16_64,
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
