//! Bits of products, and what finishes them.

use super::*;
use crate::random::Stream;

fn product<const M: usize, const L: usize>(
    [rows, columns]: [usize; 2],
    a: View<'_, f32>,
    b: Factor<'_, f32>,
) -> Vec<u32> {
    let mut buffers = Buffers::new();
    buffers.reserve(0);
    let mut out = vec![0.5; rows * columns];
    let target = &mut Target { data: &mut out, row: columns };
    let (buffers, finish) = (&mut buffers, &mut |_, _: &mut Target<'_, f32>| ());
    multiply_blocks::<f32, M, L>(rows, a, b, target, Store::Add, buffers, finish);
    out.into_iter().map(f32::to_bits).collect()
}

fn packed_product<const M: usize, const L: usize>(
    [rows, columns, depth]: [usize; 3],
    a: View<'_, f32>,
    b: View<'_, f32>,
) -> Vec<u32> {
    lend_lines::<f32, _>(packed_lines::<f32>(depth, columns), |lines| {
        pack_blocks::<f32, M, L>(b, Portion::whole::<f32>(depth, columns), lines);
        let b = Panels::new(lines, depth, columns).factor();
        product::<M, L>([rows, columns], a, b)
    })
}

#[test]
fn the_tile_does_not_change_a_bit() {
    let stream = Stream::new(3, &[]);
    let fill = |length: usize| -> Vec<f32> {
        (0..length as u64).map(|index| stream.normal(index) as f32).collect()
    };
    for (rows, columns, depth) in [(1, 1, 1), (13, 17, 300), (59, 300, 31), (7, 281, 520)]
    {
        let (extents, size) = ([rows, columns, depth], [rows, columns]);
        let (a, b) = (fill(rows * depth), fill(depth * columns));
        let by_rows = View { data: a.as_slice(), row: depth, column: 1 };
        let by_columns = View { data: a.as_slice(), row: 1, column: rows };
        let b = View { data: b.as_slice(), row: columns, column: 1 };
        let factor = b.factor(depth, columns);
        for a in [by_rows, by_columns] {
            let expected = product::<1, 1>(size, a, factor);
            assert_eq!(expected, product::<4, 1>(size, a, factor));
            assert_eq!(expected, product::<6, 1>(size, a, factor));
            assert_eq!(expected, product::<8, 2>(size, a, factor));
            assert_eq!(expected, packed_product::<6, 1>(extents, a, b));
            assert_eq!(expected, packed_product::<8, 2>(extents, a, b));
        }
    }
}

#[test]
fn every_part_is_finished_once() {
    for (rows, columns, depth) in [(1, 1, 1), (13, 17, 300), (53, 300, 31)] {
        let (a, b) = (vec![1.0f32; rows * depth], vec![1.0f32; depth * columns]);
        let a = View { data: a.as_slice(), row: depth, column: 1 };
        let b = View { data: b.as_slice(), row: columns, column: 1 };
        let mut out = vec![0.0; rows * columns];
        let target = &mut Target { data: &mut out, row: columns };
        let mut halve = |part: Finished, out: &mut Target<'_, f32>| {
            for row in part.rows {
                let row = &mut out.data[row * out.row..][part.columns.clone()];
                row.iter_mut().for_each(|sum| *sum *= 0.5);
            }
        };
        let (b, mut buffers) = (b.factor(depth, columns), Buffers::new());
        multiply_then(rows, a, b, target, Store::Write, &mut buffers, &mut halve);
        assert!(out.iter().all(|sum| *sum == 0.5 * depth as f32));
    }
}

#[test]
fn portions_one_after_another_make_the_whole() {
    let stream = Stream::new(5, &[]);
    let (rows, columns, depth) = (21, 600, 700);
    let fill = |length: usize| -> Vec<f32> {
        (0..length as u64).map(|index| stream.normal(index) as f32).collect()
    };
    let (a, b) = (fill(rows * depth), fill(depth * columns));
    let a = View { data: a.as_slice(), row: depth, column: 1 };
    let b = View { data: b.as_slice(), row: columns, column: 1 };
    let mut negate = |part: Finished, out: &mut Target<'_, f32>| {
        for row in part.rows {
            let row = &mut out.data[row * out.row..][part.columns.clone()];
            row.iter_mut().for_each(|sum| *sum = -*sum);
        }
    };
    let mut buffers = Buffers::new();
    let mut made = |factors: &mut dyn Iterator<Item = Portion>| -> Vec<u32> {
        let mut out = vec![f32::NAN; rows * columns];
        for portion in factors {
            lend_lines::<f32, _>(portion.lines::<f32>(), |lines| {
                let out = &mut Target { data: &mut out, row: columns };
                let b = pack(b, portion, 2, lines).factor();
                let buffers = &mut buffers;
                multiply_then(rows, a, b, out, Store::Write, buffers, &mut negate);
            });
        }
        out.into_iter().map(f32::to_bits).collect()
    };
    let whole = Portion::whole::<f32>(depth, columns);
    assert_eq!(whole.lines::<f32>(), packed_lines::<f32>(depth, columns));
    let expected = made(&mut std::iter::once(whole));
    for most in 1..=whole.count {
        assert_eq!(made(&mut whole.cut(most)), expected, "{most} blocks at a time");
    }
}

#[test]
fn places_are_those_of_packing() {
    for (depth, columns) in [(1, 1), (7, 33), (300, 290), (520, 600)] {
        let values: Vec<f32> = (0..depth * columns).map(|at| at as f32).collect();
        let b = View { data: values.as_slice(), row: columns, column: 1 };
        lend_lines::<f32, _>(packed_lines::<f32>(depth, columns), |lines| {
            let lines = pack(b, Portion::whole::<f32>(depth, columns), 1, lines).lines;
            for (row, values) in values.chunks(columns).enumerate() {
                for (line, values) in values.chunks(16).enumerate() {
                    let place = packed_place::<f32>(depth, columns, row, line);
                    assert_eq!(lines[place].0[..values.len()], *values);
                }
            }
        });
    }
}

#[test]
fn an_element_is_one_chain() {
    let (a, b) = ([1e8f32, 1.0, -1e8, 3.0], [1.0f32, 1.0, 1.0, 0.5]);
    let a_view = View { data: &a, row: 4, column: 1 };
    let b_view = View { data: &b, row: 1, column: 1 };
    let found = product::<6, 1>([1, 1], a_view, b_view.factor(4, 1));
    let chain = a.iter().zip(&b).fold(0.5f32, |sum, (a, b)| a.mul_add(*b, sum));
    assert_eq!(found, [chain.to_bits()]);
}
