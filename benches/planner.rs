//! What a search over a large cluster takes: `cargo bench --bench planner`. Words after `--` are
//! other programs to plan; `--top=K` asks for the best K plans instead of one, `--no-limit` clocks
//! as many plans as it takes.
//!
//! The inputs are `planner/*.rdl`. Every one is planned in a process of its own, so that the peak of
//! resident memory is that of one search. Seconds are those of the search without reading the
//! program, which stands in a column of its own.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod usage;

use roundelay::{SearchOptions, SourceFile};
use std::{env, error::Error, fs, process::Command, time::Instant};
use usage::{peak, processors};

/// The inputs, small clusters first.
const INPUTS: [&str; 6] = [
    "benches/planner/llama7b.rdl",
    "benches/planner/bert32.rdl",
    "benches/planner/gpt1.rdl",
    "benches/planner/gpt13.rdl",
    "benches/planner/gpt3.rdl",
    "benches/planner/gpt1t.rdl",
];
/// In the environment of the process that plans one input.
const ONE: &str = "ROUNDELAY_PLANNER_INPUT";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Ok(input) = env::var(ONE) {
        return one(&input, options(&words));
    }
    println!(
        "{:<28} {:>12} {:>10} {:>10} {:>7} {:>8} {:>7} {:>7} {:>7} {:>9} {:>6}",
        "input",
        "combinations",
        "candidates",
        "pruned",
        "clocked",
        "gap",
        "read s",
        "wall s",
        "CPU s",
        "plans/CPU s",
        "MB"
    );
    let named: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| word.ends_with(".rdl")).collect();
    for input in if named.is_empty() { &INPUTS[..] } else { &named } {
        let mut process = Command::new(env::current_exe()?);
        process.args(&words).env(ONE, input);
        if !process.status()?.success() {
            return Err(format!("{input} failed").into());
        }
    }
    Ok(())
}

fn options(words: &[String]) -> SearchOptions {
    let top = words.iter().find_map(|word| word.strip_prefix("--top=")?.parse().ok());
    let all = words.iter().any(|word| word == "--no-limit");
    let usual = SearchOptions { top: top.unwrap_or(1), ..SearchOptions::default() };
    SearchOptions {
        clocked_max: if all { usize::MAX } else { usual.clocked_max },
        ..usual
    }
}

fn one(input: &str, options: SearchOptions) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let program = roundelay::parse(&SourceFile::new(input, fs::read_to_string(input)?))?;
    let (read, before) = (begun.elapsed().as_secs_f64(), processors());
    let ranking = roundelay::plan(&program, &options)?;
    let taken = processors() - before;
    let name = input.rsplit('/').next().unwrap_or(input);
    println!(
        "{name:<28} {:>12} {:>10} {:>10} {:>7} {:>6.2} % {read:>7.3} {:>7.3} {taken:>7.2} {:>9.0} \
         {:>8}",
        ranking.space.combinations,
        ranking.candidates,
        ranking.pruned,
        ranking.clocked,
        ranking.gap() * 100.0,
        ranking.elapsed.as_secs_f64(),
        ranking.candidates as f64 / taken,
        peak().map_or("?".to_owned(), |peak| peak.to_string()),
    );
    let best = &ranking.plans[0];
    let words = roundelay::parts::planner::summary(&best.plan);
    println!("    {words}: {}", best.step_time);
    Ok(())
}
