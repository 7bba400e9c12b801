//! Pooling over windows of images (batch, height, width, channels), and over whole images.

use crate::{
    Context, Real,
    fast::pool as fast,
    kernel::Define,
    operand::Operands,
    plain::pool as plain,
    signature::{Signature, product},
    store::Store,
    team::{Cut, for_each_part, rows_per_part},
    window::Window,
};
use roundelay_schedule::Access;

/// What an element of a whole image costs, in operations: it comes from memory, or goes there.
const ELEMENT: usize = 4;

/// Extents of a pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) batch: usize,
    pub(crate) window: Window,
    pub(crate) channels: usize,
}

impl Pool {
    /// The images `name`, and the attributes `size`, `stride` and `padding`.
    fn parse(
        call: &mut Signature<'_>,
        name: &'static str,
        access: Access,
    ) -> Result<Self, String> {
        let [batch, height, width, channels] = call.images(name, access)?;
        let most = 1 << 20;
        let valid = |size: i64| (1..=most).contains(&size);
        let size = call.integer("size", "from 1 to 1048576", valid)? as usize;
        let window = Window::parse(call, [height, width], [size; 2])?;
        match window.padding <= size / 2 {
            true => Ok(Self { batch, window, channels }),
            false => Err(format!(
                "a padding of {} is more than half of size {size}",
                window.padding
            )),
        }
    }
    /// A forward call: images `x`, results `y`.
    fn forward(call: &mut Signature<'_>) -> Result<Self, String> {
        let pool = Self::parse(call, "x", Access::Read)?;
        call.shaped("y", Access::Write, pool.places())?;
        Ok(pool)
    }
    /// Pools some images on each thread.
    fn each_part<R: Real>(
        &self,
        x: &[R],
        y: &mut [R],
        context: &Context,
        pool: impl Fn(&Self, &[R], &mut [R]) + Sync,
    ) {
        let images = self.parts(context.threads);
        let parts = y.chunks_mut(images * self.result());
        let parts = x.chunks(images * self.image()).zip(parts);
        for_each_part(parts, |(x, y)| pool(self, x, y));
    }
    /// The result as (places, channels).
    fn places(&self) -> (usize, usize) {
        (self.window.places_of(self.batch), self.channels)
    }
    /// Elements of one image.
    pub(crate) fn image(&self) -> usize {
        self.window.pixels() * self.channels
    }
    /// Elements of one image of the result.
    pub(crate) fn result(&self) -> usize {
        self.window.places() * self.channels
    }
    fn flops(&self) -> u64 {
        let places = product([self.batch, self.window.places(), self.channels]);
        places.saturating_mul(self.window.taps() as u64)
    }
    /// Images of one thread.
    fn parts(&self, threads: usize) -> usize {
        let cost = usize::try_from(self.flops()).unwrap_or(usize::MAX) / self.batch;
        rows_per_part(threads, self.batch, cost)
    }
    fn fits_result(&self, length: usize) -> Result<(), String> {
        let (rows, columns) = self.places();
        match rows.checked_mul(columns) == Some(length) {
            true => Ok(()),
            false => Err(format!(
                "`dy` has {length} elements, but must be {:?}",
                (rows, columns)
            )),
        }
    }
}

/// y = the greatest number in every window; padding is none, and what is no number is greater than
/// all that are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MaxPool {
    pub(crate) pool: Pool,
}

/// dx: dy goes to the first greatest number of its window, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MaxPoolBackward {
    pub(crate) pool: Pool,
    pub(crate) store: Store,
}

/// y = the mean of every window, where padding counts as zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AvgPool {
    pub(crate) pool: Pool,
}

/// dx = dy / size² in every window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AvgPoolBackward {
    pub(crate) pool: Pool,
    pub(crate) store: Store,
}

/// y (b, c) = the mean over height and width.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GlobalPool {
    pub(crate) batch: usize,
    pub(crate) pixels: usize,
    pub(crate) channels: usize,
}

