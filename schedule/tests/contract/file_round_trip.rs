//! What is written is read as it was, and written again byte for byte.

use crate::sample;
use roundelay_schedule::{
    ActionId, Attribute, Augmentation, Content, Culprit, Data, Division, Evaluation,
    Float, Hop, Id, Lines, Method, MicroBatch, Rate, RoutineId, Rule, Schedule, Split,
    Sum, TokenWidth, Work, read, seal, write,
};
use std::collections::BTreeSet;

fn returns(schedule: &Schedule) {
    let text = write(schedule);
    let back = read(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(&back, schedule);
    assert_eq!(write(&back), text);
}

#[test]
fn every_variant_returns() {
    returns(&sample::schedule());
    for data in [
        Data::Synthetic,
        Data::Tokens {
            root: ".".to_owned(),
            file: "t.bin".to_owned(),
            width: TokenWidth::U16,
        },
        Data::Text { root: String::new(), globs: vec![] },
        Data::Cifar10 {
            root: "a b".to_owned(),
            folder: "../cifar".to_owned(),
            augment: Augmentation::Shift,
        },
        Data::Cifar10 {
            root: String::new(),
            folder: String::new(),
            augment: Augmentation::None,
        },
        Data::Images { root: ".".to_owned(), folder: "x: y".to_owned() },
        Data::Shapes { classes: 10, size: 32, seed: u64::MAX },
    ] {
        let mut schedule = sample::schedule();
        schedule.job.data = data;
        schedule.job.dtype = Float::F64;
        schedule.job.evaluate = Evaluation::Never;
        schedule.job.optimizer.method = Method::Sgd { momentum: 0.0, nesterov: true };
        schedule.job.optimizer.rate =
            Rate::Cosine { initial: f64::MAX, steps: u64::MAX, last: 0.0 };
        returns(&schedule);
    }
}

#[test]
fn empty_tables_return() {
    let schedule = Schedule {
        axes: [].into_iter().collect(),
        rings: [].into_iter().collect(),
        groups: [].into_iter().collect(),
        routines: [].into_iter().collect(),
        buffers: [].into_iter().collect(),
        actions: [].into_iter().collect(),
        ..sample::schedule()
    };
    returns(&schedule);
}

/// The sample with another sum in its first collective.
fn with_sum(sum: Sum) -> Schedule {
    let mut schedule = sample::schedule();
    for id in (0..schedule.actions.len()).map(ActionId::new) {
        if let Work::Collective { content: Content::Gradient(_, own), .. } =
            &mut schedule.actions[id].work
        {
            **own = sum;
            return schedule;
        }
    }
    panic!("the sample has a collective of gradients")
}

#[test]
fn evenly_spaced_gradients_are_written_short_and_read_in_either_form() {
    let list = |numbers: &[usize]| Sum::list(numbers.iter().map(|i| MicroBatch::new(*i)));
    for (numbers, short) in [
        (&[0, 1, 2, 3, 4][..], "[i0 to i4]"),
        (&[3, 7, 11, 15, 19, 23], "[i3 to i23 by 4]"),
        (&[0, 2, 4, 6], "[i0, i2, i4, i6]"),
        (&[0, 1, 2, 3, 5], "[i0, i1, i2, i3, i5]"),
    ] {
        for sum in [list(numbers), Sum::all(vec![list(numbers), list(&[30])])] {
            let schedule = with_sum(sum);
            let text = write(&schedule);
            assert!(text.contains(short), "{short}: {text}");
            let long: Vec<String> = numbers.iter().map(|i| format!("i{i}")).collect();
            let long = text.replace(short, &format!("[{}]", long.join(", ")));
            for text in [text, seal(&long).unwrap()] {
                assert_eq!(read(&text).unwrap(), schedule);
            }
        }
    }
}

#[test]
fn steps_that_do_not_lead_to_the_end_of_a_run_are_refused() {
    let text = write(&with_sum(Sum::list((0..5).map(MicroBatch::new))));
    for (wrong, said) in [
        ("[i4 to i0]", "steps of 1 do not lead from i4 to i0"),
        ("[i0 to i0]", "steps of 1 do not lead from i0 to i0"),
        ("[i0 to i4 by 3]", "steps of 3 do not lead from i0 to i4"),
        ("[i0 to i4 by 0]", "steps of 0 do not lead from i0 to i4"),
        ("[i0 to i4, i5]", "expected `]`, found `,`"),
        ("[i0, i1 to i4]", "expected `,`, found `to`"),
        ("[i0 to 4]", "expected a handle like `i0`, found `4`"),
    ] {
        let text = seal(&text.replace("[i0 to i4]", wrong)).unwrap();
        let errors = read(&text).unwrap_err();
        assert_eq!(errors.iter().count(), 1, "{errors}");
        assert!(errors.to_string().contains(said), "{wrong}: {errors}");
    }
}

#[test]
fn comments_and_blank_lines_change_nothing_but_the_hash() {
    let plain = sample::small();
    let noisy: String = plain
        .lines()
        .map(|line| format!("{line}   # a comment\n\n# another\n"))
        .collect();
    let sealed = seal(&noisy).unwrap();
    assert_eq!(write(&read(&sealed).unwrap()), plain);
}

#[test]
fn line_ends_of_other_systems_are_read() {
    let other = sample::small().replace('\n', "\r\n");
    let sealed = seal(&other).unwrap();
    assert_eq!(write(&read(&sealed).unwrap()), sample::small());
}

#[test]
fn sections_stand_in_any_order() {
    let text = sample::small();
    let (before, rest) = text.split_once("axes:").unwrap();
    let (axes, after) = rest.split_once("rings:").unwrap();
    let (header, tail) = after.split_once("hash ").unwrap();
    let moved = format!("{before}rings:{header}axes:{axes}hash {tail}");
    assert_eq!(read(&seal(&moved).unwrap()).unwrap(), read(&text).unwrap());
}

#[test]
fn an_edit_needs_a_seal_and_sealing_twice_changes_nothing() {
    let text = sample::small();
    assert_eq!(seal(&text).as_ref(), Ok(&text));
    let edited = text.replace("seed: 18446744073709551615", "seed: 8");
    let errors = read(&edited).unwrap_err();
    assert_eq!(errors.iter().count(), 1);
    let error = errors.iter().next().unwrap();
    assert!(error.hint.contains("check --seal"), "{error}");
    assert!(edited.lines().nth(error.line - 1).unwrap().starts_with("hash "));
    assert_eq!(read(&seal(&edited).unwrap()).unwrap().job.seed, 8);
    let unsealed: String =
        edited.split_inclusive('\n').filter(|line| !line.starts_with("hash ")).collect();
    assert_eq!(seal(&unsealed), seal(&edited));
}

#[test]
fn all_mistakes_of_a_file_are_reported_in_order_of_lines() {
    let text = sample::small()
        .replace("  r1: {devices: [d0, d1], turn: 1", "  r1: {devices: [d0, d1], turn: x")
        .replace("micro_batches: 4", "micro_batches: -4")
        .replace("  b2: {home: r0", "  b2: {house: r0")
        .replace("a2     lag 3", "a2     leg 3")
        .replace("parameter(s0)", "parameter(q0)");
    let errors = read(&seal(&text).unwrap()).unwrap_err();
    let wrong: Vec<&str> =
        errors.iter().map(|error| text.lines().nth(error.line - 1).unwrap()).collect();
    let starts = ["  micro_batches: -4", "  r1:", "  b2:", "a2 ", "a6 "];
    assert_eq!(wrong.len(), starts.len(), "{errors}");
    for (line, start) in wrong.iter().zip(starts) {
        assert!(line.starts_with(start), "{errors}");
    }
}

/// Keys, values of decisions and names of sections; what is far from all has an example instead.
#[test]
fn what_is_nearly_right_is_hinted() {
    for (right, wrong, hint) in [
        ("  micro_batches: 4", "  microbatches: 4", "did you mean `micro_batches`?"),
        ("  b2: {home: r0", "  b2: {hom: r0", "did you mean `home`?"),
        ("  states: handoff", "  states: handof", "did you mean `handoff`?"),
        ("\nbuffers:\n", "\nbufers:\n", "did you mean `buffers`?"),
        ("  micro_batches: 4", "  xyz: 4", "expected like `plan: with rule"),
    ] {
        let text = sample::small();
        assert!(text.contains(right), "`{right}` is not in {text}");
        let errors = read(&seal(&text.replace(right, wrong)).unwrap()).unwrap_err();
        assert!(errors.iter().any(|error| error.hint.contains(hint)), "{errors}");
    }
}

#[test]
fn one_lost_line_is_one_mistake() {
    let text = sample::small();
    let lost: String =
        text.split_inclusive('\n').filter(|line| !line.starts_with("a3 ")).collect();
    let errors = read(&seal(&lost).unwrap()).unwrap_err();
    assert_eq!(errors.iter().count(), 1, "{errors}");
    assert!(errors.to_string().contains("expected a3, found a4"), "{errors}");
}

#[test]
fn every_action_has_its_line() {
    let text = sample::small().replace("actions\n", "actions\n\n# the first\n");
    let lines = Lines::of(&text);
    for k in 0..18 {
        let line = lines.line(Culprit::Action(ActionId::new(k))).unwrap();
        assert!(text.lines().nth(line - 1).unwrap().starts_with(&format!("a{k} ")));
    }
    let first = Culprit::Action(ActionId::new(0));
    assert_eq!(lines.line(Culprit::Action(ActionId::new(18))), None);
    assert_eq!(Lines::of("nothing").line(first), None);
}

#[test]
fn every_row_and_every_call_has_its_line() {
    let text = sample::small().replace("routines:\n", "routines:\n\n  # the first\n");
    let (lines, schedule) = (Lines::of(&text), read(&seal(&text).unwrap()).unwrap());
    let at = |culprit| {
        let line = lines.line(culprit).unwrap_or_else(|| panic!("no line of {culprit}"));
        text.lines().nth(line - 1).unwrap()
    };
    for key in ["target", "plan", "job", "axes"] {
        assert!(at(Culprit::Header(key)).starts_with(key));
    }
    for (id, _) in schedule.rings.iter() {
        assert!(at(Culprit::Ring(id)).starts_with(&format!("  {id}:")));
    }
    for (id, _) in schedule.buffers.iter() {
        assert!(at(Culprit::Buffer(id)).starts_with(&format!("  {id}:")));
    }
    let mut calls = 0;
    for (id, routine) in schedule.routines.iter() {
        assert!(at(Culprit::Routine(id)).starts_with(&format!("  {id}:")));
        for (number, call) in routine.calls.iter().enumerate() {
            let found = at(Culprit::Call(id, number));
            assert!(found.contains(&format!("kernel: {}", call.kernel)), "{found}");
            calls += 1;
        }
        let behind = Culprit::Call(id, routine.calls.len());
        assert_eq!(lines.line(behind), lines.line(Culprit::Routine(id)));
    }
    assert!(calls > schedule.routines.len(), "some routine has several calls");
}

/// Short lists are written on one line, which is that of each of their calls.
#[test]
fn calls_on_one_line_have_it() {
    let text =
        sample::small().replacen("    calls:\n", "    calls: [{kernel: zero}]\n", 1);
    let place = text.lines().position(|line| line.contains("[{kernel: zero}]")).unwrap();
    let above = text.lines().take(place).collect::<Vec<_>>();
    let row = above.iter().rposition(|line| line.starts_with("  k")).unwrap();
    let number = above[row].trim().trim_matches(['k', ':']).parse().unwrap();
    let (lines, routine) = (Lines::of(&text), RoutineId::new(number));
    assert_eq!(lines.line(Culprit::Routine(routine)), Some(row + 1));
    assert_eq!(lines.line(Culprit::Call(routine, 0)), Some(place + 1));
}

#[test]
fn changed_code_is_known_by_its_digest_whether_written_or_not() {
    let compiled = sample::schedule().compiled_from("0123-4567");
    let changed = |change: &dyn Fn(&mut Schedule)| {
        let mut schedule = compiled.clone();
        change(&mut schedule);
        let back = read(&write(&schedule)).unwrap();
        assert_eq!(back.is_recoded(), schedule.is_recoded());
        back.is_recoded()
    };
    assert!(!changed(&|_| {}));
    assert!(!changed(&|own| own.routines[RoutineId::new(0)].predicted.0 += 1));
    assert!(!changed(&|own| own.routines[RoutineId::new(0)].name += "x"));
    assert!(!changed(&|own| own.job.seed -= 1));
    assert!(!changed(&|own| own.fingerprint = "0123-4567".to_owned()));
    assert!(changed(&|own| {
        let calls = &mut own.routines[RoutineId::new(0)].calls;
        calls[0].attributes.insert("factor".into(), Attribute::Real(2.0));
    }));
    assert!(changed(&|own| own.routines[RoutineId::new(0)].calls.truncate(1)));
    assert!(changed(&|own| own.job.parameters[0].offset += 1));
    assert!(changed(&|own| own.job.dtype = Float::F64));
    let split = Division::One(Split { extent: 0, whole: 8, line: None });
    assert!(changed(&|own| own.job.parameters[0].split = split));
}

/// Which losses train a stage is no part of its routines, but of their digest.
#[test]
fn other_units_are_other_code() {
    let mut schedule = sample::schedule();
    let mut digest = |rule, boundaries: &[u32]| {
        schedule.plan.rule = rule;
        schedule.plan.boundaries = boundaries.to_vec();
        schedule.code_digest()
    };
    let local = |units, hop| Rule::Local { units, hop };
    let digests = [
        digest(Rule::Sync, &[]),
        digest(local(2, Hop::None), &[3]),
        digest(local(2, Hop::None), &[5]),
        digest(local(2, Hop::Added), &[3]),
        digest(local(2, Hop::Alone), &[3]),
        digest(local(3, Hop::None), &[3, 5]),
    ];
    assert_eq!(BTreeSet::from(digests).len(), digests.len());
    assert_eq!(digest(Rule::CyclicV2, &[]), digests[0]);
}
