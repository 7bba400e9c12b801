//! Plain scaled dot-product attention (Vaswani et al. 2017), head by head.

use crate::{Real, attention::Heads, store::Store};

/// P = softmax of the scores q kᵀ · scale, perhaps capped, over the visible keys, o = P v, lse = ln of the row's sum.
pub(crate) fn attention<R: Real>(
    heads: &Heads,
    [q, k, v]: [&[R]; 3],
    o: &mut [R],
    lse: &mut [R],
) {
    for (example, head) in each(heads) {
        let queries = heads.queries(example, head);
        let key_head = head / heads.group();
        let (keys, values) =
            (heads.keys(example, key_head), heads.values(example, key_head));
        let results = heads.results(example, head);
        let lse = &mut lse[heads.statistic(example, head)..];
        for i in 0..heads.sequence {
            let query = &q[queries.row(i)];
            let score = |j: usize| score(heads, dot(query, &k[keys.row(j)]));
            let visible = || heads.visible(i);
            let most =
                visible().map(score).fold(R::NEGATIVE_INFINITY, |m, x| m.greater(x));
            let total: R = visible().map(|j| (score(j) - most).exp()).sum();
            lse[i] = most + total.ln();
            let o = &mut o[results.row(i)];
            o.fill(R::ZERO);
            for j in visible() {
                add(o, (score(j) - lse[i]).exp(), &v[values.row(j)]);
            }
        }
    }
}

/// With P from lse, dP = do vᵀ and dS = P · (dP − rowsum(do · o)), times 1 − (score / cap)² where
/// scores are capped: dq = scale dS k, dk = scale dSᵀ q, dv = Pᵀ do (Dao et al. 2022, appendix B),
/// summed over queries, head by head, into the arrays in which these lie.
pub(crate) fn attention_backward<R: Real>(
    heads: &Heads,
    [q, k, v, o, lse, dout]: [&[R]; 6],
    made: &mut [&mut [R]],
    store: Store,
) {
    made.iter_mut().for_each(|gradient| store.clear(gradient));
    let [dq, dk, dv] = heads.places();
    for (example, head) in each(heads) {
        let queries = heads.queries(example, head);
        let key_head = head / heads.group();
        let (keys, values) =
            (heads.keys(example, key_head), heads.values(example, key_head));
        let results = heads.results(example, head);
        let lse = &lse[heads.statistic(example, head)..];
        for i in 0..heads.sequence {
            let query = &q[queries.row(i)];
            let [out, slope] = [o, dout].map(|rows| &rows[results.row(i)]);
            let inner = dot(slope, out);
            for j in heads.visible(i) {
                let (key, value) = (&k[keys.row(j)], &v[values.row(j)]);
                let score = score(heads, dot(query, key));
                let weight = (score - lse[i]).exp();
                let change = weight * (dot(slope, value) - inner) * R::of(heads.scale);
                let change = change * steepness(heads, score);
                add(&mut made[dq][queries.row(i)], change, key);
                add(&mut made[dk][keys.row(j)], change, query);
                add(&mut made[dv][values.row(j)], weight, slope);
            }
        }
    }
}

/// The score of a product q · k: scaled, perhaps capped.
fn score<R: Real>(heads: &Heads, product: R) -> R {
    let score = product * R::of(heads.scale);
    match heads.cap.map(R::of) {
        Some(cap) => cap * (score / cap).tanh(),
        None => score,
    }
}

/// The slope of a score by the scaled product.
fn steepness<R: Real>(heads: &Heads, score: R) -> R {
    match heads.cap.map(R::of) {
        Some(cap) => R::ONE - score / cap * (score / cap),
        None => R::ONE,
    }
}

/// All heads of all examples.
pub(super) fn each(heads: &Heads) -> impl Iterator<Item = (usize, usize)> + use<> {
    let count = heads.heads;
    (0..heads.batch * count).map(move |index| (index / count, index % count))
}

pub(super) fn dot<R: Real>(left: &[R], right: &[R]) -> R {
    left.iter().zip(right).map(|(left, right)| *left * *right).sum()
}

/// to += factor · from.
fn add<R: Real>(to: &mut [R], factor: R, from: &[R]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * *from);
}
