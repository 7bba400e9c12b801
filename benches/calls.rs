//! Where the time of one training step goes, kernel by kernel:
//! `cargo bench --bench calls -- [FILE.rdl [THREADS]]`.
//!
//! Every call of every routine of the best plan runs alone on memory of its own, in order; of
//! each call the least time of all rounds counts. With one thread that is the thread's time on a
//! processor, so that another load of the machine disturbs little.
#![allow(unsafe_code, reason = "kernels take the addresses of their operands")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use roundelay::{
    Checked, SearchOptions, SourceFile,
    parts::{
        kernels::{Context, Kernel, Mode},
        schedule::{Call, Element, Float, Routine},
    },
};
use std::{collections::BTreeMap, env, error::Error, fs, sync::LazyLock, time::Instant};

/// How often every call runs.
const ROUNDS: usize = 15;
const DTYPE: Float = Float::F32;
const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pytorch/gpt.rdl");

/// One call with its memory.
struct Site {
    name: String,
    kernel: Kernel,
    operands: Vec<*mut u8>,
    seconds: f64,
}

/// What calls of one name and one shape take together.
#[derive(Default)]
struct Total {
    calls: usize,
    seconds: f64,
    operations: f64,
    bytes: f64,
}

fn compiled(file: &str) -> Result<Checked, Box<dyn Error>> {
    let source = SourceFile::new(file.to_owned(), fs::read_to_string(file)?);
    let program = roundelay::parse(&source)?;
    let ranking = roundelay::plan(&program, &SearchOptions::default())?;
    Ok(roundelay::compile(&program, ranking.best())?)
}

/// A cache line of memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "kernels read it by its address")] [f32; 16]);

/// Memory of a routine's arguments. Small positive numbers are sound for every kernel; what
/// holds whole numbers is zero, a valid token.
struct Arguments {
    lines: Vec<Vec<Line>>,
}

impl Arguments {
    fn new(routine: &Routine) -> Self {
        let memory = |bytes: u64| vec![Line([0.01; 16]); bytes.div_ceil(64) as usize];
        Self { lines: routine.arguments.iter().map(|a| memory(a.size.0)).collect() }
    }

    fn place(&mut self, call: &Call) -> Vec<*mut u8> {
        let mut operands = Vec::new();
        for operand in &call.operands {
            let lines = &mut self.lines[operand.argument as usize];
            if operand.element == Element::I32 {
                lines.fill(Line([0.0; 16]));
            }
            let start = operand.offset.0 as usize;
            assert!(start < lines.len() * 64, "operands lie inside their argument");
            operands.push(lines.as_mut_ptr().cast::<u8>().wrapping_add(start));
        }
        operands
    }
}

fn shapes(call: &Call) -> String {
    let shape = |shape: &[u64]| {
        let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
        extents.join("x")
    };
    let shapes: Vec<String> =
        call.operands.iter().take(3).map(|o| shape(&o.shape)).collect();
    format!("{} {}", call.kernel, shapes.join(" "))
}

/// Seconds on a clock: of the calling thread on a processor, or of the wall.
fn now(threads: usize) -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    match threads {
        1 => processor_seconds(),
        _ => START.elapsed().as_secs_f64(),
    }
}

#[cfg(target_os = "linux")]
fn processor_seconds() -> f64 {
    /// `struct timespec` where a long has 64 bits.
    #[repr(C)]
    struct Time([i64; 2]);
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Time([0; 2]);
    // SAFETY: the C library is linked, and writes one `struct timespec`.
    let status = unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "Linux has a clock for every thread");
    time.0[0] as f64 + time.0[1] as f64 * 1e-9
}

#[cfg(not(target_os = "linux"))]
fn processor_seconds() -> f64 {
    now(0)
}

/// Least seconds of every call of a routine.
fn timed(routine: &Routine, context: &Context) -> Result<Vec<Site>, Box<dyn Error>> {
    let mut memory = Arguments::new(routine);
    let mut sites = Vec::new();
    for call in &routine.calls {
        sites.push(Site {
            name: shapes(call),
            kernel: Kernel::parse(call)?,
            operands: memory.place(call),
            seconds: f64::INFINITY,
        });
    }
    for _ in 0..ROUNDS {
        for site in &mut sites {
            let start = now(context.threads);
            // SAFETY: operands lie inside the arguments, whose sizes the checker has proved.
            unsafe { site.kernel.run::<f32>(&site.operands, context) };
            site.seconds = site.seconds.min(now(context.threads) - start);
        }
    }
    Ok(sites)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let file = arguments.next().unwrap_or_else(|| DEFAULT.to_owned());
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let schedule = compiled(&file)?;
    let context = Context {
        step: 3,
        updates: 4,
        micro_batch: 0,
        seed: 1,
        mode: Mode::Training,
        rate: 1e-3,
        slice_offset: 0,
        part: 0,
        threads,
    };
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    for routine in schedule.routines.values().filter(|r| !r.name.ends_with('+')) {
        for site in timed(routine, &context)? {
            let footprint = site.kernel.footprint(DTYPE);
            let total = totals.entry(site.name).or_default();
            total.calls += 1;
            total.seconds += site.seconds;
            total.operations += footprint.flops.0 as f64;
            total.bytes += footprint.bytes.0 as f64;
        }
    }
    print_table(&totals);
    Ok(())
}

fn print_table(totals: &BTreeMap<String, Total>) {
    let whole: f64 = totals.values().map(|total| total.seconds).sum();
    let mut rows: Vec<(&String, &Total)> = totals.iter().collect();
    rows.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    println!(
        "{:>9} {:>6} {:>6} {:>8} {:>7}  call",
        "ms", "share", "calls", "GFLOP/s", "GB/s"
    );
    for (name, total) in rows {
        println!(
            "{:>9.3} {:>5.1}% {:>6} {:>8.1} {:>7.1}  {name}",
            total.seconds * 1e3,
            100.0 * total.seconds / whole,
            total.calls,
            total.operations / total.seconds * 1e-9,
            total.bytes / total.seconds * 1e-9,
        );
    }
    println!("{:>9.3} in all", whole * 1e3);
}
