//! Random calls of what one of several devices does.

use super::{Build, calls::Draw};
use roundelay_schedule::{Attribute, Call};

/// A random call of one of these kernels; `adding` has its name and perhaps `accumulate`.
pub(crate) fn sample(adding: Call, draw: &mut Draw) -> Call {
    let mut plain = adding.clone();
    plain.attributes.remove("accumulate");
    let (batch, m, n) = (1 + draw.below(3), draw.extent(), draw.extent());
    let array: &[u64] = &[batch, m, n];
    let (tokens, table): (&[u64], &[u64]) = (&[batch, m], &[11, n]);
    match &*adding.kernel {
        "part" => {
            let parts = 1 + draw.below(3);
            let inner = if draw.flag() { n } else { 1 };
            let own = (n / inner).div_ceil(parts) * inner;
            let call = adding.integer("parts", parts as i64);
            let call = call.integer("inner", inner as i64);
            call.reals(&[array, &[batch, m, own]])
        }
        "embedding_part" => {
            plain.integer("whole", 17).integers(tokens).real(table).real(array)
        }
        "embedding_part_backward" => {
            adding.integer("whole", 17).integers(tokens).real(array).real(table)
        }
        "cross_entropy_part" => {
            loss(plain, draw, n).real(array).integers(tokens).real(&[2, batch, m])
        }
        "cross_entropy_join" => {
            let sums: &[u64] = &[1 + draw.below(3), 2, batch, m];
            let call = loss(plain, draw, n).real(sums).integers(tokens);
            shared(call, batch).reals(&[tokens, &[1]])
        }
        "cross_entropy_part_backward" => {
            let call = loss(adding, draw, n).real(array).integers(tokens);
            shared(call, batch).reals(&[tokens, array])
        }
        name if name.starts_with("norm_part") => norm(plain, adding, draw, [batch, m, n]),
        "dropout" => dropout(plain, draw, n).reals(&[array; 2]),
        "dropout_backward" => dropout(adding, draw, n).reals(&[array; 2]),
        _ => adding.integer("parts", 1).reals(&[array; 2]),
    }
}

/// Whether a kernel has a call that is split over threads.
pub(crate) fn has_large(name: &str) -> bool {
    name.starts_with("norm_part")
        || ["cross_entropy_part", "cross_entropy_part_backward", "dropout_backward"]
            .contains(&name)
}

/// A call that is large enough for that.
pub(crate) fn large(call: Call) -> Call {
    let (array, row, rows): (&[u64], &[u64], &[u64]) = (&[300, 1000], &[1000], &[300]);
    let (both, name): (&[u64], _) = (&[2, 300], call.kernel.clone());
    let of = |call: Call| call.flag("centered", true).integer("whole", 1900);
    match &*name {
        "dropout_backward" => {
            let call = call.number("rate", 0.3).integer("operator", 5);
            call.integer("parts", 3).integer("columns", 1000).reals(&[array; 2])
        }
        "cross_entropy_part" => {
            call.integer("whole", 1900).real(array).integers(rows).real(both)
        }
        "cross_entropy_part_backward" => {
            call.integer("whole", 1900).real(array).integers(rows).reals(&[rows, array])
        }
        "norm_part_sums" => call.reals(&[array, rows]),
        "norm_part_squares" => of(call).reals(&[array, rows, rows]),
        "norm_part" => of(call).reals(&[array, row, row, rows, rows, array, rows, rows]),
        "norm_part_slopes" => {
            call.flag("centered", true).reals(&[array, row, rows, rows, array, both])
        }
        "norm_part_backward" => {
            of(call).reals(&[array, row, rows, rows, array, both, array])
        }
        _ => call.reals(&[array, rows, array, row]),
    }
}

/// With the shares of rows, where some do not count.
fn shared(call: Call, batch: u64) -> Call {
    let masked = call.attributes.get("masked") == Some(&Attribute::Flag(true));
    if masked { call.real(&[batch]) } else { call }
}

fn dropout(call: Call, draw: &mut Draw, columns: u64) -> Call {
    let call = call.number("rate", 0.3).integer("operator", 5);
    let call = if draw.flag() { call.integer("own", 1) } else { call };
    let call = if draw.flag() { call.integer("before", 2) } else { call };
    let call = call.integer("parts", 3).integer("columns", columns as i64);
    match !call.attributes.contains_key("own") && draw.flag() {
        true => call.integer("row_parts", 2).integer("row_stride", 3),
        false => call,
    }
}

/// Own columns of a norm over as many or more, around means or zero.
fn norm(plain: Call, adding: Call, draw: &mut Draw, [batch, m, n]: [u64; 3]) -> Call {
    let (array, row, rows): (&[u64], &[u64], &[u64]) =
        (&[batch, m, n], &[n], &[batch, m]);
    let centered = draw.flag();
    let slopes: &[u64] = if centered { &[2, batch, m] } else { rows };
    let only = |shape| if centered { vec![shape] } else { vec![] };
    let whole = (n + draw.below(n)) as i64;
    let of = |call: Call| call.flag("centered", centered).integer("whole", whole);
    let name = plain.kernel.clone();
    match &*name {
        "norm_part_sums" => plain.reals(&[array, rows]),
        "norm_part_squares" => of(plain).real(array).reals(&only(rows)).real(rows),
        "norm_part" => {
            let call = of(plain).reals(&[array, row]).reals(&only(row));
            let call = call.reals(&only(rows)).reals(&[rows, array]);
            call.reals(&only(rows)).real(rows)
        }
        "norm_part_slopes" => {
            let call = plain.flag("centered", centered).reals(&[array, row]);
            call.reals(&only(rows)).reals(&[rows, array, slopes])
        }
        "norm_part_backward" => {
            let call = of(adding).reals(&[array, row]).reals(&only(rows));
            call.reals(&[rows, array, slopes, array])
        }
        _ => adding.reals(&[array, rows, array, row]),
    }
}

/// Between one and two parts of `own` classes.
fn loss(call: Call, draw: &mut Draw, own: u64) -> Call {
    let whole = own + draw.below(own);
    call.flag("masked", draw.flag()).integer("whole", whole as i64)
}

/// The attribute `whole`, and one more where that stands for none.
pub(crate) fn classes(call: &Call) -> u64 {
    let masked = call.attributes.get("masked") == Some(&Attribute::Flag(true));
    match call.attributes["whole"] {
        Attribute::Integer(whole) => whole as u64 + u64::from(masked),
        _ => panic!("a whole number"),
    }
}
