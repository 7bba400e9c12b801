//! The kernel catalogue: name, operands, attributes, FLOPs and bytes of every kernel; plain
//! references beside the fast CPU kernels, same name.
//!
//! This crate must not know: tasks, stages, plans, memory layout.
//!
//! Every kernel is called as [`roundelay_schedule::Call`]. Operands are dense arrays, in the order
//! of this table; `r` reads, `w` writes, `u` updates, `w/u` writes unless the attribute
//! `accumulate` is true. Arrays are real unless marked i32. (m, n) means that the operand's
//! leading extents multiply to m. `b~` means that the operand has the shape of the last
//! operand or of its trailing extents, and repeats.
//!
//! | kernel | operands | attributes |
//! | --- | --- | --- |
//! | `matmul` | a (m, k) r, b (k, n) r, out (m, n) w/u | `transpose_a`, `transpose_b`: the operand is stored (k, m) or (n, k); `accumulate` |
//! | `affine` | x (m, k) r, weight (n, k) r, bias (n) r, y (m, n) w | y = x Wᵀ + bias |
//! | `affine_relu` | x, weight, bias, y (m, n) w | y = max(x Wᵀ + bias, 0) |
//! | `affine_gelu` | x, weight, bias, z (m, n) w, y (m, n) w | z = x Wᵀ + bias, y = GELU(z) |
//! | `affine_gelu_tanh` | x, weight, bias, z (m, n) w, y (m, n) w | the same, by a hyperbolic tangent |
//! | `affine_add` | x, weight, bias, a (m, n) r, y (m, n) w | y = a + (x Wᵀ + bias) |
//! | `matmul_gelu_tanh_backward` | dz (m, k) r, weight (k, n) r, t (m, n) r, dt (m, n) w | dt = dz W times the slope of `gelu_tanh` at t |
//! | `affine_gradients` | dy (m, n) r, x (m, k) r, dweight (n, k) w/u, dbias (n) w/u | dweight = dyᵀ x, dbias = sum of dy over m; `accumulate`: both are added to |
//! | `add` | a r, b~ r, out w | |
//! | `add_rows` | bias (n) r, x (m, n) u | x += bias in every row |
//! | `accumulate` | x r, out u | out += x |
//! | `copy` | x r, out w | |
//! | `sum_rows` | x (m, n) r, out (n) w/u | sum over m; `accumulate` |
//! | `multiply` | a r, b~ r, out w/u | `accumulate` |
//! | `multiply_sum_rows` | a (m, n) r, b (m, n) r, out (n) w/u | sum over m of a·b; `accumulate` |
//! | `scale` | x r, out w/u | `factor` (real), `accumulate` |
//! | `relu` | x r, y w | |
//! | `relu_backward` | y r, dy r, dx w/u | `accumulate` |
//! | `relu_backward_again` | x (m, n) r, gain (n) r, bias (n) r, mean (n) r, variance (n) r, dy r, dt w/u | dt = dy where the `batch_norm` of x with these statistics is > 0, stored as x is: `relu_backward` without y; `accumulate`; m ≥ 2 |
//! | `gelu` | x r, y w | |
//! | `gelu_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `silu` | x r, y w | |
//! | `silu_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `gelu_tanh` | x r, y w | GELU by a hyperbolic tangent |
//! | `gelu_tanh_backward` | x r, dy r, dx w/u | `accumulate` |
//! | `soft_cap` | x r, y w | `cap` (real, above 0): y = cap · tanh(x / cap) |
//! | `soft_cap_backward` | y r, dy r, dx w/u | `cap`, `accumulate` |
//! | `softmax` | x (m, n) r, y (m, n) w | |
//! | `softmax_backward` | y r, dy r, dx w/u | `accumulate` |
//! | `dropout` | x r, y w | `rate` (real), `operator` (integer): copies outside training; `parts` and `columns` (integers, may be absent): x is the own one of this many parts, side by side in rows of which it has so many columns; `own` (integer, may be absent): which of them, where it is not the device's; `before` (integer, may be absent): rows of several parts that stand before |
//! | `dropout_backward` | dy r, dx w/u | `rate`, `operator`, `parts`, `columns`, `accumulate` |
//! | `layer_norm` | x (m, n) r, gain (n) r, bias (n) r, y (m, n) w, mean (m) w, rstd (m) w | `epsilon` (real, may be absent: 1e-5) |
//! | `layer_norm_backward` | x r, gain r, mean r, rstd r, dy r, dx w/u, dgain (n) w, dbias (n) w | `accumulate` |
//! | `layer_norm_parameters` | x r, mean r, rstd r, dy r, dgain (n) w/u, dbias (n) w/u | the latter two alone; `accumulate` |
//! | `batch_norm` | x (m, n) r, gain (n) r, bias (n) r, running_mean (n) r, running_variance (n) r, residual (m, n) r (present when `residual`), y (m, n) w, mean (n) w, variance (n) w | `residual`: added at the end; `relu`: y = max(·, 0) of that; m ≥ 2; outside training mean and variance are the running ones |
//! | `batch_norm_again` | x r, gain r, bias r, mean (n) r, variance (n) r, residual (m, n) r (present when `residual`), y (m, n) w | y of the `batch_norm` that made mean and variance; `residual`, `relu` |
//! | `batch_norm_backward` | x r, gain r, mean r, variance r, y r (present when `relu` and not `again`), bias (n) r (present when `again`), dy r, dx w/u, dgain (n) w, dbias (n) w | `relu`: dy counts where y > 0; `again` (only with `relu`): where the norm of x is, stored as x is, which says the same where y had no residual; `accumulate` |
//! | `group_norm` | x (b, s, n) r, gain (n) r, bias (n) r, y w, mean (b, groups) w, rstd (b, groups) w | `groups` (integer): divides n |
//! | `group_norm_backward` | x r, gain r, mean r, rstd r, dy r, dx w/u, dgain (n) w, dbias (n) w | `groups`, `accumulate` |
//! | `rms_norm` | x (m, n) r, gain (n) r, y (m, n) w, rstd (m) w | `epsilon` (real, may be absent: 1e-5) |
//! | `rms_norm_backward` | x r, gain r, rstd r, dy r, dx w/u, dgain (n) w | `accumulate` |
//! | `embedding` | tokens i32 (m) r, table (v, n) r, y (m, n) w | |
//! | `embedding_backward` | tokens i32 (m) r, dy (m, n) r, dtable (v, n) w/u | `accumulate` |
//! | `attention` | q (b, s, n) r, k, v (b, t, m) r (t ≥ s when `causal`, else t = s: the queries are the last s), o (b, s, n) w, lse (b, heads, s) w | `heads`, `key_heads` (integers; n = heads · d, m = key_heads · d), `causal` (flag), `window` (integer, may be absent: positions less than this many away are seen), `scale` (real, may be absent: 1/√d, the factor of q kᵀ), `cap` (real, may be absent: scores become cap · tanh(score / cap)), `packed` (flag: q, k and v are one operand (b, s, n + 2 m) instead, for every key head the queries of its heads, its key and its value side by side) |
//! | `attention_backward` | q, k, v, o, lse, do r, dq, dk, dv w/u; with `packed` q, k and v are one operand, and so are dq, dk and dv | `heads`, `key_heads`, `causal`, `window`, `scale`, `cap`, `packed`, `accumulate` |
//! | `scores` | a (b, s, n) r, b (b, s, m) r, out (b, heads, s, s) w/u | scale · a_i · b_j per head; `heads`, `key_heads`, `causal`, `window`: −∞ where i does not see j; `scale` (real, may be absent: 1), `accumulate` |
//! | `mix` | weights (b, heads, s, s) r, x (b, s, m) r, out (b, s, n) w/u | scale · Σ_j weight_ij x_j per head; `heads`, `key_heads`, `scale`, `accumulate` |
//! | `mix_backward` | weights (b, heads, s, s) r, x (b, s, n) r, out (b, s, m) w/u | scale · Σ_i weight_ij x_i over the heads of a key head; `heads`, `key_heads`, `scale`, `accumulate` |
//! | `rotary` | x (b, s, n) r, y w/u | `heads` (integer), `base` (real), `turned` (even integer, may be absent: the leading elements of a head that turn), `factor` (real, at least 1, may be absent: angles are divided by it), `original` (integer), `low` and `high` (reals, low < high; these three with `factor`, or absent: only those of pairs that turn less than `low` times within `original` positions, those that turn more than `high` times stay, between them falls the share of the former), `inverse` (flag: turns back), `first` (integer, may be absent: the position of the first row), `still` (integer, at least 2, may be absent: of every this many heads the last one stays as it is), `accumulate` |
//! | `slice` | x (b, s, n) r, out (b, t, n) w/u | rows `first` (integer) .. `first` + t; `accumulate` |
//! | `slice_integers` | x (b, s) i r, out (b, t) i w | `first`, `sequence` (s), `length` (t) |
//! | `slice_backward` | dy (b, t, n) r, dx (b, s, n) w/u | `first`, `accumulate` |
//! | `prepend` | x (b, s, n) r, row (n) r, y (b, s + 1, n) w | |
//! | `conv2d` | x (b, h, w, c) r, weight (n, kh, kw, c / groups) r, y (b, h', w', n) w | `stride`, `padding`, `groups` (integers); h' = (h + 2 padding − kh) / stride + 1, rounded down |
//! | `conv2d_backward` | dy r, weight r, dx w/u | `stride`, `padding`, `groups`, `accumulate` |
//! | `conv2d_weights` | x r, dy r, dweight w/u | `stride`, `padding`, `groups`, `accumulate` |
//! | `max_pool` | x (b, h, w, c) r, y (b, h', w', c) w | `size`, `stride`, `padding` (integers, padding ≤ size / 2); padding is never the greatest; what is no number is greater than all that are |
//! | `max_pool_backward` | x r, dy r, dx w/u | `size`, `stride`, `padding`, `accumulate`; of equals the first takes dy |
//! | `avg_pool` | x (b, h, w, c) r, y (b, h', w', c) w | `size`, `stride`, `padding`; padding counts as zeros |
//! | `avg_pool_backward` | dy r, dx w/u | `size`, `stride`, `padding`, `accumulate` |
//! | `global_pool` | x (b, h, w, c) r, y (b, c) w | mean over h and w |
//! | `global_pool_backward` | dy (b, c) r, dx (b, h, w, c) w/u | `accumulate` |
//! | `cross_entropy` | logits (m, v) r, targets i32 (m) r, lse (m) w, loss (1) w | loss = mean |
//! | `cross_entropy_backward` | logits r, targets i32 r, lse r, dlogits w/u | gradient of the mean; `accumulate` |
//! | `masked_cross_entropy` | logits (m, v) r, targets i32 (m) r, shares (b) r, lse (m) w, loss (1) w | loss = Σ share · (lse − logit of the target) over the rows whose target is below v; each of the b shares is that of m / b rows |
//! | `masked_cross_entropy_backward` | logits r, targets i32 r, shares r, lse r, dlogits w/u | gradient of the same; `accumulate` |
//! | `linear_cross_entropy` | x (m, k) r, weight (v, k) r, targets i32 (m) r, shares (b) r (present when `masked`), logits (c, s) w, lse (m) w, loss (1) w, dx (m, k) w, dweight (v, k) w (the latter two present when `gradients`) | the loss of logits x Wᵀ as `cross_entropy`, or as `masked_cross_entropy` when `masked` (flag), and its gradients, which outside of training may be left out; `logits` is room for c ≤ m rows at a time, each of s ≥ v elements, and holds nothing afterwards: CUDA devices keep a row of logits, and its slopes, s elements from the next |
//! | `mse` | a r, b r, loss (1) w | mean of (a − b)² |
//! | `mse_backward` | a r, b r, da w/u | `sign` (integer 1 or −1; −1 gives db), `accumulate` |
//! | `accuracy` | logits (m, v) r, targets i32 (m) r, shares (b) r (present when `masked`), share (1) w | share of rows whose largest logit, the first of equals, is the target; `masked` (flag): the sum of the shares of these rows |
//! | `part` | x (m, n) r, out (m, c) w/u | the own columns of n, c = ⌈n / inner / parts⌉ · inner, zero behind the last; `parts` (integer), `stride` (integer: how far apart these are among all, 1 when absent), `inner` (integer: columns that stay together, 1 when absent), `accumulate` |
//! | `embedding_part` | tokens i32 (m) r, table (c, n) r, y (m, n) w | zero unless the token's row is one of the own; `whole` (integer): rows of all parts |
//! | `embedding_part_backward` | tokens i32 (m) r, dy (m, n) r, dtable (c, n) w/u | `whole`, `accumulate` |
//! | `cross_entropy_part` | logits (m, c) r, targets i32 (m) r, sums (2, m) w | lse of the own classes, and the target's logit if it is one of them, else zero; `whole` (integer): all classes; `masked` (flag): the number of classes stands for no target |
//! | `cross_entropy_join` | sums (parts, 2, m) r, targets i32 (m) r, shares (b) r (present when `masked`), lse (m) w, loss (1) w | the loss of all parts; `whole`, `masked` |
//! | `cross_entropy_part_backward` | logits (m, c) r, targets i32 r, shares r (present when `masked`), lse r, dlogits (m, c) w/u | `whole`, `masked`, `accumulate` |
//! | `norm_part_sums` | x (m, c) r, totals (m) w | sums of the own columns |
//! | `norm_part_squares` | x (m, c) r, totals (m) r (present when `centered`), squares (m) w | sums over the own columns of (x − totals / `whole`)², or of x²; `whole` (integer): columns of all parts; `centered` (flag) |
//! | `norm_part` | x (m, c) r, gain (c) r, bias (c) r, totals (m) r, squares (m) r, y (m, c) w, mean (m) w, rstd (m) w | `whole`, `epsilon`, `centered`: without it there are no bias, totals and mean |
//! | `norm_part_slopes` | x (m, c) r, gain (c) r, mean (m) r, rstd (m) r, dy (m, c) r, slopes (2, m) w | sums over the own columns of g · x̂ and of g = dy · gain; `centered`: without it there is no mean, and slopes is (m) |
//! | `norm_part_backward` | x r, gain r, mean r, rstd r, dy r, slopes r, dx w/u | `whole`, `centered`, `accumulate` |
//! | `norm_part_gain` | x (m, c) r, rstd (m) r, dy (m, c) r, dgain (c) w/u | `accumulate` |
//! | `pixel_norm_moments` | x (b, s, n) r, moments (2, b, groups) w | of own pixels, which are as many on every part: means, and sums of squares around them; `groups` |
//! | `pixel_norm_statistics` | moments (parts, 2 k) r, running_mean (k) r, running_variance (k) r, mean (k) w, variance (k) w | of all pixels; `count` (integer): elements of each part; `running` (flag): outside of training the running ones, which are absent without it |
//! | `pixel_norm` | x (b, s, n) r, gain (n) r, bias (n) r, mean (b, groups) r, variance (b, groups) r, y w | `groups` |
//! | `pixel_norm_slopes` | x r, gain r, mean r, variance r, dy r, slopes (2, b, groups) w | sums over own pixels of g · x̂ and of g = dy · gain; `groups` |
//! | `pixel_norm_backward` | x r, gain r, mean r, variance r, dy r, slopes r, dx w/u | from the slopes of all pixels; `count` (integer): elements of all parts; `groups`, `accumulate` |
//! | `pixel_norm_parameters` | x r, mean r, variance r, dy r, dgain (n) w/u, dbias (n) w/u | own shares; `groups`, `accumulate` |
//! | `all_reduce` | x (m, n) r, out (m, n) w/u | made together with the other parts: their sum; `parts`, `stride` (integers: how many meet, and how far apart they are, 1 when absent), `accumulate`, `beside` (whether the calls that follow are made before it is done) |
//! | `all_gather` | x (m, c) r, out (m, n) w/u | all parts side by side, c as in `part`; `parts`, `stride`, `inner`, `accumulate`, `beside` |
//! | `reduce_scatter` | x (m, n) r, out (m, c) w/u | the own columns of the sum; `parts`, `stride`, `inner`, `accumulate`, `beside` |
//! | `halo` | x (b, h, w, c) r, out (b, l, w + 2 side, c) w | made together with the other parts, which have h rows each: l rows of the whole image from r · `step` − `before` on for the part at place r, with padding where there is no image, and `side` columns of it at both ends (`before`, `step`, `side`: integers from 0 to 2²⁰); `lowest` (flag): padding is −∞, else zero; `parts`, `stride`, `beside` |
//! | `halo_add` | dy (b, l, w + 2 side, c) r, dx (b, h, w, c) w/u | the adjoint: for each row of a part, the sum over all parts that got it, without the padding; `before`, `step`, `side`, `lowest`, `parts`, `stride`, `accumulate`, `beside` |
//! | `squares` | gradient r, squares (1) w/u | Σ (gradient / `micro_batches`)²; `copied` (integers: begin, end, number, … of elements that this many hold, who count an equal share of them each, in the stage's flat parameters; with no holders they do not count), `accumulate` |
//! | `sgd` | gradient r, parameter r, next w, momentum u (absent when `momentum` is 0), squares (1) r (present when `squares`) | `momentum`, `nesterov`, `weight_decay`, `clip`, `squares`: the norm that `clip` bounds is given by its square, `micro_batches`, `spared` (integers: begin, end, begin, end, … of elements without decay, in the stage's flat parameters), `averaged` (ranges as `spared`: next = (1 − momentum) · parameter + momentum · mean, nothing else), `average_momentum` (that momentum; only with `averaged`) |
//! | `adamw` | gradient r, parameter r, next w, mean u, square u, squares (1) r (present when `squares`) | `beta1`, `beta2`, `epsilon`, `weight_decay`, `clip`, `squares`, `micro_batches`, `spared`, `averaged`, `average_momentum` |
//!
//! `parameter` and `next` of an optimizer may be the same memory; nothing else may overlap.
//! Flags are false, `spared`, `averaged` and `copied` are empty and `window` is without bound when absent;
//! every other attribute must be given unless its row says otherwise.
//! Extents count by their products: a reshape without a copy is a view of the same operand.
//!
//! On CUDA devices a call is the steps of [`Kernel::cuda`]: functions of the sources in `kernels/cuda`,
//! matrix products and convolutions. All kernels have them but exchanges among several parts, which
//! machines make, those of rows of images by the functions of [`cuda::Halos`].

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
pub use real::Real;
