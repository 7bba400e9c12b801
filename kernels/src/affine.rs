//! Affine maps y = x Wᵀ + bias together with what follows them; the gradient of what goes into one
//! together with the slope of what stands before it; and the gradients of weight and bias. One pass
//! over memory instead of two or three, where a form can, and the bits of the kernels one by one.

use crate::{
    Context, Real,
    elementwise::SumRows,
    fast::affine as fast,
    kernel::Define,
    matmul::Matmul,
    operand::Operands,
    plain::affine as plain,
    product::Target,
    signature::{Signature, product},
    team::parts,
};
use roundelay_schedule::Access;

/// y = x Wᵀ + bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Affine(pub(crate) Matmul);

/// y = max(x Wᵀ + bias, 0).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AffineRelu(pub(crate) Matmul);

/// dt = dz W times the slope of the same at t.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatmulGeluTanhBackward(pub(crate) Matmul);

/// dweight = dyᵀ x, dbias_j = Σ_i dy_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AffineGradients {
    pub(crate) product: Matmul,
    pub(crate) sums: SumRows,
}

/// y = a + (x Wᵀ + bias).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AffineAdd(pub(crate) Matmul);

/// x, weight and bias.
fn inputs(call: &mut Signature<'_>) -> Result<Matmul, String> {
    let (m, k) = call.matrix("x", Access::Read)?;
    let (n, depth) = call.matrix("weight", Access::Read)?;
    if depth != k {
        return Err(format!("`x` has inner extent {k}, but `weight` has {depth}"));
    }
    call.vector("bias", Access::Read, n)?;
    Ok(Matmul::affine([m, n, k]))
}

/// Arithmetic of the product and of `each` operations on every element of the result.
fn flops(affine: &Matmul, each: usize) -> u64 {
    let Matmul { m, n, k, .. } = *affine;
    product([2, m, n, k]).saturating_add(product([each, m, n]))
}

impl Define for Affine {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let map = inputs(call)?;
        call.shaped("y", Access::Write, (map.m, map.n))?;
        Ok(Self(map))
    }
    fn flops(&self) -> u64 {
        flops(&self.0, 1)
    }
    fn packed<R: Real>(&self) -> usize {
        self.0.packed::<R>()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, weight, bias] = operands.reads();
        self.0.run(x, weight, operands.write(), context.threads, |rows| {
            parts(self.0.m, rows)
                .map(|_| move |part, y: &mut Target<'_, R>| fast::add_bias(bias, part, y))
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<3>();
        plain::affine(&self.0, inputs, operands.write());
    }
}

impl Define for AffineRelu {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Affine::parse(call).map(|Affine(map)| Self(map))
    }
    fn flops(&self) -> u64 {
        flops(&self.0, 2)
    }
    fn packed<R: Real>(&self) -> usize {
        self.0.packed::<R>()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, weight, bias] = operands.reads();
        self.0.run(x, weight, operands.write(), context.threads, |rows| {
            parts(self.0.m, rows).map(|_| {
                move |part, y: &mut Target<'_, R>| fast::add_bias_relu(bias, part, y)
            })
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<3>();
        plain::affine_relu(&self.0, inputs, operands.write());
    }
}

/// A map whose result an activation follows, which are this many operations on every element; what makes them of
/// the product, and both in the plain reference.
macro_rules! activated {
    ($(#[$doc:meta])* $kernel:ident, $flops:literal, $function:ident, $plain:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $kernel(pub(crate) Matmul);

        impl Define for $kernel {
            fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
                let map = inputs(call)?;
                call.shaped("z", Access::Write, (map.m, map.n))?;
                call.shaped("y", Access::Write, (map.m, map.n))?;
                Ok(Self(map))
            }
            fn flops(&self) -> u64 {
                flops(&self.0, $flops)
            }
            fn packed<R: Real>(&self) -> usize {
                self.0.packed::<R>()
            }
            fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
                let [x, weight, bias] = operands.reads();
                let [z, y] = operands.writes();
                self.0.run(x, weight, z, context.threads, |rows| {
                    y.chunks_mut(rows * self.0.n).map(|y| {
                        move |part, z: &mut Target<'_, R>| fast::$function(bias, part, z, y)
                    })
                });
            }
            fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
                let inputs = operands.reads();
                plain::$plain(&self.0, inputs, operands.write(), operands.write());
            }
        }
    };
}

activated!(
    /// z = x Wᵀ + bias, y = z · Φ(z).
    AffineGelu, 10, add_bias_gelu, affine_gelu
);
activated!(
    /// z = x Wᵀ + bias, y = z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2.
    AffineGeluTanh, 16, add_bias_gelu_tanh, affine_gelu_tanh
);

impl Define for MatmulGeluTanhBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (m, k) = call.matrix("dz", Access::Read)?;
        let (depth, n) = call.matrix("weight", Access::Read)?;
        if depth != k {
            return Err(format!("`dz` has inner extent {k}, but `weight` has {depth}"));
        }
        call.shaped("t", Access::Read, (m, n))?;
        call.shaped("dt", Access::Write, (m, n))?;
        Ok(Self(Matmul { transpose_b: false, ..Matmul::affine([m, n, k]) }))
    }
    fn flops(&self) -> u64 {
        flops(&self.0, 24)
    }
    fn packed<R: Real>(&self) -> usize {
        self.0.packed::<R>()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [dz, weight, t] = operands.reads();
        self.0.run(dz, weight, operands.write(), context.threads, |rows| {
            t.chunks(rows * self.0.n).map(|t| {
                move |part, dt: &mut Target<'_, R>| {
                    fast::times_gelu_tanh_slope(t, part, dt);
                }
            })
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<3>();
        plain::matmul_gelu_tanh_backward(&self.0, inputs, operands.write());
    }
}

impl Define for AffineGradients {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (m, n) = call.matrix("dy", Access::Read)?;
        let (rows, k) = call.matrix("x", Access::Read)?;
        if rows != m {
            return Err(format!("`dy` has {m} rows, but `x` has {rows}"));
        }
        call.shaped("dweight", store.access(), (n, k))?;
        call.vector("dbias", store.access(), n)?;
        let (transpose_a, transpose_b) = (true, false);
        Ok(Self {
            product: Matmul { m: n, n: k, k: m, transpose_a, transpose_b, store },
            sums: SumRows { count: m * n, columns: n, store },
        })
    }
    fn flops(&self) -> u64 {
        self.product.flops().saturating_add(self.sums.flops())
    }
    fn packed<R: Real>(&self) -> usize {
        self.product.packed::<R>()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [dy, x] = operands.reads();
        self.product.multiply(dy, x, operands.write(), context.threads);
        self.sums.sum(dy, operands.write(), context.threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<2>();
        plain::affine_gradients(
            &self.product,
            inputs,
            operands.write(),
            operands.write(),
        );
    }
}

impl Define for AffineAdd {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let map = inputs(call)?;
        call.shaped("a", Access::Read, (map.m, map.n))?;
        call.shaped("y", Access::Write, (map.m, map.n))?;
        Ok(Self(map))
    }
    fn flops(&self) -> u64 {
        flops(&self.0, 2)
    }
    fn packed<R: Real>(&self) -> usize {
        self.0.packed::<R>()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, weight, bias, a] = operands.reads();
        self.0.run(x, weight, operands.write(), context.threads, |rows| {
            a.chunks(rows * self.0.n).map(|a| {
                move |part, y: &mut Target<'_, R>| fast::add_bias_and(a, bias, part, y)
            })
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<3>();
        let a = operands.read();
        plain::affine_add(&self.0, inputs, a, operands.write());
    }
}
