//! Slices of a sequence, one after another, are the whole sequence: causal attention over the keys
//! of the slices before and its own, positions, masks.

use crate::common::{Body, Build, call, numbers, results};
use roundelay_schedule::Call;

const BATCH: usize = 2;
const SEQUENCE: usize = 12;
const HEADS: usize = 4;
const DEPTH: usize = 3;

/// Rows `from` .. `to` of every sequence of `width` numbers.
fn cut(all: &[f64], width: usize, from: usize, to: usize) -> Vec<f64> {
    let sequences = all.chunks(all.len() / BATCH);
    sequences.flat_map(|one| one[from * width..to * width].to_vec()).collect()
}

/// Adds rows from the first on to every sequence.
fn add(all: &mut [f64], part: &[f64]) {
    let (whole, own) = (all.len() / BATCH, part.len() / BATCH);
    for (all, part) in all.chunks_mut(whole).zip(part.chunks(own)) {
        all.iter_mut().zip(part).for_each(|(sum, more)| *sum += more);
    }
}

fn near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (found - expected).abs();
        assert!(distance < 1e-12, "{what} {i}: {found} and {expected}");
    }
}

/// One setting of attention.
#[derive(Clone, Copy)]
struct Setting {
    key_heads: usize,
    window: i64,
    cap: bool,
}

impl Setting {
    fn call(self, name: &str, queries: usize, keys: usize) -> Call {
        let wide: &[u64] = &[BATCH, queries, HEADS * DEPTH].map(|n| n as u64);
        let narrow: &[u64] = &[BATCH, keys, self.key_heads * DEPTH].map(|n| n as u64);
        let lse: &[u64] = &[BATCH, HEADS, queries].map(|n| n as u64);
        let call = call(name).integer("heads", HEADS as i64);
        let call = call.integer("key_heads", self.key_heads as i64);
        let call = call.flag("causal", true).integer("window", self.window);
        let call = if self.cap { call.number("cap", 0.7) } else { call };
        let call = call.reals(&[wide, narrow, narrow, wide, lse]);
        match name {
            "attention" => call,
            _ => call.reals(&[wide, wide, narrow, narrow]),
        }
    }
}

fn attention_in(slices: usize, setting: Setting, body: Body) {
    let (width, narrow) = (HEADS * DEPTH, setting.key_heads * DEPTH);
    let [q, dout] = [1, 2].map(|seed| numbers(BATCH * SEQUENCE * width, seed));
    let [k, v] = [3, 4].map(|seed| numbers(BATCH * SEQUENCE * narrow, seed));
    let whole = setting.call("attention", SEQUENCE, SEQUENCE);
    let forward = results(&whole, &[&q, &k, &v], body);
    let whole = setting.call("attention_backward", SEQUENCE, SEQUENCE);
    let backward = results(&whole, &[&q, &k, &v, &forward[3], &forward[4], &dout], body);
    let length = SEQUENCE / slices;
    let (mut dk, mut dv) = (vec![0.0; k.len()], vec![0.0; v.len()]);
    for slice in (0..slices).rev() {
        let (from, to) = (slice * length, (slice + 1) * length);
        let own = |all: &[f64]| cut(all, width, from, to);
        let (q, dout, k, v) =
            (own(&q), own(&dout), cut(&k, narrow, 0, to), cut(&v, narrow, 0, to));
        let call = setting.call("attention", length, to);
        let made = results(&call, &[&q, &k, &v], body);
        near(&made[3], &own(&forward[3]), "o");
        let call = setting.call("attention_backward", length, to);
        let slopes = results(&call, &[&q, &k, &v, &made[3], &made[4], &dout], body);
        near(&slopes[6], &own(&backward[6]), "dq");
        add(&mut dk, &slopes[7]);
        add(&mut dv, &slopes[8]);
    }
    near(&dk, &backward[7], "dk");
    near(&dv, &backward[8], "dv");
}

#[test]
fn slices_attend_as_the_whole_sequence_does() {
    for body in [Body::Plain, Body::Fast] {
        for slices in [2, 3, 4, 12] {
            for (key_heads, window, cap) in
                [(4, 99, false), (2, 99, true), (1, 5, false), (4, 2, true)]
            {
                attention_in(slices, Setting { key_heads, window, cap }, body);
            }
        }
    }
}

#[test]
fn positions_and_masks_of_a_slice_are_those_of_its_places() {
    let width = HEADS * DEPTH * 2;
    let x = numbers(BATCH * SEQUENCE * width, 5);
    let (slices, length) = (3, SEQUENCE / 3);
    let shaped = |call: Call, rows: usize| {
        let shape: &[u64] = &[BATCH, rows, width].map(|n| n as u64);
        call.reals(&[shape; 2])
    };
    let rotary = call("rotary").integer("heads", HEADS as i64).number("base", 100.0);
    let dropout = call("dropout").number("rate", 0.5).integer("operator", 3);
    for body in [Body::Plain, Body::Fast] {
        let turned = &results(&shaped(rotary.clone(), SEQUENCE), &[&x], body)[1];
        let masked = &results(&shaped(dropout.clone(), SEQUENCE), &[&x], body)[1];
        for slice in 0..slices {
            let own = |all: &[f64]| cut(all, width, slice * length, (slice + 1) * length);
            let call = rotary.clone().integer("first", (slice * length) as i64);
            let found = &results(&shaped(call, length), &[&own(&x)], body)[1];
            assert_eq!(*found, own(turned));
            let call = dropout.clone().integer("parts", slices as i64);
            let call = call.integer("columns", (length * width) as i64);
            let call = call.integer("own", slice as i64);
            let found = &results(&shaped(call, length), &[&own(&x)], body)[1];
            assert_eq!(*found, own(masked));
        }
    }
}

#[test]
fn more_keys_than_queries_need_a_causal_mask() {
    let (q, k, lse): (&[u64], &[u64], &[u64]) = (&[1, 2, 4], &[1, 3, 4], &[1, 1, 2]);
    let call = call("attention").integer("heads", 1).integer("key_heads", 1);
    let call = call.reals(&[q, k, k, q, lse]);
    let open = roundelay_kernels::Kernel::parse(&call).unwrap_err();
    assert!(open.contains("only under a causal mask"), "{open}");
    assert!(roundelay_kernels::Kernel::parse(&call.flag("causal", true)).is_ok());
}
