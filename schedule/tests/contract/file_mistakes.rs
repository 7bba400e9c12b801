//! Broken schedule files: a whole one in which something else stands, and what is said of it.

use roundelay_schedule::{read, seal, write};

/// A file whose longer lists have a line for each entry.
const SPREAD: &str = include_str!("../../../tests/fixtures/schedule/spread.schedule");

/// The same as it is written.
const WHOLE: &str = include_str!("../../../tests/fixtures/schedule/whole.schedule");

/// Part of a text, which stands there once; what stands there in its stead; and what is said of the
/// line where that ends, if anything is.
type Edit = (&'static str, &'static str, &'static str);

/// The hash that is replaced by the right one.
const HASH: &str = "hash 0000000000000000";

const LAUNCH: &str =
    "a1     lag 0  F s0 i0    launch r0.0 lane 0 k0 (b0.0 b1.0)  after a0\n";

const TRANSFER: &str = "a2     lag 1  reach 1    transfer x0 r0.0 b0.0 -> r1.0 b2.0 \
                        parameter(s0)  after a1, a2-1";

/// Edits of [`SPREAD`], each with its name.
const EDITS: [(&str, &[Edit]); 24] = [
    ("first_line", &[("roundelay schedule 1", "---", "this is not a schedule file")]),
    ("format_unknown", &[("schedule 1", "schedule 2", "format `2` is unknown")]),
    (
        "anchors",
        &[(
            "target:\n  name: laptop",
            "target:\n  name: &own laptop",
            "anchors and aliases may not stand here",
        )],
    ),
    ("tags", &[("batch: 8", "batch: !dozens 8", "unsupported tag `!dozens`")]),
    (
        "section_fields",
        &[
            ("stages: 1", "stage: 1", "unknown field `stage`"),
            ("seed: 7", "model: line", "the key `model` stands here twice"),
        ],
    ),
    (
        "section_missing",
        &[
            ("groups:\n  g0: {places: [r0.0, r1.0], axes: []}\n", "", ""),
            (HASH, HASH, "the section `groups` is missing"),
        ],
    ),
    ("section_twice", &[("axes: {}", "axes: {}\naxes: {}", "a second section `axes`")]),
    (
        "section_unknown",
        &[("axes: {}", "axes: {}\nbatches: 4", "unknown section `batches`")],
    ),
    (
        "section_values",
        &[
            ("{x0: {", "{x1: {", "expected the handle x0, found `x1`"),
            ("rule: sync", "rule: cyclic_v3", "unknown rule `cyclic_v3`"),
            ("batch: 8", "batch: -8", "expected a whole number below 2^32"),
        ],
    ),
    (
        "row_handle",
        &[
            ("  b1: {", "  b3: {", "expected the handle b1, found `b3`"),
            ("  b2: {", "  b2: {", "expected the handle b4, found `b2`"),
        ],
    ),
    (
        "row_on_one_line",
        &[
            ("  r1: {devices: [d1], turn: 0, lanes: 1}\n", "", ""),
            (
                "rings:\n  r0: {devices: [d0], turn: 0, lanes: 1}",
                "rings: {r0: {devices: [d0], turn: 0, lanes: 1}}",
                "rows of a table stand on lines of their own",
            ),
        ],
    ),
    (
        "row_values",
        &[
            ("[d0], turn: 0, lanes: 1}", "[d0], turn: 0}", "missing field `lanes`"),
            ("r1: {devices: [d1]", "r1: {devices: [r1]", "expected a handle like `d0`"),
            ("places: [r0.0", "places: [r0", "expected `handle.place`, found `r0`"),
            (
                "b0: {home: r0, subject: {parameter:",
                "b0: {home: r0, subject: {parameters:",
                "unknown variant `parameters`",
            ),
            (
                "b2: {home: r1, subject: {parameter: [s0, whole]}, offset: 0, size: 64",
                "b2: {home: r1, subject: {parameter: [s0, whole]}, offset: 0, \
                 size: 99999999999999999999",
                "expected a whole number below 2^64",
            ),
        ],
    ),
    (
        "routine_call",
        &[(
            "{role: parameter, access: read,",
            "{role: parameter, access: reads,",
            "unknown variant `reads`",
        )],
    ),
    (
        "hash_early",
        &[
            ("hash 0000000000000000\n", "", ""),
            (
                "groups:",
                "hash 0000000000000000\ngroups:",
                "the header ends with the hash line",
            ),
        ],
    ),
    (
        "hash_missing",
        &[("hash 0000000000000000\nactions", "actions", "the hash line is missing")],
    ),
    (
        "hash_twice",
        &[(
            HASH,
            "hash 0000000000000000\nhash 0000000000000000",
            "the header ends with the hash line",
        )],
    ),
    (
        "hash_wrong",
        &[(HASH, "hash 1111111111111111", "the content does not match this hash")],
    ),
    (
        "action_content",
        &[
            (" parameter(s0)", " activation(s0)", "unknown content `activation`"),
            ("gradient(s0, ", "gradient(", "expected a handle like `s0`"),
        ],
    ),
    (
        "action_end",
        &[
            ("i0 b1.0", "i0 b1.0 b2.0", "expected the line to end, found `b2.0`"),
            ("(b0.0 b1.0)", "(c0.0 b1.0)", "expected a handle like `b0`, found `c0`"),
            (TRANSFER, "a2", "expected `lag`, found the end of the line"),
        ],
    ),
    (
        "action_lost",
        &[(LAUNCH, "", ""), ("a2     lag", "a2     lag", "expected a1, found a2")],
    ),
    (
        "action_number",
        &[
            ("a2     lag", "a7     lag", "expected a2, found a7"),
            ("a3     lag", "a3     lag", "expected a8, found a3"),
        ],
    ),
    (
        "action_numbers",
        &[
            ("a0     lag 0", "a0     lag 4294967296", "expected a number below 2^32"),
            ("(b0.0 b1.0)", "(b0.0 b1.99999999999)", "expected a place"),
            ("a1, a2-1", "a1, a2--1", "expected a number below 2^32"),
            ("i0, i1]])", "i0, i1])", "expected `,`, found `)`"),
        ],
    ),
    (
        "action_pieces",
        &[
            (" feed ", " feeds ", "unknown action `feeds`"),
            (" lane 0 ", " 0 ", "expected `lane`, found `0`"),
            ("b0.0 -> r1.0", "b0.0 > r1.0", "expected `->`, found `>`"),
            (
                "i1]])",
                "i1]]) after",
                "expected a handle like `a0`, found the end of the line",
            ),
        ],
    ),
    (
        "action_task",
        &[
            (" F s0 i0 ", " B s0 i0 ", "k0 is F s0, not B s0"),
            (
                "reach 1    transfer",
                "F s0 reach 1 transfer",
                "expected a handle like `i0`, found `reach`",
            ),
            (" all_reduce ", " launch ", "expected a task before `launch`"),
        ],
    ),
];

/// A text, and what is said of which of its lines.
struct Case {
    text: String,
    said: Vec<(usize, &'static str)>,
}

impl Case {
    fn of(edits: &[Edit]) -> Self {
        let whole = Self { text: SPREAD.to_owned(), said: Vec::new() };
        edits.iter().fold(whole, Self::edited)
    }

    /// Edits stand in the order of their lines, so lines that were counted stay what they are.
    fn edited(mut self, (part, other, said): &Edit) -> Self {
        assert_eq!(self.text.matches(part).count(), 1, "{part}");
        let (before, behind) = self.text.split_once(part).expect("it is there");
        let before = format!("{before}{other}");
        if !said.is_empty() {
            self.said.push((before.lines().count(), said));
        }
        self.text = before + behind;
        self
    }

    /// What is said of the text, where that is not what should be.
    fn complaint(&self) -> Option<String> {
        let sealed = match seal(&self.text) {
            Ok(sealed) if self.text.contains(HASH) => sealed,
            _ => self.text.clone(),
        };
        let wrong = read(&sealed).expect_err("something is wrong");
        let is_said = wrong.iter().count() == self.said.len()
            && wrong.iter().zip(&self.said).all(|(error, (line, said))| {
                error.line == *line
                    && error.message.contains(said)
                    && !error.hint.is_empty()
            });
        (!is_said).then(|| format!("expected {:?}\n{wrong}", self.said))
    }
}

#[test]
fn every_mistake_is_found_on_its_line_and_no_other() {
    let complaint = |(name, edits): &(&str, &[Edit])| {
        Case::of(edits).complaint().map(|complaint| format!("{name}: {complaint}"))
    };
    let wrong: Vec<String> = EDITS.iter().filter_map(complaint).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_value_that_is_nested_too_deep_is_refused() {
    let rate = "{constant: 0.1}";
    let deep =
        format!("{}{rate}{}", "{warmup: {steps: 1, after: ".repeat(40), "}}".repeat(40));
    let line = SPREAD.lines().position(|line| line.ends_with(rate)).expect("it is there");
    let said = "nested deeper than any value of such a file";
    let case = Case { text: SPREAD.replace(rate, &deep), said: vec![(line + 1, said)] };
    assert_eq!(case.complaint(), None);
}

#[test]
fn a_file_that_ends_with_its_header_lacks_actions() {
    let (header, _) = SPREAD.split_once("actions\n").expect("it has actions");
    let said = vec![(header.lines().count(), "the line `actions` is missing")];
    assert_eq!(Case { text: header.to_owned(), said }.complaint(), None);
}

#[test]
fn a_whole_file_is_written_as_it_is() {
    let sealed = seal(WHOLE).expect("it has a hash");
    assert_eq!(write(&read(&sealed).expect("it is whole")), sealed);
}

#[test]
fn lists_may_have_a_line_for_each_entry() {
    let [spread, whole] = [SPREAD, WHOLE]
        .map(|text| read(&seal(text).expect("it has a hash")).expect("it is whole"));
    assert_eq!(spread, whole);
}
