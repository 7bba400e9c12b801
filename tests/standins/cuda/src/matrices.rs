//! Matrices that are stored column by column.

use crate::numbers::Number;

/// How a matrix lies.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) number: Number,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Elements from one column to the next.
    pub(crate) column: u64,
    pub(crate) batches: u64,
    /// Elements from one matrix of the batch to the next.
    pub(crate) batch: u64,
}

/// A matrix where it is.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) start: u64,
    pub(crate) layout: Layout,
    pub(crate) transposed: bool,
}

impl Matrix {
    /// Rows and columns, as the product has them.
    pub(crate) fn extents(&self) -> (u64, u64) {
        let Layout { rows, columns, .. } = self.layout;
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    /// The address of an element.
    pub(crate) fn at(&self, batch: u64, row: u64, column: u64) -> u64 {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        let Layout { number, column: stride, batch: between, .. } = self.layout;
        self.start + (batch * between + column * stride + row) * number.size()
    }

    /// An element.
    pub(crate) fn read(&self, batch: u64, row: u64, column: u64) -> f64 {
        // SAFETY: the whole matrix was live when the product was given.
        unsafe { self.layout.number.read(self.at(batch, row, column)) }
    }

    /// Bytes from the first element to the last.
    pub(crate) fn bytes(&self) -> u64 {
        let Layout { number, rows, columns, column, batches, batch } = self.layout;
        ((batches - 1) * batch + (columns - 1) * column + rows) * number.size()
    }
}