/// dx = dy / (height · width) everywhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GlobalPoolBackward {
    pub(crate) batch: usize,
    pub(crate) pixels: usize,
    pub(crate) channels: usize,
    pub(crate) store: Store,
}

impl Define for MaxPool {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Pool::forward(call).map(|pool| Self { pool })
    }
    fn flops(&self) -> u64 {
        self.pool.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        self.pool.each_part(x, y, context, fast::max_pool);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::max_pool(&self.pool, operands.read(), operands.write());
    }
}

impl Define for MaxPoolBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let pool = Pool::parse(call, "x", Access::Read)?;
        call.shaped("dy", Access::Read, pool.places())?;
        call.vector("dx", store.access(), pool.batch * pool.image())?;
        Ok(Self { pool, store })
    }
    fn flops(&self) -> u64 {
        self.pool.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, dy] = operands.reads();
        let (pool, images) = (&self.pool, self.pool.parts(context.threads));
        let share = images * pool.image();
        let parts = x.chunks(share).zip(dy.chunks(images * pool.result()));
        let parts = parts.zip(operands.write().chunks_mut(share));
        for_each_part(parts, |((x, dy), dx)| {
            fast::max_pool_backward(pool, x, dy, dx, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let [x, dy] = operands.reads();
        plain::max_pool_backward(&self.pool, x, dy, operands.write(), self.store);
    }
}

impl Define for AvgPool {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Pool::forward(call).map(|pool| Self { pool })
    }
    fn flops(&self) -> u64 {
        self.pool.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        self.pool.each_part(x, y, context, fast::avg_pool);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::avg_pool(&self.pool, operands.read(), operands.write());
    }
}

impl Define for AvgPoolBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let length = call.any("dy", Access::Read)?;
        let pool = Pool::parse(call, "dx", store.access())?;
        pool.fits_result(length)?;
        Ok(Self { pool, store })
    }
    fn flops(&self) -> u64 {
        self.pool.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        let (pool, images) = (&self.pool, self.pool.parts(context.threads));
        let parts = dx.chunks_mut(images * pool.image());
        let parts = dy.chunks(images * pool.result()).zip(parts);
        for_each_part(parts, |(dy, dx)| {
            fast::avg_pool_backward(pool, dy, dx, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        plain::avg_pool_backward(&self.pool, dy, dx, self.store);
    }
}

impl Define for GlobalPool {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let [batch, height, width, channels] = call.images("x", Access::Read)?;
        call.shaped("y", Access::Write, (batch, channels))?;
        Ok(Self { batch, pixels: height * width, channels })
    }
    fn flops(&self) -> u64 {
        product([self.batch, self.pixels, self.channels])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y, image) =
            (operands.read(), operands.write(), self.pixels * self.channels);
        let cut = Cut::new(context.threads, self.batch, ELEMENT * image);
        let images = cut.rows;
        let parts = y.chunks_mut(images * self.channels);
        cut.each(x.chunks(images * image).zip(parts), |(x, y)| {
            fast::global_pool(x, y, self.pixels, self.channels);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::global_pool(operands.read(), operands.write(), self.pixels, self.channels);
    }
}

impl Define for GlobalPoolBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("dy", Access::Read)?;
        let [batch, height, width, channels] = call.images("dx", store.access())?;
        if (rows, columns) != (batch, channels) {
            let expected = (batch, channels);
            return Err(format!(
                "`dy` is {:?}, but must be {expected:?}",
                (rows, columns)
            ));
        }
        Ok(Self { batch, pixels: height * width, channels, store })
    }
    fn flops(&self) -> u64 {
        product([self.batch, self.pixels, self.channels])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx, image) =
            (operands.read(), operands.write(), self.pixels * self.channels);
        let cut = Cut::new(context.threads, self.batch, ELEMENT * image);
        let images = cut.rows;
        let parts = dx.chunks_mut(images * image);
        cut.each(dy.chunks(images * self.channels).zip(parts), |(dy, dx)| {
            fast::global_pool_backward(dy, dx, self.pixels, self.channels, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        plain::global_pool_backward(dy, dx, self.pixels, self.channels, self.store);
    }
}
