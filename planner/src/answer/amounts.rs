//! Amounts as the language spells them, to the byte.

/// A number of bytes as the language spells it, to the byte.
pub fn exact(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"), (1, "B")];
    let fits = |(size, _): &(u64, &str)| bytes >= *size;
    let (size, unit) = units.into_iter().find(fits).unwrap_or((1, "B"));
    format!("{} {unit}", spelled(bytes, size))
}

/// A rate in bytes per second, to the byte.
pub(crate) fn exact_rate(bytes: u64) -> String {
    format!("{}/s", exact(bytes))
}

/// amount / size in decimals, without zeros at the end; sizes are powers of ten.
fn spelled(amount: u64, size: u64) -> String {
    let digits = size.ilog10() as usize;
    let (whole, rest) = (amount / size, amount % size);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:0digits$}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_dsl::Search;

    #[test]
    fn sizes_are_spelled_to_the_byte() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1 kB"),
            (52_190_208, "52.190208 MB"),
            (2_000_000_000, "2 GB"),
            (12_000_000_040, "12.00000004 GB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(exact(bytes), text);
            let mut search = Search::default();
            let read = search.set(&format!("memory <= {text}"));
            assert!(read.is_ok() && search.memory.map(|m| m.0) == Some(bytes), "{text}");
        }
    }
}
