//! Attention whose queries, keys and values lie in one array is attention whose own lie apart, bit
//! for bit.

use crate::common::{Body, Build, call, numbers, packed, results};
use roundelay_schedule::Call;

const BATCH: usize = 2;
const SEQUENCE: usize = 7;
const KEY_HEADS: usize = 3;
const DEPTH: usize = 4;

fn attention(name: &str, group: usize, causal: bool) -> Call {
    let call = call(name).integer("heads", (KEY_HEADS * group) as i64);
    let call = call.integer("key_heads", KEY_HEADS as i64).flag("causal", causal);
    call.integer("window", 4).number("cap", 0.8)
}

/// An array of rows of this many heads.
fn rows(heads: usize) -> [u64; 3] {
    [BATCH, SEQUENCE, heads * DEPTH].map(|extent| extent as u64)
}

#[test]
fn packed_attention_has_the_bits_of_attention() {
    for (group, causal) in [(1, true), (1, false), (2, true), (3, false)] {
        let (heads, all) = (KEY_HEADS * group, KEY_HEADS * (group + 2));
        let (wide, keys, whole) = (rows(heads), rows(KEY_HEADS), rows(all));
        let lse: &[u64] = &[BATCH, heads, SEQUENCE].map(|extent| extent as u64);
        let draw =
            |shape: &[u64], seed| numbers(shape.iter().product::<u64>() as usize, seed);
        let shapes = [&wide, &keys, &keys];
        let [q, k, v] = [0, 1, 2].map(|own| draw(shapes[own], own));
        let before = [0, 1, 2].map(|own| draw(shapes[own], 3 + own));
        let before = before.each_ref().map(Vec::as_slice);
        let (qkv, dout) = (packed(DEPTH, [&q, &k, &v]), draw(&wide, 6));
        let forward = attention("attention", group, causal);
        let backward = attention("attention_backward", group, causal);
        for (body, accumulate) in
            [(Body::Plain, true), (Body::Fast, true), (Body::Fast, false)]
        {
            let apart = forward.clone().reals(&[&wide, &keys, &keys, &wide, lse]);
            let one = forward.clone().flag("packed", true).reals(&[&whole, &wide, lse]);
            let made = results(&apart, &[&q, &k, &v], body);
            assert_eq!(results(&one, &[&qkv], body)[1..], made[3..]);
            let [o, lse_of_o] = [&made[3], &made[4]];
            let backward = backward.clone().flag("accumulate", accumulate);
            let apart = backward.clone().reals(&[&wide, &keys, &keys, &wide, lse, &wide]);
            let apart = apart.reals(&[&wide, &keys, &keys]);
            let one = backward.flag("packed", true);
            let one = one.reals(&[&whole, &wide, lse, &wide, &whole]);
            let [dq, dk, dv] = before;
            let given = [&*q, &k, &v, o, lse_of_o, &dout, dq, dk, dv];
            let slopes = results(&apart, &given, body);
            let given = [&*qkv, o, lse_of_o, &dout, &packed(DEPTH, before)];
            let expected = packed(DEPTH, [&slopes[6], &slopes[7], &slopes[8]]);
            let found = &results(&one, &given, body)[4];
            assert_eq!(*found, expected, "{group} {causal} {accumulate}");
        }
    }
}
