//! The fast bodies: vectorised loops and packed products, file by file beside the plain ones.

pub(crate) mod activation;
pub(crate) mod affine;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod convolution;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod exchange;
pub(crate) mod group_norm;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod part_norm;
pub(crate) mod pixel_norm;
pub(crate) mod pool;
pub(crate) mod rms_norm;
pub(crate) mod rotary;
pub(crate) mod tanh;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        product::{Buffers, Target, View, multiply},
        random::Stream,
        simd::PORTABLE,
        store::Store,
    };

    /// The same work with the best instructions of this processor and without.
    fn assert_same_bits(work: impl Fn(&[f32], &mut [f32])) {
        let stream = Stream::new(1, &[]);
        let x: Vec<f32> = (0..20 * 37).map(|i| 3.0 * stream.normal(i) as f32).collect();
        let run = |portable: bool| -> Vec<u32> {
            let mut y = vec![0.25; x.len()];
            PORTABLE.set(portable);
            work(&x, &mut y);
            PORTABLE.set(false);
            y.into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(run(false), run(true));
    }

    #[test]
    fn instruction_sets_do_not_change_a_bit() {
        assert_same_bits(activation::gelu);
        assert_same_bits(|x, y| activation::gelu_backward(x, x, y, Store::Add));
        assert_same_bits(tanh::gelu_tanh);
        assert_same_bits(|x, y| tanh::gelu_tanh_backward(x, x, y, Store::Add));
        assert_same_bits(|x, y| tanh::soft_cap(x, y, 1.5));
        assert_same_bits(|x, y| tanh::soft_cap_backward(x, x, y, 1.5, Store::Add));
        assert_same_bits(activation::silu);
        assert_same_bits(|x, y| activation::silu_backward(x, x, y, Store::Add));
        assert_same_bits(|x, y| norm::softmax(x, y, 37));
        assert_same_bits(|x, y| norm::softmax_backward(x, x, y, 37, Store::Add));
        assert_same_bits(|x, y| {
            let (mean, rstd) = (&mut [0.0; 20], &mut [0.0; 20]);
            norm::layer_norm(x, &x[..37], &x[37..74], y, mean, rstd, 1e-5);
        });
        assert_same_bits(|x, y| {
            let (dx, sums) = y.split_at_mut(18 * 37);
            let inputs = [&x[74..], &x[..37], &x[..18], &x[20..38], &x[74..]];
            norm::layer_norm_backward(inputs, dx, sums, Store::Write);
        });
        assert_same_bits(|x, y| batch_norm::moments(x, &mut y[..4 * 37]));
        assert_same_bits(|x, y| {
            batch_norm::normalise(x, [&x[..37], &x[37..74], &x[74..111]], y);
        });
        assert_same_bits(|x, y| {
            batch_norm::normalise(x, [&x[..7], &x[7..14], &x[14..21]], y);
        });
        assert_same_bits(|x, y| {
            let channels = [&x[..5], &x[5..10], &x[10..15], &x[15..20]];
            group_norm::spread([x, x], channels, y, Store::Add);
        });
        assert_same_bits(|x, y| batch_norm::open_sums([x; 3], &x[..37], &mut y[..74]));
        assert_same_bits(|x, y| rms_norm::rms_norm(x, &x[..37], y, &mut [0.0; 20], 1e-5));
        assert_same_bits(|x, y| loss::log_sums(x, &mut y[..20]));
        assert_same_bits(|x, y| {
            let view = View { data: x, row: 37, column: 1 };
            let turned = View { data: x, row: 1, column: 37 }.factor(37, 20);
            let out = &mut Target { data: y, row: 37 };
            let buffers = &mut Buffers::new();
            multiply(20, view, turned, out, Store::Add, buffers);
        });
    }
}
