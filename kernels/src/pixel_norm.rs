//! Batch and group normalisation of images whose pixels several devices divide equally: statistics
//! of own pixels before they meet (`pixel_norm_moments`, `pixel_norm_slopes`), and what is made of
//! those of all pixels.
//!
//! x is (examples, positions, columns), with statistics for each example and group of columns. A
//! batch norm has one example of all pixels, and a group for each channel. Means and squares around
//! them meet at once, and are joined without a difference of large sums (Chan, Golub, LeVeque 1979).

use crate::{
    Context, Mode, Real,
    group_norm::Groups,
    kernel::Define,
    operand::Operands,
    plain::pixel_norm as plain,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::Access;

/// moments_0 = the means of the own pixels, moments_1 = Σ (x − mean)².
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormMoments {
    pub(crate) extents: Groups,
}

/// The mean and the variance of all pixels, from the moments of each part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormStatistics {
    pub(crate) parts: usize,
    pub(crate) statistics: usize,
    /// Elements of one statistic that each part has.
    pub(crate) count: usize,
    pub(crate) outside: Outside,
}

/// What is taken outside of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// The statistics of the images themselves.
    Own,
    /// Running ones, which are operands.
    Running,
}

/// y = (x − mean) · rstd · gain + bias for the own pixels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNorm {
    pub(crate) extents: Groups,
}

/// slopes_0 = Σ g · x̂ and slopes_1 = Σ g over the own pixels, g = dy · gain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormSlopes {
    pub(crate) extents: Groups,
}

/// The gradient of the own pixels of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormBackward {
    pub(crate) extents: Groups,
    /// Elements of one statistic that all parts have together.
    pub(crate) count: usize,
    pub(crate) store: Store,
}

/// The own shares of the gradients of gain and bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PixelNormParameters {
    pub(crate) extents: Groups,
    pub(crate) store: Store,
}

/// The attribute `count`.
fn count(call: &mut Signature<'_>) -> Result<usize, String> {
    let count = call.integer("count", "at least 1", |count| count >= 1)?;
    usize::try_from(count).map_err(|_| "attribute `count` is too large".to_owned())
}

/// The operands `names`, each a number for every statistic.
fn statistics(
    call: &mut Signature<'_>,
    names: &[&'static str],
    (access, length): (Access, usize),
) -> Result<(), String> {
    names.iter().try_for_each(|name| call.vector(name, access, length))
}

impl Define for PixelNormMoments {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        call.vector("moments", Access::Write, 2 * extents.statistics())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(4)
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::moments(self.extents, operands.read(), operands.write());
    }
}

impl Define for PixelNormStatistics {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (count, running) = (count(call)?, call.flag("running")?);
        let (parts, both) = call.matrix("moments", Access::Read)?;
        if !both.is_multiple_of(2) {
            return Err(format!("{both} moments are no means and squares"));
        }
        let outside = if running { Outside::Running } else { Outside::Own };
        let own = (Access::Read, both / 2);
        match outside {
            Outside::Own => {}
            Outside::Running => {
                statistics(call, &["running_mean", "running_variance"], own)?;
            }
        }
        statistics(call, &["mean", "variance"], (Access::Write, both / 2))?;
        Ok(Self { parts, statistics: both / 2, count, outside })
    }
    fn flops(&self) -> u64 {
        product([8, self.parts, self.statistics])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let moments = operands.read();
        let running = match self.outside {
            Outside::Own => None,
            Outside::Running => Some([operands.read(), operands.read()]),
        };
        let [mean, variance] = [operands.write(), operands.write()];
        match (context.mode, running) {
            (Mode::Evaluation, Some(running)) => {
                mean.copy_from_slice(running[0]);
                variance.copy_from_slice(running[1]);
            }
            (Mode::Training, Some(_)) | (_, None) => {
                plain::join(moments, self.count, mean, variance);
            }
        }
    }
}

impl Define for PixelNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        statistics(call, &["gain", "bias"], (Access::Read, extents.columns))?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("y", Access::Write, extents.matrix())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(4)
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = [(); 5].map(|()| operands.read());
        plain::normalise(self.extents, given, operands.write());
    }
}

impl Define for PixelNormSlopes {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        call.vector("slopes", Access::Write, 2 * extents.statistics())?;
        Ok(Self { extents })
    }
    fn flops(&self) -> u64 {
        self.extents.work(6)
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = [(); 5].map(|()| operands.read());
        plain::slopes(self.extents, given, operands.write());
    }
}

impl Define for PixelNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (store, count) = (call.store()?, count(call)?);
        let extents = Groups::parse(call)?;
        call.vector("gain", Access::Read, extents.columns)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        call.vector("slopes", Access::Read, 2 * extents.statistics())?;
        call.shaped("dx", store.access(), extents.matrix())?;
        Ok(Self { extents, count, store })
    }
    fn flops(&self) -> u64 {
        self.extents.work(7)
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = [(); 6].map(|()| operands.read());
        let made = (operands.write(), self.count, self.store);
        plain::backward(self.extents, given, made);
    }
}

impl Define for PixelNormParameters {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let extents = Groups::parse(call)?;
        statistics(call, &["mean", "variance"], (Access::Read, extents.statistics()))?;
        call.shaped("dy", Access::Read, extents.matrix())?;
        statistics(call, &["dgain", "dbias"], (store.access(), extents.columns))?;
        Ok(Self { extents, store })
    }
    fn flops(&self) -> u64 {
        self.extents.work(5)
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let given = [(); 4].map(|()| operands.read());
        let made = [operands.write(), operands.write()];
        plain::parameters(self.extents, given, made, self.store);
    }
}
