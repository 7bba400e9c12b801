//! table.yaml: a profile as text with one row per line, and back with the line of every mistake.

use super::{CallTime, PROFILE_FORMAT, Profile};
use crate::{YamlError, read_yaml, text::unmarked};
use std::{collections::BTreeMap, fmt};

/// One mistake in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileMistake {
    /// Line, counted from one.
    pub line: usize,
    /// What is wrong, as a sentence without full stop.
    pub message: String,
}

/// What is wrong with a table: all mistakes, by line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileMistakes(pub Vec<ProfileMistake>);

/// A profile as text. Equal profiles give equal texts.
pub fn write_profile(profile: &Profile) -> String {
    let Profile { format, processor, threads, dtype, launch, wake, copies, rows, calls } =
        profile;
    let mut text = format!(
        "format: {format}\nprocessor: {}\nthreads: {threads}\ndtype: {}\nlaunch: {}\n\
         wake: {}\ncopies:\n  latency: {}\n  bandwidth: {}\n  residual: {:?}\n  points:\n",
        quoted(processor),
        dtype,
        launch.0,
        wake.0,
        copies.latency.0,
        copies.bandwidth.0,
        copies.residual,
    );
    for point in &copies.points {
        text +=
            &format!("    - {{bytes: {}, nanos: {}}}\n", point.bytes.0, point.nanos.0);
    }
    text += &format!("rows: {rows}\ncalls:\n");
    for row in calls {
        let CallTime { busy, nanos, samples, spread, flops, bytes, call } = row;
        text += &format!(
            "  - {{busy: {busy}, nanos: {}, samples: {samples}, spread: {spread:?}, \
             flops: {}, bytes: {}, call: {}}}\n",
            nanos.0,
            flops.0,
            bytes.0,
            quoted(call)
        );
    }
    text
}

/// Reads a profile.
///
/// # Errors
/// Another version; the first place where the text is no table; or every row that cannot be.
pub fn read_profile(text: &str) -> Result<Profile, ProfileMistakes> {
    let text = unmarked(text);
    check_version(text)?;
    let unread = |YamlError { line, fault, .. }| single(line, fault.hinted());
    let profile: Profile = read_yaml(text).map_err(unread)?;
    let mistakes = mistakes(&profile, text);
    if mistakes.is_empty() { Ok(profile) } else { Err(ProfileMistakes(mistakes)) }
}

fn single(line: usize, message: String) -> ProfileMistakes {
    ProfileMistakes(vec![ProfileMistake { line, message }])
}

/// The version is looked at first: everything else may be different in another one.
fn check_version(text: &str) -> Result<(), ProfileMistakes> {
    let found = text.lines().enumerate().find_map(|(index, line)| {
        Some((index + 1, line.strip_prefix("format:")?.split('#').next()?.trim()))
    });
    let Some((line, version)) = found else {
        let message =
            format!("this is not a table: `format: {PROFILE_FORMAT}` is missing");
        return Err(single(1, message));
    };
    if version == PROFILE_FORMAT.to_string() {
        return Ok(());
    }
    let message = format!("format {version} is not known, only {PROFILE_FORMAT}");
    Err(single(line, message))
}

fn mistakes(profile: &Profile, text: &str) -> Vec<ProfileMistake> {
    let mut found = Vec::new();
    let mut expect = |holds: bool, key: &str, message: &str| {
        if !holds {
            let message = message.to_owned();
            found.push(ProfileMistake { line: line_of(text, key), message });
        }
    };
    expect(profile.threads > 0, "threads", "a device has at least one thread");
    let rate = profile.copies.bandwidth.0;
    expect(rate > 0, "bandwidth", "a copy moves at more than 0 bytes per second");
    let residual = "`residual` is a finite number of at least 0";
    expect(is_share(profile.copies.residual), "residual", residual);
    let rows = profile.calls.len();
    let cut = format!("{} rows are announced, here are {rows}", profile.rows);
    expect(profile.rows == rows, "rows", &cut);
    let mut seen: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    let lines = row_lines(text);
    for (index, row) in profile.calls.iter().enumerate() {
        let line = lines.get(index).copied().unwrap_or(1);
        let first = seen.entry((row.call.as_str(), row.busy)).or_insert(line);
        if *first != line {
            let message = format!("this call stands in line {first} already");
            found.push(ProfileMistake { line, message });
        }
        found.extend(wrong(row).map(|message| ProfileMistake { line, message }));
    }
    found
}

/// What is wrong with a row alone.
fn wrong(row: &CallTime) -> impl Iterator<Item = String> {
    let CallTime { busy, nanos, samples, spread, flops: _, bytes: _, call: _ } = row;
    let all = [
        (*busy > 0, "`busy` counts the devices that compute, which are at least 1"),
        (nanos.0 > 0, "a call keeps a device busy for at least a nanosecond"),
        (*samples > 0, "`samples` counts what was measured, which is at least 1"),
        (is_share(*spread), "`spread` is a finite number of at least 0"),
    ];
    all.into_iter().filter(|(holds, _)| !holds).map(|(_, message)| message.to_owned())
}

