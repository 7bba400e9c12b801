//! `show --as html`: a page of one file with a box for every span of the clock.

use crate::{
    support::{Scratch, printed, roundelay},
    trace::{PROGRAM, compiled},
};
use roundelay::{Nanos, simulate};
use std::{fs, path::PathBuf};

const STEPS: u64 = 4;

fn written(scratch: &Scratch) -> PathBuf {
    let text = PROGRAM.replace("RULE", "cyclic_v2").replace("PLACEMENT", "pipeline");
    let source = scratch.file("ladder.rdl", &text);
    let file = scratch.path("ladder.schedule");
    printed(roundelay("compile").arg(source).arg("-o").arg(&file));
    file
}

/// A numeric attribute of every tag of a name.
fn numbers(page: &str, tag: &str, attribute: &str) -> Vec<f64> {
    let opening = format!("<{tag} ");
    let tags = page.split(&opening).skip(1);
    let tags = tags.filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag));
    let value = |tag: &str| {
        let (_, rest) = tag.split_once(&format!("{attribute}=\""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    tags.filter_map(value).collect()
}

#[test]
fn every_span_of_the_clock_is_a_box_as_wide_as_it_takes() {
    let scratch = Scratch::new("page");
    let file = written(&scratch);
    let page = printed(roundelay("show --as html --steps 4").arg(&file));
    let schedule = compiled("cyclic_v2", "pipeline");
    let timeline = simulate(&schedule, STEPS);
    let entries = timeline.entries().iter();
    let lengths = entries.map(|entry| entry.end - entry.start);
    let mut lengths: Vec<Nanos> = lengths.filter(|length| *length > Nanos(0)).collect();
    lengths.sort_unstable();
    let mut widths = numbers(&page, "rect", " width");
    widths.sort_by(f64::total_cmp);
    assert_eq!(widths.len(), lengths.len());
    let rows = numbers(&page, "svg", "width");
    assert!(rows.iter().all(|row| *row == rows[0]), "rows are equally long: {rows:?}");
    for (width, length) in widths.iter().zip(lengths) {
        let expected = rows[0] * length.0 as f64 / timeline.makespan().0 as f64;
        assert!((width - expected).abs() <= 1.0, "{width} for {expected}");
    }
    for said in ["core.0", "up to ", "1F1", "step 3, micro-batch i1", "idle "] {
        assert!(page.contains(said), "it says `{said}`");
    }
}

#[test]
fn a_page_asks_for_nothing_and_shows_names_as_they_are() {
    let scratch = Scratch::new("page-names");
    let file = written(&scratch);
    let text = fs::read_to_string(&file).expect("it was written");
    fs::write(&file, text.replace("core.0", "a<b>&c")).expect("there is room");
    printed(roundelay("check --seal").arg(&file));
    let page = printed(roundelay("show --as html").arg(&file));
    assert!(page.contains("<h2>a&lt;b&gt;&amp;c</h2>"), "{page}");
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<g>").count(), page.matches("</g>").count());
    for outside in ["http", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "it needs no `{outside}`");
    }
}

/// The clock goes nearly as far as times are counted, and the ruler to its end.
#[test]
fn a_page_of_the_longest_times_has_an_end() {
    let scratch = Scratch::new("page-long");
    let file = written(&scratch);
    let text = fs::read_to_string(&file).expect("it was written");
    let long = text.replace("latency: 2000", &format!("latency: {}", u64::MAX / 1000));
    assert_ne!(long, text, "the link has a latency");
    fs::write(&file, long).expect("there is room");
    printed(roundelay("check --seal").arg(&file));
    let page = printed(roundelay("show --as html").arg(&file));
    assert!(page.matches("class=\"tick\"").count() > 2, "{page}");
}
