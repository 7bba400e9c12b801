//! The commands; each is a thin call of the library and prints what comes back.
//!
//! JSON goes to standard output; text and tables too unless `--json` is given; progress and
//! diagnostics go to standard error. Exit codes: 0 done, 1 the input was refused or nothing
//! fits, 2 usage, 3 the run or the compiler failed, 130 interrupted: a run comes to rest at the first
//! Ctrl-C, SIGTERM or SIGHUP, or when nobody reads any more what it prints; `plan` prints what it
//! knows; `compile`, `evaluate`, `data` and `profile` say what will not come; all else ends by the
//! signal itself.

mod args;
mod broken;
mod check;
mod compile;
mod data;
mod devices;
mod evaluate;
mod export;
mod failure;
mod fmt;
mod import;
mod load;
mod plan;
mod problem;
mod profile;
mod run;
mod signals;
mod simulate;
mod watch;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

/// Runs the command that the arguments are, and says how it ended.
pub(crate) fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run_command(&cli),
        Err(error) => unparsed(&error, &env::args_os().collect::<Vec<_>>()),
    }
}

/// Tells that arguments are no command, as a document too where they ask for one; or the help.
fn unparsed(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let is_run = arguments.get(1).is_some_and(|command| command == "run");
    let form = if is_run { Form::Line } else { Form::Document };
    let asked = arguments.iter().any(|argument| argument == "--json");
    Failure::unparsed(error).tell(asked.then_some(form))
}

fn run_command(cli: &Cli) -> ExitCode {
    let form = json_form(&cli.command);
    let done = match &cli.command {
        Command::Plan(args) => plan::plan(args),
        Command::Compile(args) => compile::compile(args),
        Command::Check(args) => check::check(args),
        Command::Run(args) => run::run(args),
        Command::Evaluate(args) => evaluate::evaluate(args),
        Command::Simulate(args) => simulate::simulate(args),
        Command::Show(args) => simulate::show(args),
        Command::Fmt(args) => fmt::fmt(args),
        Command::Import(args) => import::import(args),
        Command::Export(args) => export::export(args),
        Command::Devices(args) => devices::devices(args),
        Command::Profile(args) => profile::profile(args),
        Command::Data(args) => data::data(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(form),
    }
}

/// How a command prints JSON, when it is asked to.
fn json_form(command: &Command) -> Option<Form> {
    let (json, form) = match command {
        Command::Plan(args) => (args.json, Form::Document),
        Command::Compile(args) => (args.json, Form::Document),
        Command::Check(args) => (args.json, Form::Document),
        Command::Run(args) => (args.json, Form::Line),
        Command::Evaluate(args) => (args.json, Form::Document),
        Command::Simulate(args) => (args.json, Form::Document),
        Command::Devices(args) => (args.json, Form::Document),
        Command::Import(args) => (args.json, Form::Document),
        Command::Export(args) => (args.json, Form::Document),
        Command::Profile(args) => (args.json, Form::Document),
        Command::Data(args) => (args.json, Form::Document),
        Command::Show(_) | Command::Fmt(_) => return None,
    };
    json.then_some(form)
}

/// Prints to standard output; a closed pipe is no error.
fn print(text: &str) -> Result<(), Failure> {
    match put(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::output(&error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Puts a text out to standard output at once, if somebody reads it there.
fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints one JSON document, or one line of many.
fn print_json(document: &impl serde::Serialize, form: Form) -> Result<(), Failure> {
    let text = json_text(document, form).map_err(|error| Failure::output(&error))?;
    print(&text)
}

/// One JSON document, or one line of many, as it is printed.
fn json_text(document: &impl serde::Serialize, form: Form) -> io::Result<String> {
    let text = match form {
        Form::Document => serde_json::to_string_pretty(document),
        Form::Line => serde_json::to_string(document),
    };
    Ok(format!("{}\n", text?))
}

/// Version of every document and line.
const FORMAT: u32 = 1;

/// How JSON is laid out.
#[derive(Clone, Copy)]
enum Form {
    Document,
    Line,
}

/// Prints to standard error.
fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