/// Whether a number may be a part of another one.
fn is_share(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// The lines of the rows under `calls`.
fn row_lines(text: &str) -> Vec<usize> {
    let after = text.lines().position(|line| line.starts_with("calls:"));
    let rows = text.lines().enumerate().skip(after.unwrap_or(0));
    rows.filter(|(_, line)| line.trim_start().starts_with("- "))
        .map(|(index, _)| index + 1)
        .collect()
}

/// The line of a key; the first line when it stands nowhere.
fn line_of(text: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    text.lines().position(is_key).map_or(1, |index| index + 1)
}

/// A text in quotes; what is not plain ASCII becomes a question mark.
fn quoted(text: &str) -> String {
    let plain = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    let plain: String = text.chars().map(plain).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for ProfileMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ProfileMistake { line, message }) in self.0.iter().enumerate() {
            let lead = if index == 0 { "" } else { "\n" };
            write!(f, "{lead}line {line}: {message}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, BytesPerSecond, Copies, CopyTime, Float, Flops, Nanos};

    fn profile() -> Profile {
        let row = |call: &str, busy| CallTime {
            busy,
            nanos: Nanos(700),
            samples: 40,
            spread: 0.25,
            flops: Flops(8),
            bytes: Bytes(64),
            call: call.to_owned(),
        };
        let points = vec![CopyTime { bytes: Bytes(4096), nanos: Nanos(900) }];
        Profile {
            format: PROFILE_FORMAT,
            processor: "a \"quoted\" name".into(),
            threads: 1,
            dtype: Float::F32,
            launch: Nanos(300),
            wake: Nanos(9_000),
            copies: Copies {
                latency: Nanos(400),
                bandwidth: BytesPerSecond(8_000_000_000),
                residual: 0.03125,
                points,
            },
            rows: 3,
            calls: vec![
                row("add real[4]", 1),
                row("add real[4]", 2),
                row("gelu real[4]", 1),
            ],
        }
    }

    #[test]
    fn a_table_reads_back_as_written() {
        let text = write_profile(&profile());
        assert_eq!(read_profile(&text), Ok(profile()), "{text}");
        assert_eq!(read_profile(&format!("\u{feff}{text}")), Ok(profile()));
        assert_eq!(profile().digest().len(), 16);
        let mut other = profile();
        other.calls[2].nanos = Nanos(701);
        assert_ne!(other.digest(), profile().digest());
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = write_profile(&profile());
        let lines = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} stands in\n{text}");
            let ProfileMistakes(all) =
                read_profile(&text.replacen(from, to, 1)).unwrap_err();
            all.into_iter().map(|error| error.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("format: 1", "format: 2"), [1]);
        assert_eq!(lines("format: 1", "model: m"), [1]);
        assert_eq!(lines("threads: 1", "threads: 0"), [3]);
        assert_eq!(lines("threads: 1", "threads: one"), [3]);
        assert_eq!(lines("dtype: f32", "dtype: f8"), [4]);
        assert_eq!(lines("bandwidth: 8000000000", "bandwidth: 0"), [9]);
        assert_eq!(lines("rows: 3", "rows: 4"), [13]);
        assert_eq!(lines("busy: 2", "busy: 1"), [16]);
        assert_eq!(lines("nanos: 700", "nanos: 0"), [15]);
        assert_eq!(lines("samples: 40", "samples: -40"), [15]);
        assert_eq!(lines("samples: 40", "samples: 0"), [15]);
        assert_eq!(lines("spread: 0.25", "spread: .nan"), [15]);
        assert_eq!(lines("residual: 0.03125", "residual: .nan"), [10]);
        assert_eq!(lines("busy: 2", "busy: 0"), [16]);
        assert_eq!(lines("busy: 2", "idle: 2"), [16]);
    }

    #[test]
    fn values_that_do_not_read_are_told_in_our_words() {
        let text = write_profile(&profile());
        for (from, to, words) in [
            ("threads: 1", "threads: one", "expected a whole number below 2^32; write"),
            ("launch: 300", "launch: -300", "expected a whole number below 2^64; write"),
            ("residual: 0.03125", "residual: small", "expected a number"),
            ("launch:", "lauch:", "unknown field `lauch`"),
            ("busy: 2", "busy: 0", "`busy` counts the devices"),
            ("nanos: 700", "nanos: 0", "a call keeps a device busy"),
            ("samples: 40", "samples: 0", "`samples` counts what was measured"),
            ("residual: 0.03125", "residual: .inf", "`residual` is a finite number"),
        ] {
            assert!(text.contains(from), "{from} stands in\n{text}");
            let ProfileMistakes(told) =
                read_profile(&text.replacen(from, to, 1)).expect_err(to);
            assert!(told[0].message.starts_with(words), "{told:?}");
        }
    }

    #[test]
    fn a_table_that_was_cut_off_is_refused() {
        let text = write_profile(&profile());
        for end in (1..text.len() - 1).filter(|end| text.is_char_boundary(*end)) {
            let cut = read_profile(&text[..end]);
            assert!(cut.is_err(), "{}", &text[..end]);
        }
    }
}
