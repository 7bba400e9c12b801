//! What these tests share: as many processes as there are ranks, each with its own variables, none
//! of which outlives its test.

use crate::{
    bench::{ALL, Bench, Run},
    ports::free_port,
    support::Ended,
};
use std::{
    fs,
    io::Read,
    panic,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A test that takes longer has a rank that does not begin, or does not end: each compiles its kernels
/// first, all of them side by side.
const PATIENCE: Duration = Duration::from_secs(240);

/// The libraries of a machine with several GPUs.
pub(crate) const LIBRARIES: [&str; 4] = [ALL[0], ALL[1], ALL[2], "libnccl.so.2"];

/// Torchrun's names of rank, size and local rank.
const TORCHRUN: [&str; 3] = ["RANK", "WORLD_SIZE", "LOCAL_RANK"];

/// Does the same to each of some worlds at once, for ranks wait most of the time.
pub(crate) fn at_once<T: Send, R: Send, const N: usize>(
    of: [T; N],
    each: impl Fn(T) -> R + Sync,
) -> [R; N] {
    let each = &each;
    thread::scope(|scope| {
        let running = of.map(|one| scope.spawn(move || each(one)));
        running.map(|own| own.join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
    })
}

/// Ranks that are to be started.
pub(crate) struct World {
    pub(crate) bench: Bench,
    ranks: u32,
    port: u16,
    settings: Vec<(Option<u32>, String, String)>,
}

/// Ranks under way.
pub(crate) struct Running {
    children: Vec<Child>,
    start: Instant,
}

impl World {
    pub(crate) fn new(name: &str, ranks: u32) -> Self {
        Self::with(name, ranks, &LIBRARIES)
    }

    pub(crate) fn with(name: &str, ranks: u32, libraries: &[&str]) -> Self {
        let port = free_port();
        let bench = Bench::with(&format!("nccl-{name}"), libraries);
        Self { bench, ranks, port, settings: Vec::new() }
    }

    /// Sets a variable on all ranks.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((None, name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable on one rank.
    pub(crate) fn on(mut self, rank: u32, name: &str, value: &str) -> Self {
        self.settings.push((Some(rank), name.to_owned(), value.to_owned()));
        self
    }

    /// One rank of it; `names` are the launcher's of rank, size and local rank.
    fn command(
        &self,
        names: [&str; 3],
        rank: u32,
        words: &str,
        file: Option<&Path>,
    ) -> Command {
        let mut command = self.bench.command(words);
        command.args(file);
        let [own, size, local] = names;
        for (name, value) in [
            (own, rank.to_string()),
            (size, self.ranks.to_string()),
            (local, rank.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", self.port.to_string()),
            ("STANDIN_CUDA_DEVICES", self.ranks.to_string()),
        ] {
            command.env(name, value);
        }
        let of_rank =
            |own: &&(Option<u32>, String, String)| own.0.is_none_or(|one| one == rank);
        for (_, name, value) in self.settings.iter().filter(of_rank) {
            command.env(name, value);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts these ranks.
    pub(crate) fn start(
        &self,
        ranks: &[u32],
        words: &str,
        file: Option<&Path>,
    ) -> Running {
        let child = |rank: &u32| {
            self.command(TORCHRUN, *rank, words, file).spawn().expect("the binary starts")
        };
        Running { children: ranks.iter().map(child).collect(), start: Instant::now() }
    }

    /// Starts all ranks, each with words of its own.
    pub(crate) fn start_each(&self, words: &[&str], file: &Path) -> Running {
        let child = |(rank, words): (u32, &&str)| {
            let mut command = self.command(TORCHRUN, rank, words, Some(file));
            command.spawn().expect("the binary starts")
        };
        let children = (0..).zip(words).map(child).collect();
        Running { children, start: Instant::now() }
    }

    /// Starts all ranks as another launcher does, and waits for their ends.
    pub(crate) fn run_as(&self, names: [&str; 3], words: &str) -> Vec<Ended> {
        let child = |rank| {
            self.command(names, rank, words, None).spawn().expect("the binary starts")
        };
        let children = (0..self.ranks).map(child).collect();
        Running { children, start: Instant::now() }.ended()
    }

    /// Starts all ranks, and waits for their ends.
    pub(crate) fn run(&self, words: &str, file: Option<&Path>) -> Vec<Ended> {
        let all: Vec<u32> = (0..self.ranks).collect();
        self.start(&all, words, file).ended()
    }

    /// A training of all ranks that must end well, as the first one tells it.
    pub(crate) fn train(&self, words: &str, program: &Path) -> Run {
        let [weights, counts] = ["ranks.safetensors", "rank-counts-0"].map(|name| {
            let path = self.bench.scratch.path(name);
            let _ = fs::remove_file(&path);
            path
        });
        let saved = weights.display();
        let words = format!("run --json {words} --deadline 60 --save {saved}");
        let ended = self.run(&words, Some(program));
        for (rank, own) in ended.iter().enumerate() {
            assert_eq!(own.code, 0, "rank {rank}: {}", own.err);
            assert!(rank == 0 || own.out.is_empty(), "rank 0 alone tells: {}", own.out);
        }
        Run::of(&ended[0], &weights, &counts)
    }
}

impl Running {
    /// The process of a rank.
    pub(crate) fn process(&self, place: usize) -> u32 {
        self.children[place].id()
    }

    /// Ends a rank as the system ends what takes too much memory.
    pub(crate) fn kill(&mut self, place: usize) {
        self.children[place].kill().expect("it can be killed");
    }

    /// Waits until these have ended.
    pub(crate) fn wait_for(&mut self, places: &[usize]) {
        for place in places {
            while self.children[*place].try_wait().expect("it is a child").is_none() {
                assert!(self.elapsed() < PATIENCE, "a rank did not end");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// More ranks.
    pub(crate) fn join(&mut self, mut others: Self) {
        self.children.append(&mut others.children);
    }

    /// How all ranks end; one that was killed has no code of its own and gets −1.
    pub(crate) fn ended(mut self) -> Vec<Ended> {
        let start = self.start;
        let children = std::mem::take(&mut self.children);
        let waits: Vec<_> = children
            .into_iter()
            .map(|child| thread::spawn(move || wait(child, start)))
            .collect();
        waits.into_iter().map(|wait| wait.join().expect("it is waited for")).collect()
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(mut child: Child, start: Instant) -> Ended {
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = String::new();
            let _ = stream.map(|mut stream| stream.read_to_string(&mut text));
            text
        })
    };
    let out =
        reader(child.stdout.take().map(|own| Box::new(own) as Box<dyn Read + Send>));
    let err =
        reader(child.stderr.take().map(|own| Box::new(own) as Box<dyn Read + Send>));
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if start.elapsed() > PATIENCE && !late {
            late = true;
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(10));
    };
    let [out, err] = [out, err].map(|text| text.join().expect("text is read"));
    assert!(!late, "a rank did not end: {err}");
    Ended { code: status.code().unwrap_or(-1), out, err }
}
