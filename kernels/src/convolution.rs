//! `conv2d` and its gradients. Images are (batch, height, width, channels), weights (filters,
//! kernel height, kernel width, channels / groups).

use crate::{
    Context, Real,
    fast::convolution as fast,
    kernel::Define,
    operand::Operands,
    plain::convolution as plain,
    signature::{Signature, product},
    store::Store,
    window::Window,
};
use roundelay_schedule::Access;

/// Extents of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) batch: usize,
    pub(crate) window: Window,
    pub(crate) channels: usize,
    pub(crate) filters: usize,
    pub(crate) groups: usize,
}

impl Geometry {
    /// From images and weights.
    fn parse(
        call: &mut Signature<'_>,
        [batch, height, width, channels]: [usize; 4],
        [filters, high, wide, per_group]: [usize; 4],
    ) -> Result<Self, String> {
        let groups = call.count("groups")?;
        let window = Window::parse(call, [height, width], [high, wide])?;
        if per_group.checked_mul(groups) != Some(channels) {
            return Err(format!(
                "{channels} channels are not {groups} groups of {per_group}, as the \
                 weights have them"
            ));
        }
        if !filters.is_multiple_of(groups) {
            return Err(format!("{groups} groups do not divide {filters} filters"));
        }
        Ok(Self { batch, window, channels, filters, groups })
    }
    /// Channels that one filter sees.
    pub(crate) fn group_channels(&self) -> usize {
        self.channels / self.groups
    }
    /// Filters that see the same channels.
    pub(crate) fn group_filters(&self) -> usize {
        self.filters / self.groups
    }
    /// Numbers that one filter sees at one place, (row, column, channel).
    pub(crate) fn depth(&self) -> usize {
        self.window.taps() * self.group_channels()
    }
    /// Elements of one image.
    pub(crate) fn image(&self) -> usize {
        self.window.pixels() * self.channels
    }
    /// Elements of one image of the result.
    pub(crate) fn result(&self) -> usize {
        self.window.places() * self.filters
    }
    /// The result as (places, filters).
    fn places(&self) -> (usize, usize) {
        (self.window.places_of(self.batch), self.filters)
    }
    fn flops(&self) -> u64 {
        let places = product([2, self.batch, self.window.places(), self.filters]);
        places.saturating_mul(self.depth() as u64)
    }
}

/// y = x ∗ weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conv2d {
    pub(crate) geometry: Geometry,
}

/// The gradient of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conv2dBackward {
    pub(crate) geometry: Geometry,
    pub(crate) store: Store,
}

/// The gradient of the weights.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conv2dWeights {
    pub(crate) geometry: Geometry,
    pub(crate) store: Store,
}

impl Define for Conv2d {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let x = call.images("x", Access::Read)?;
        let weight = call.images("weight", Access::Read)?;
        let geometry = Geometry::parse(call, x, weight)?;
        call.shaped("y", Access::Write, geometry.places())?;
        Ok(Self { geometry })
    }
    fn flops(&self) -> u64 {
        self.geometry.flops()
    }
    fn scratch(&self) -> usize {
        fast::scratch(&self.geometry, fast::Pass::Forward)
    }
    fn packed<R: Real>(&self) -> usize {
        fast::packed::<R>(&self.geometry, fast::Pass::Forward)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let inputs = [operands.read(), operands.read()];
        fast::forward(&self.geometry, inputs, operands.write(), context.threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, weight) = (operands.read(), operands.read());
        plain::forward(&self.geometry, x, weight, operands.write());
    }
}

impl Define for Conv2dBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("dy", Access::Read)?;
        let weight = call.images("weight", Access::Read)?;
        let dx = call.images("dx", store.access())?;
        let geometry = Geometry::parse(call, dx, weight)?;
        fits_result(&geometry, rows, columns)?;
        Ok(Self { geometry, store })
    }
    fn flops(&self) -> u64 {
        self.geometry.flops()
    }
    fn scratch(&self) -> usize {
        fast::scratch(&self.geometry, fast::Pass::Backward)
    }
    fn packed<R: Real>(&self) -> usize {
        fast::packed::<R>(&self.geometry, fast::Pass::Backward)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let inputs = [operands.read(), operands.read()];
        let (store, threads) = (self.store, context.threads);
        fast::backward(&self.geometry, inputs, operands.write(), store, threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (dy, weight) = (operands.read(), operands.read());
        plain::backward(&self.geometry, dy, weight, operands.write(), self.store);
    }
}

impl Define for Conv2dWeights {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let x = call.images("x", Access::Read)?;
        let (rows, columns) = call.matrix("dy", Access::Read)?;
        let weight = call.images("dweight", store.access())?;
        let geometry = Geometry::parse(call, x, weight)?;
        fits_result(&geometry, rows, columns)?;
        Ok(Self { geometry, store })
    }
    fn flops(&self) -> u64 {
        self.geometry.flops()
    }
    fn scratch(&self) -> usize {
        fast::scratch(&self.geometry, fast::Pass::Weights)
    }
    fn packed<R: Real>(&self) -> usize {
        fast::packed::<R>(&self.geometry, fast::Pass::Weights)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let inputs = [operands.read(), operands.read()];
        let (store, threads) = (self.store, context.threads);
        fast::weights(&self.geometry, inputs, operands.write(), store, threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, dy) = (operands.read(), operands.read());
        plain::weights(&self.geometry, x, dy, operands.write(), self.store);
    }
}

/// Whether dy has the shape of the result.
fn fits_result(geometry: &Geometry, rows: usize, columns: usize) -> Result<(), String> {
    let expected = geometry.places();
    match (rows, columns) == expected {
        true => Ok(()),
        false => Err(format!("`dy` is {:?}, but must be {expected:?}", (rows, columns))),
    }
}
