//! The kernel catalogue: name, operands, attributes, FLOPs and bytes of every kernel; plain
//! references beside the fast CPU kernels, same name.
//!
//! This crate must not know: tasks, stages, plans, memory layout.
//!
//! Every kernel is called as [`roundelay_schedule::Call`]. Operands are dense arrays, in the order
//! of this table; `r` reads, `w` writes, `u` updates, `w/u` writes unless the attribute
//! `accumulate` is true. Arrays are real unless marked i32. (m, n) means that the operand's
//! leading extents multiply to m. `b~` means that the operand has the shape of the last
//! operand or of its trailing extents, and repeats. What attributes mean stands below the table.
//!
//! | kernel | operands | what it makes, by which attributes |
//! | --- | --- | --- |
//! | `matmul` | a (m, k) r, b (k, n) r, out (m, n) w/u | `transpose_a`, `transpose_b`, `accumulate` |
//! | `affine` | x (m, k) r, weight (n, k) r, bias (n) r, y (m, n) w | y = x Wᵀ + bias |
//! | `affine_relu` | x, weight, bias, y (m, n) w | y = max(x Wᵀ + bias, 0) |
//! | `affine_gelu` | x, weight, bias, z (m, n) w, y (m, n) w | z = x Wᵀ + bias, y = GELU(z) |
//! | `affine_gelu_tanh` | x, weight, bias, z (m, n) w, y (m, n) w | the same, by a hyperbolic tangent |
//! | `affine_add` | x, weight, bias, a (m, n) r, y (m, n) w | y = a + (x Wᵀ + bias) |
//! | `matmul_gelu_tanh_backward` | dz (m, k) r, weight (k, n) r, t (m, n) r, dt (m, n) w | dt = dz W times the slope of `gelu_tanh` at t |
//! | `affine_gradients` | dy (m, n) r, x (m, k) r, dweight (n, k) w/u, dbias (n) w/u | dweight = dyᵀ x, dbias = sum of dy over m; `accumulate` |
//! | `add` | a r, b~ r, out w | |
//! | `add_rows` | bias (n) r, x (m, n) u | x += bias in every row |
//! | `accumulate` | x r, out u | out += x |
//! | `copy` | x r, out w | |
//! | `zero` | out w | zeros |
//! | `sum_rows` | x (m, n) r, out (n) w/u | sum over m; `accumulate` |
//! | `multiply` | a r, b~ r, out w/u | `accumulate` |
//! | `multiply_sum_rows` | a (m, n) r, b (m, n) r, out (n) w/u | sum over m of a·b; `accumulate` |
//! | `scale` | x r, out w/u | `factor`, `accumulate` |
//! | `relu` | x r, y w | |
//! | `relu_backward` | y r, dy r, dx w/u | `accumulate` |
//! | `relu_backward_again` | x (m, n) r, gain, bias, mean, variance (n) r, dy r, dt w/u | `relu_backward` without y; m ≥ 2; `accumulate` |
//! | `gelu` | x r, y w | |
//! | `gelu_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `silu` | x r, y w | |
//! | `silu_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `gelu_tanh` | x r, y w | GELU by a hyperbolic tangent |
//! | `gelu_tanh_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `soft_cap` | x r, y w | y = cap · tanh(x / cap); `cap` |
//! | `soft_cap_backward` | y r, dy r, dx w/u | `cap`, `accumulate` |
//! | `softmax` | x (m, n) r, y (m, n) w | |
//! | `softmax_backward` | y r, dy r, dx w/u | `accumulate` |
//! | `dropout` | x r, y w | copies outside training; `rate`, `operator`, `parts`, `stride`, `columns`, `own`, `before`, `row_parts`, `row_stride` |
//! | `dropout_backward` | dy r, dx w/u | the same attributes, `accumulate` |
//! | `layer_norm` | x (m, n) r, gain (n) r, bias (n) r, y (m, n) w, mean (m) w, rstd (m) w | `epsilon` |
//! | `layer_norm_backward` | x r, gain r, mean r, rstd r, dy r, dx w/u, dgain (n) w/s, dbias (n) w/s | `accumulate`, `accumulate_sums` |
//! | `layer_norm_parameters` | x r, mean r, rstd r, dy r, dgain (n) w/u, dbias (n) w/u | the latter two alone; `accumulate` |
//! | `batch_norm` | x (m, n) r, gain, bias, running_mean, running_variance (n) r, residual (m, n) r (present when `residual`), y (m, n) w, mean (n) w, variance (n) w | m ≥ 2; `residual`, `relu` |
//! | `batch_norm_again` | x r, gain r, bias r, mean (n) r, variance (n) r, residual (m, n) r (present when `residual`), y (m, n) w | y of the `batch_norm` that made mean and variance; `residual`, `relu` |
//! | `batch_norm_backward` | x r, gain r, mean r, variance r, y r (present when `relu` and not `again`), bias (n) r (present when `again`), dy r, dt (m, n) w (present when `opened`), dx w/u, dgain, dbias, dmean, dvariance (n) w/s | dmean is the mean, dvariance variance · m / (m − 1): what running statistics are averages of, dt what of dy counts; `relu`, `again`, `opened`, `accumulate`, `accumulate_sums` |
//! | `group_norm` | x (b, s, n) r, gain (n) r, bias (n) r, y w, mean (b, groups) w, rstd (b, groups) w | `groups` |
//! | `group_norm_backward` | x r, gain r, mean r, rstd r, dy r, dx w/u, dgain (n) w/s, dbias (n) w/s | `groups`, `accumulate`, `accumulate_sums` |
//! | `rms_norm` | x (m, n) r, gain (n) r, y (m, n) w, rstd (m) w | `epsilon` |
//! | `rms_norm_backward` | x r, gain r, rstd r, dy r, dx w/u, dgain (n) w/s | `accumulate`, `accumulate_sums` |
//! | `embedding` | tokens i32 (m) r, table (v, n) r, y (m, n) w | |
//! | `embedding_backward` | tokens i32 (m) r, dy (m, n) r, dtable (v, n) w/u | `accumulate` |
//! | `attention` | q (b, s, n) r, k (b, t, m) r, v (b, t, m) r, or q, k and v in one (b, s, n + 2 m) when `packed`, o (b, s, n) w, lse (b, heads, s) w | `heads`, `key_heads`, `causal`, `window`, `scale`, `cap`, `packed` |
//! | `attention_backward` | q, k, v, o, lse, do r, dq, dk, dv w/u; q, k and v in one, and so dq, dk and dv, when `packed` | the same attributes, `accumulate` |
//! | `scores` | a (b, s, n) r, b (b, s, m) r, out (b, heads, s, s) w/u | scale · a_i · b_j per head, −∞ where i does not see j; `heads`, `key_heads`, `causal`, `window`, `scale`, `accumulate` |
//! | `mix` | weights (b, heads, s, s) r, x (b, s, m) r, out (b, s, n) w/u | scale · Σ_j weight_ij x_j per head; `heads`, `key_heads`, `scale`, `accumulate` |
//! | `mix_backward` | weights (b, heads, s, s) r, x (b, s, n) r, out (b, s, m) w/u | scale · Σ_i weight_ij x_i over the heads of a key head; `heads`, `key_heads`, `scale`, `accumulate` |
//! | `rotary` | x (b, s, n) r, y w/u | `heads`, `base`, `turned`, `factor`, `original`, `low`, `high`, `inverse`, `first`, `still`, `accumulate` |
//! | `slice` | x (b, s, n) r, out (b, t, n) w/u | rows `first` .. `first` + t; `accumulate` |
//! | `slice_backward` | dy (b, t, n) r, dx (b, s, n) w/u | `first`, `accumulate` |
//! | `slice_integers` | x (b, s) i32 r, out (b, t) i32 w | `first`, `sequence` (s), `length` (t) |
//! | `prepend` | x (b, s, n) r, row (n) r, y (b, s + 1, n) w | |
//! | `conv2d` | x (b, h, w, c) r, weight (n, kh, kw, c / groups) r, y (b, h', w', n) w | h' = (h + 2 padding − kh) / stride + 1, rounded down; `stride`, `padding`, `groups` |
//! | `conv2d_backward` | dy r, weight r, dx w/u | `stride`, `padding`, `groups`, `accumulate` |
//! | `conv2d_weights` | x r, dy r, dweight w/u | `stride`, `padding`, `groups`, `accumulate` |
//! | `max_pool` | x (b, h, w, c) r, y (b, h', w', c) w | padding is never the greatest; what is no number is greater than all that are; `size`, `stride`, `padding` |
//! | `max_pool_backward` | x r, dy r, dx w/u | of equals the first takes dy; `size`, `stride`, `padding`, `accumulate` |
//! | `avg_pool` | x (b, h, w, c) r, y (b, h', w', c) w | padding counts as zeros; `size`, `stride`, `padding` |
//! | `avg_pool_backward` | dy r, dx w/u | `size`, `stride`, `padding`, `accumulate` |
//! | `global_pool` | x (b, h, w, c) r, y (b, c) w | mean over h and w |
//! | `global_pool_backward` | dy (b, c) r, dx (b, h, w, c) w/u | `accumulate` |
//! | `cross_entropy` | logits (m, v) r, targets i32 (m) r, lse (m) w, loss (1) w | loss = mean |
//! | `cross_entropy_backward` | logits r, targets i32 r, lse r, dlogits w/u | gradient of the mean; `accumulate` |
//! | `masked_cross_entropy` | logits (m, v) r, targets i32 (m) r, shares (b) r, lse (m) w, loss (1) w | loss = Σ share · (lse − logit of the target) over the rows whose target is below v; each of the b shares is that of m / b rows |
//! | `masked_cross_entropy_backward` | logits r, targets i32 r, shares r, lse r, dlogits w/u | gradient of the same; `accumulate` |
//! | `linear_cross_entropy` | x (m, k) r, weight (v, k) r, targets i32 (m) r, shares (b) r (present when `masked`), logits (c, s) w, lse (m) w, loss (1) w, dx (m, k) w, dweight (v, k) w (the latter two present when `gradients`) | the loss of logits x Wᵀ as `cross_entropy` or `masked_cross_entropy`, and its gradients; `masked`, `gradients` |
//! | `mse` | a r, b r, loss (1) w | mean of (a − b)² |
//! | `mse_backward` | a r, b r, da w/u | `sign`, `accumulate` |
//! | `accuracy` | logits (m, v) r, targets i32 (m) r, shares (b) r (present when `masked`), share (1) w | share of rows whose largest logit, the first of equals, is the target; `masked` |
//! | `part` | x (m, n) r, out (m, c) w/u | the part's columns of n, c = ⌈n / inner / parts⌉ · inner, zero behind the last; `parts`, `stride`, `inner`, `accumulate` |
//! | `embedding_part` | tokens i32 (m) r, table (c, n) r, y (m, n) w | zero unless the token's row is one of the part's; `whole` |
//! | `embedding_part_backward` | tokens i32 (m) r, dy (m, n) r, dtable (c, n) w/u | `whole`, `accumulate` |
//! | `cross_entropy_part` | logits (m, c) r, targets i32 (m) r, sums (2, m) w | lse of the part's classes, and the target's logit if it is one of them, else zero; `whole`, `masked` |
//! | `cross_entropy_join` | sums (parts, 2, m) r, targets i32 (m) r, shares (b) r (present when `masked`), lse (m) w, loss (1) w | the loss of all parts; `whole`, `masked` |
//! | `cross_entropy_part_backward` | logits (m, c) r, targets i32 r, shares r (present when `masked`), lse r, dlogits (m, c) w/u | `whole`, `masked`, `accumulate` |
//! | `norm_part_sums` | x (m, c) r, totals (m) w | sums of the part's columns |
//! | `norm_part_squares` | x (m, c) r, totals (m) r (present when `centered`), squares (m) w | sums over the part's columns of (x − totals / `whole`)², or of x²; `whole`, `centered` |
//! | `norm_part` | x (m, c) r, gain (c) r, bias (c) r, totals (m) r, squares (m) r, y (m, c) w, mean (m) w, rstd (m) w; bias, totals and mean present when `centered` | `whole`, `epsilon`, `centered` |
//! | `norm_part_slopes` | x (m, c) r, gain (c) r, mean (m) r (present when `centered`), rstd (m) r, dy (m, c) r, slopes (2, m) w, or (m) without `centered` | sums over the part's columns of g · x̂ and of g = dy · gain; `centered` |
//! | `norm_part_backward` | x r, gain r, mean r, rstd r, dy r, slopes r, dx w/u | `whole`, `centered`, `accumulate` |
//! | `norm_part_gain` | x (m, c) r, rstd (m) r, dy (m, c) r, dgain (c) w/u | `accumulate` |
//! | `pixel_norm_moments` | x (b, s, n) r, moments (2, b, groups) w | of the part's pixels, which are as many on every part: means, and sums of squares around them; `groups` |
//! | `pixel_norm_statistics` | moments (parts, 2 k) r, running_mean (k) r, running_variance (k) r (both present when `running`), mean (k) w, variance (k) w | of all pixels; `count`, `running` |
//! | `pixel_norm` | x (b, s, n) r, gain (n) r, bias (n) r, mean (b, groups) r, variance (b, groups) r, y w | `groups` |
//! | `pixel_norm_slopes` | x r, gain r, mean r, variance r, dy r, slopes (2, b, groups) w | sums over the part's pixels of g · x̂ and of g = dy · gain; `groups` |
//! | `pixel_norm_backward` | x r, gain r, mean r, variance r, dy r, slopes r, dx w/u | from the slopes of all pixels; `count`, `groups`, `accumulate` |
//! | `pixel_norm_parameters` | x r, mean r, variance r, dy r, dgain (n) w/u, dbias (n) w/u | the part's shares; `groups`, `accumulate` |
//! | `all_reduce` | x (m, n) r, out (m, n) w/u | made together with the other parts: their sum; `parts`, `stride`, `accumulate`, `beside` |
//! | `all_gather` | x (m, c) r, out (m, n) w/u | all parts side by side, c as in `part`; `parts`, `stride`, `inner`, `accumulate`, `beside` |
//! | `reduce_scatter` | x (m, n) r, out (m, c) w/u | the part's columns of the sum; `parts`, `stride`, `inner`, `accumulate`, `beside` |
//! | `halo` | x (b, h, w, c) r, out (b, l, w + 2 side, c) w | made together with the other parts, which have h rows each: l rows of the whole image; `before`, `step`, `side`, `lowest`, `parts`, `stride`, `beside` |
//! | `halo_add` | dy (b, l, w + 2 side, c) r, dx (b, h, w, c) w/u | the adjoint: for each row of a part, the sum over all parts that got it, without the padding; the same attributes, `accumulate` |
//! | `squares` | gradient r, squares (1) w/u | Σ (gradient / `micro_batches`)²; `micro_batches`, `copied`, `accumulate` |
//! | `sgd` | gradient r, parameter r, next w, momentum u (absent when `momentum` is 0), squares (1) r (present when `squares`) | `momentum`, `nesterov`, and those of both optimizers |
//! | `adamw` | gradient r, parameter r, next w, mean u, square u, squares (1) r (present when `squares`) | `beta1`, `beta2`, `epsilon`, and those of both optimizers |
//!
//! An operand that is read and one that is written may be the same memory where [`Kernel::replaces`] pairs
//! them; nothing else may overlap.
//! Extents count by their products: a reshape without a copy is a view of the same operand.
//!
//! # Attributes
//! Flags are false when absent, lists empty; every other attribute must be given unless it says otherwise.
//!
//! Of many kernels:
//! - `accumulate` (flag): what is marked `w/u` is added to; `accumulate_sums` (flag): what is marked `w/s`,
//!   by sums over all rows that are whole and rounded before.
//! - `epsilon` (real): ε of a norm, 1e-5 when absent; or that of `adamw`, which must be given.
//! - `groups` (integer): divides the channels.
//! - `stride`, `padding`, `size` (integers): pixels from one place of a window to the next, pixels around
//!   the image, sides of the window of a pool, whose padding is at most half of that.
//! - `first` (integer): the first row.
//! - `masked` (flag): rows without a target do not count, others by their shares; in parts of the classes
//!   the number of all classes stands for no target.
//! - `parts` (integer): how many parts there are; there `stride` (integer, 1 when absent) says how far
//!   apart these are among all devices; `inner` (integer, 1 when absent): columns that stay together.
//! - `whole` (integer): rows, classes or columns of all parts; `count` (integer): elements of each part
//!   for `pixel_norm_statistics`, of all parts for `pixel_norm_backward`.
//! - `beside` (flag): the calls that follow are made before this one is done.
//!
//! Of some:
//! - `matmul`: `transpose_a` and `transpose_b` (flags) say that the operand is stored (k, m) or (n, k).
//! - `scale`: `factor` (real). `soft_cap`: `cap` (real, above 0). `mse_backward`: `sign` (integer, 1, or
//!   −1 for db).
//! - `relu_backward_again`: dt = dy where the `batch_norm` of x with these statistics, stored as x is, is
//!   above 0.
//! - `dropout`: `rate` (real); `operator` (integer) numbers the mask; x is the device's part of `parts`,
//!   side by side in rows of which it has `columns` (integers, may be absent), or part number `own`
//!   (integer, may be absent); `before` (integer, may be absent): rows of several parts that stand
//!   before. `row_parts` (integer, may be absent): the rows are divided too, among so many parts that
//!   have as many each, one behind the other, `row_stride` (integer, 1 when absent) apart among all
//!   devices; only with several `parts`, without `own`.
//! - `batch_norm`: `residual` (flag): it is added at the end; `relu` (flag): y = max(·, 0) of that.
//!   Outside training mean and variance are the running ones. Backward `relu` lets dy count where y > 0,
//!   and `again` (flag, only with `relu`) where the norm of x is, stored as x is, which says the same
//!   where y had no residual. `opened` (flag, only with `relu`): dt is dy where it counts, else 0.
//! - `attention`: `heads` and `key_heads` (integers): n = heads · d, m = key_heads · d. `causal` (flag):
//!   no key behind the query's own is seen, and t ≥ s, for the queries are the last s; else t = s.
//!   `window` (integer, may be absent): positions less than this many away are seen. `scale` (real, 1/√d
//!   when absent): the factor of q kᵀ, or 1 when absent from `scores`, `mix` and `mix_backward`. `cap`
//!   (real, may be absent): scores become cap · tanh(score / cap). `packed` (flag): one operand has for
//!   every key head the queries of its heads, its key and its value side by side.
//! - `rotary`: `heads` (integer); `base` (real); `turned` (even integer, may be absent): the leading
//!   elements of a head that turn; `factor` (real, at least 1, may be absent): angles are divided by it.
//!   With it `original` (integer), `low` and `high` (reals, low < high) may stand, together: then only
//!   those of pairs that turn less than `low` times within `original` positions are divided, those that
//!   turn more than `high` times stay, and between them falls the share of the former. `inverse` (flag)
//!   turns back; `first` may be absent; of every `still` (integer, at least 2, may be absent) heads the
//!   last one stays as it is.
//! - `linear_cross_entropy`: without `gradients` (flag) they are left out, outside of training alone.
//!   `logits` is room for c ≤ m rows at a time, each of s ≥ v elements, and holds nothing afterwards:
//!   CUDA devices keep a row of logits, and its slopes, s elements from the next.
//! - `norm_part…`: without `centered` (flag) the norm is of x as it is, and nothing has a mean.
//! - `pixel_norm_statistics`: `running` (flag): outside of training the running ones.
//! - `halo`: the part at place r has rows from r · `step` − `before` on, with padding where there is no
//!   image, and `side` columns of it at both ends (integers from 0 to 2²⁰); `lowest` (flag): padding is
//!   −∞, else zero.
//! - `squares`: `copied` (integers: begin, end, number, …): elements that this many holders have, who
//!   count an equal share of them each, in the stage's flat parameters; with no holders they do not
//!   count.
//! - Both optimizers: `weight_decay`, `clip` (reals), `micro_batches` (integer); `squares` (flag): the
//!   norm that `clip` bounds is given by its square; `spared` (integers: begin, end, begin, end, …):
//!   elements without decay, in the stage's flat parameters; `averaged` (ranges as `spared`): next = (1 −
//!   m) · parameter + m · mean there and nothing else, where m is `average_momentum` (real, only with
//!   `averaged`).
//!
//! On CUDA devices a call is the steps of [`Kernel::cuda`]: functions of the sources in `kernels/cuda`,
//! matrix products and convolutions. All kernels have them but exchanges among several parts, which
//! machines make, those of rows of images by the functions of [`cuda::Halos`].

#![expect(
    unnameable_types,
    reason = "what numbers of `Real` are made of is nobody else's to have"
)]

mod activation;
mod affine;
mod angle;
mod attention;
mod batch_norm;
mod classes;
mod context;
mod convolution;
pub mod cuda;
mod dropout;
mod elementwise;
mod embedding;
mod exchange;
mod fast;
mod function;
mod group_norm;
mod halo;
mod kernel;
mod line;
mod linear_loss;
mod loss;
mod matmul;
mod metric;
mod norm;
mod norm_again;
mod operand;
mod optimizer;
mod part;
mod part_loss;
mod part_norm;
mod pixel_norm;
mod plain;
mod pool;
mod product;
pub mod random;
mod real;
mod rectified;
mod registers;
mod rms_norm;
mod rotary;
mod rows;
pub mod samples;
mod segments;
mod signature;
mod simd;
mod store;
mod stored;
mod sum;
mod tanh;
mod team;
mod unit;
mod window;

pub use context::{Context, Mode};
pub use exchange::{Exchange, Joint};
pub use halo::Halo;
pub use kernel::{Kernel, Kernels, NAMES, unit_of};
pub use linear_loss::leave_out_gradients;
pub use real::Real;
pub use store::Store;
