//! Activations and their derivatives.

use crate::{
    Context, Real,
    fast::activation as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::activation as plain,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// A kernel `y = f(x)`, element by element: FLOPs of an element, what it counts for when the
/// elements are shared out to threads, and its two forms.
macro_rules! forward {
    ($(#[$doc:meta])* $name:ident, $flops:literal, $weight:literal, $function:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            pub(crate) count: usize,
        }

        impl Define for $name {
            fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
                Ok(Self { count: forward(call)? })
            }
            fn flops(&self) -> u64 {
                product([$flops, self.count])
            }
            fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
                let (x, y) = (operands.read(), operands.write());
                let cut = Cut::of_elements(context.threads, self.count, $weight);
                let parts = x.chunks(cut.rows).zip(y.chunks_mut(cut.rows));
                cut.each(parts, |(x, y)| fast::$function(x, y));
            }
            fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
                plain::$function(operands.read(), operands.write());
            }
        }
    };
}

/// A kernel `dx = dy · f'`, where f' follows from what forward kept.
macro_rules! backward {
    ($(#[$doc:meta])* $name:ident of $kept:literal, $flops:literal, $weight:literal,
     $function:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            pub(crate) count: usize,
            pub(crate) store: Store,
        }

        impl Define for $name {
            fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
                let (count, store) = backward(call, $kept)?;
                Ok(Self { count, store })
            }
            fn flops(&self) -> u64 {
                product([$flops, self.count])
            }
            fn replaces(&self) -> Vec<[usize; 2]> {
                self.store.replaces([0, 2])
            }
            fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
                let cut = Cut::of_elements(context.threads, self.count, $weight);
                each_slope(operands, cut, |kept, dy, dx| {
                    fast::$function(kept, dy, dx, self.store);
                });
            }
            fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
                each_slope(operands, Cut::none(self.count), |kept, dy, dx| {
                    plain::$function(kept, dy, dx, self.store);
                });
            }
        }
    };
}

forward!(
    /// y = max(x, 0); no number of what is none.
    Relu, 1, 4, relu
);
backward!(
    /// dx = dy where y > 0.
    ReluBackward of "y", 1, 4, relu_backward
);
forward!(
    /// y = x · Φ(x), exact.
    Gelu, 12, 12, gelu
);
backward!(
    /// dx = dy · (Φ(x) + x · φ(x)).
    GeluBackward of "x", 24, 24, gelu_backward
);
forward!(
    /// y = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (arXiv 1606.08415).
    GeluTanh, 15, 15, gelu_tanh
);
backward!(
    /// dx = dy times the slope of the same.
    GeluTanhBackward of "x", 24, 24, gelu_tanh_backward
);
forward!(
    /// y = x / (1 + exp(−x)).
    Silu, 11, 11, silu
);
backward!(
    /// dx = dy · σ(x) (1 + x (1 − σ(x))), σ(x) = 1 / (1 + exp(−x)).
    SiluBackward of "x", 15, 15, silu_backward
);

/// Makes dx piece by piece from what forward kept and dy, whether dx lies apart or
/// where that was kept.
pub(crate) fn each_slope<R: Real>(
    mut operands: Operands<'_, R>,
    cut: Cut,
    slope: impl Fn(&[R], &[R], &mut [R]) + Sync,
) {
    let given = (operands.current(2), operands.read(), operands.write());
    each_slope_of(given, cut, slope);
}

/// The same of arrays that a call has among others.
pub(crate) fn each_slope_of<R: Real>(
    (kept, dy, dx): (Current<'_, R>, &[R], &mut [R]),
    cut: Cut,
    slope: impl Fn(&[R], &[R], &mut [R]) + Sync,
) {
    cut.each(dx.chunks_mut(cut.rows).enumerate(), |(part, dx)| {
        let range = part * cut.rows..part * cut.rows + dx.len();
        let dy = &dy[range.clone()];
        kept.part(range).replace(dx, |first, kept, dx| {
            slope(kept, &dy[first..first + dx.len()], dx);
        });
    });
}

/// Reads x, writes y.
pub(crate) fn forward(call: &mut Signature<'_>) -> Result<usize, String> {
    let count = call.any("x", Access::Read)?;
    call.vector("y", Access::Write, count)?;
    Ok(count)
}

/// Reads what forward kept and dy, writes or adds dx.
pub(crate) fn backward(
    call: &mut Signature<'_>,
    kept: &'static str,
) -> Result<(usize, Store), String> {
    let store = call.store()?;
    let count = call.any(kept, Access::Read)?;
    call.vector("dy", Access::Read, count)?;
    call.vector("dx", store.access(), count)?;
    Ok((count, store))
}
