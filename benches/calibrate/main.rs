//! Fits the constants of devices and links on what others measured, and says how far off the cost
//! model is, on rows that the fit saw and on rows that it did not.
//!
//! `cargo bench --bench calibrate [-- [--rows] [--write]]`
//!
//! The split is declared, by whole groups:
//!
//! | constants | fitted on | held out |
//! | --- | --- | --- |
//! | links inside an A100 node | Echo, 2 to 8 GPUs (A100-40) | vTrain, 2 to 8 GPUs (A100-80) |
//! | links between A100 nodes | Echo, 16 and 64 GPUs | Echo, 32 and 128 GPUs; nccl-tests plateaus |
//! | links inside a V100 node | Aceso, all-reduce | Aceso, other kinds and pairs; vTrain, 2, 4 and 8 GPUs |
//! | V100 | Aceso layers of 350M, 1.3B, 6.7B | Aceso layers of 2.6B and 13B |
//! | `loss` of all devices | Aceso heads of 350M, 1.3B, 6.7B (V100) | Aceso heads of 2.6B and 13B |
//! | A100-40, A100-80, H100 | `mpt` models at even places by size, and replicas and pipelines of `vts` shapes 12x1024 and 24x2048 | the other models and shapes; llm.c, nanoGPT; stages of arXiv 2401.10241 |
//!
//! Rows that are a plan of ours go through planner, checker and clock as well, with the constants
//! of the shipped files.
//!
//! `--rows` prints every planned row. `--write` puts the constants into `fitted.csv` and into the
//! embedded files of `dsl`, whose lines say `# fitted: KEY`; the next run plans with them. No row
//! with tensor parallelism is fitted on. `docs/accuracy.md` reads the tables.
#![expect(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod collectives;
mod data;
mod fit;
mod layers;
mod losses;
mod order;
mod planned;
mod record;
mod steps;
mod updates;
mod work;

use record::Record;
use std::{env, error::Error};

const USAGE: &str = "cargo bench --bench calibrate [-- [--rows] [--write]]";

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> =
        env::args().skip(1).filter(|word| word != "--bench").collect();
    let known = ["--rows", "--write"];
    if given.iter().any(|word| !known.contains(&word.as_str())) {
        return Err(USAGE.into());
    }
    let [each, write] = known.map(|option| given.iter().any(|word| word == option));
    let mut record = Record::default();
    collectives::calibrate(&mut record)?;
    let losses = layers::calibrate(&mut record)?;
    steps::calibrate(losses, &mut record)?;
    planned::judge(each)?;
    println!("{record}");
    if write {
        record.write()?;
    }
    Ok(())
}
