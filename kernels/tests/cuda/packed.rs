//! Attention whose queries, keys and values lie in one array has the bits of attention whose own lie apart.

use crate::{
    common::{Build, call, numbers, packed},
    emulation::{
        can_compile,
        compare::{made, steps, ways},
    },
};
use roundelay_kernels::cuda::Steps;
use roundelay_schedule::{Call, Element, Float, GradientSums};

const BATCH: usize = 2;
const SEQUENCE: usize = 75;
const KEY_HEADS: usize = 2;

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Heads that share a key.
    group: usize,
    depth: usize,
    causal: bool,
    cap: Option<f64>,
    accumulate: bool,
    dtype: Float,
}

impl Asked {
    fn heads(&self) -> usize {
        KEY_HEADS * self.group
    }
    fn rows(&self, heads: usize) -> [u64; 3] {
        [BATCH, SEQUENCE, heads * self.depth].map(|extent| extent as u64)
    }
    /// Queries, keys and values.
    fn tokens(&self) -> [[u64; 3]; 3] {
        [self.heads(), KEY_HEADS, KEY_HEADS].map(|heads| self.rows(heads))
    }
    fn call(&self, name: &str, is_packed: bool) -> Call {
        let call = call(name).integer("heads", self.heads() as i64);
        let call = call.integer("key_heads", KEY_HEADS as i64);
        let call = call.flag("causal", self.causal).flag("packed", is_packed);
        self.cap.into_iter().fold(call, |call, cap| call.number("cap", cap))
    }
    fn with_tokens(&self, call: Call, is_packed: bool) -> Call {
        match is_packed {
            true => call.real(&self.rows(self.heads() + 2 * KEY_HEADS)),
            false => call.reals(&self.tokens().each_ref().map(|shape| &shape[..])),
        }
    }
    fn with_results(&self, call: Call) -> Call {
        let statistics = [BATCH, self.heads(), SEQUENCE].map(|extent| extent as u64);
        call.real(&self.rows(self.heads())).operand(Element::Wide, &statistics)
    }
    fn forward(&self, is_packed: bool) -> Call {
        let call = self.call("attention", is_packed);
        self.with_results(self.with_tokens(call, is_packed))
    }
    fn backward(&self, is_packed: bool) -> Call {
        let call = self.call("attention_backward", is_packed);
        let call = call.flag("accumulate", self.accumulate);
        let call = self.with_results(self.with_tokens(call, is_packed));
        self.with_tokens(call.real(&self.rows(self.heads())), is_packed)
    }
    /// In all ways, in which they are made of one array and of three.
    fn ways(&self, call: fn(&Self, bool) -> Call) -> Vec<[(Call, Steps); 2]> {
        let [one, three] = [true, false].map(|is_packed| {
            let call = call(self, is_packed);
            let ways = ways(steps(&call, self.dtype));
            ways.into_iter().map(move |way| (call.clone(), way))
        });
        one.zip(three).map(|(one, three)| [one, three]).collect()
    }
    fn made(&self, (call, steps): &(Call, Steps), start: &[&[f64]]) -> Vec<Vec<f64>> {
        let start: Vec<_> = start.iter().map(|numbers| numbers.to_vec()).collect();
        made(steps, call, &start, self.dtype)
    }
    fn packed(&self, apart: [&[f64]; 3]) -> Vec<f64> {
        packed(self.depth, apart)
    }
    fn check(&self) {
        let count = |shape: [u64; 3]| shape.iter().product::<u64>() as usize;
        let draw = |shape, seed| numbers(count(shape), seed);
        let [wide, keys, _] = self.tokens();
        let [q, k, v] = [(wide, 0), (keys, 1), (keys, 2)].map(|(of, own)| draw(of, own));
        let before = [(wide, 3), (keys, 4), (keys, 5)].map(|(of, own)| draw(of, own));
        let [dq, dk, dv] = before.each_ref().map(Vec::as_slice);
        let (qkv, dout) = (self.packed([&q, &k, &v]), draw(wide, 6));
        let statistics = vec![0.0; BATCH * self.heads() * SEQUENCE];
        let mut results = (dout.clone(), statistics);
        for [one, three] in self.ways(Self::forward) {
            let (o, lse) = &results;
            let apart = self.made(&three, &[&q, &k, &v, o, lse]);
            assert_eq!(self.made(&one, &[&qkv, o, lse])[1..], apart[3..], "{self:?}");
            results = (apart[3].clone(), apart[4].clone());
        }
        let (o, lse) = &results;
        for [one, three] in self.ways(Self::backward) {
            let apart = self.made(&three, &[&q, &k, &v, o, lse, &dout, dq, dk, dv]);
            let before = self.packed([dq, dk, dv]);
            let found = self.made(&one, &[&qkv, o, lse, &dout, &before]);
            let expected = self.packed([&apart[6], &apart[7], &apart[8]]);
            assert_eq!(found[4], expected, "{self:?}");
        }
    }
}

#[test]
fn packed_attention_has_the_bits_of_attention() {
    if !can_compile() {
        return;
    }
    let types = [Float::Bf16(GradientSums::Same), Float::F16(GradientSums::Same)];
    for (choice, dtype) in [(0, types[0]), (5, types[1]), (10, types[0]), (15, types[1])]
    {
        let has = |bit: u32| choice >> bit & 1 == 1;
        for depth in [64, 128] {
            let cap = has(2).then_some(0.8);
            let (group, causal, accumulate) = (1 + choice % 2, has(1), has(3));
            Asked { group, depth, causal, cap, accumulate, dtype }.check();
        }
    }
    // Row by row.
    for (group, depth, dtype) in [(1, 64, Float::F32), (3, 24, types[0])] {
        let (causal, cap, accumulate) = (group == 3, None, group == 1);
        Asked { group, depth, causal, cap, accumulate, dtype }.check();
    }
}
