//! How a command fails: what is said, in which form, and the exit code.

mod run;

use super::{
    FORMAT, Form, broken, json_text,
    load::Loaded,
    note,
    problem::{Code, Problem, RepairRow},
    put,
};
use roundelay::{
    CompileError, Diagnostic, Diagnostics, FileErrors, Refusal, Unnameable,
    parts::{
        dsl::{ListMistake, SourcePlace},
        planner::{NoPlan, PlanMistake, PlanMistakes, Searched, Shortfall},
        schedule::{Culprit, Lines, Violations},
    },
};
use serde::Serialize;
use std::{io, path::Path, process::ExitCode};

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    text: String,
    problems: Vec<Problem>,
}

/// What failed; gives the exit code.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The input is refused, or nothing fits.
    Refused,
    /// The arguments do not go together.
    Usage,
    /// The run failed.
    Run,
    /// The run was ended by Ctrl-C.
    Interrupted,
}

/// The exit code of a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

#[derive(Serialize)]
struct Problems<'a> {
    format: u32,
    diagnostics: &'a [Problem],
}

/// What to do with a schedule whose calls this version does not have.
const OTHER_CALLS: &str = "calls are those of this version of Roundelay: if another one wrote the \
                           schedule, compile its program again";

/// The most mistakes of one file that are told.
const LISTED_MAX: usize = 1000;

/// What says that there are more than were told, if there are.
fn further(path: &Path, code: Code, unlisted: usize, what: &str) -> Option<Problem> {
    let message = format!("{unlisted} further {what} are not listed");
    let mut problem = Problem::new(code, path, 0, message);
    problem.hint = "repair those above first".to_owned();
    (unlisted > 0).then_some(problem)
}

impl Failure {
    /// Says what went wrong and returns the exit code.
    pub(crate) fn tell(&self, json: Option<Form>) -> ExitCode {
        if !self.text.is_empty() {
            note(self.text.trim_end());
        }
        if let Some(form) = json.filter(|_| !self.problems.is_empty()) {
            let _ = self.document(form).and_then(|document| put(&document));
        }
        match self.kind {
            Kind::Refused => ExitCode::from(1),
            Kind::Usage => ExitCode::from(2),
            Kind::Run => ExitCode::from(3),
            Kind::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }

    /// What is wrong as JSON.
    pub(crate) fn document(&self, form: Form) -> io::Result<String> {
        json_text(&Problems { format: FORMAT, diagnostics: &self.problems }, form)
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::refused(
            Code::File,
            path,
            format!("cannot use `{}`: {error}", path.display()),
        )
    }

    /// Arguments that do not go together.
    pub(crate) fn usage(path: &Path, message: &str) -> Self {
        let refused = Self::refused(Code::Usage, path, message.to_owned());
        Self { kind: Kind::Usage, ..refused }
    }

    /// Arguments that are no command, of which the parser has told all but the document.
    pub(crate) fn unparsed(error: &clap::Error) -> Self {
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let lines: Vec<&str> = first.lines().map(str::trim).collect();
        let message = lines.join(" ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let failure = Self::usage(Path::new(""), message);
        Self { text: String::new(), ..failure }
    }

    /// Signals that cannot be listened for: whoever ends the command would lose what it does.
    pub(crate) fn unheard(error: &io::Error) -> Self {
        let message = format!("cannot listen for signals: {error}");
        Self { kind: Kind::Run, ..Self::refused(Code::Signal, Path::new(""), message) }
    }

    /// An input that is refused for one reason.
    pub(crate) fn refused(code: Code, path: &Path, message: String) -> Self {
        let problem = Problem::new(code, path, 0, message.clone());
        Self {
            kind: Kind::Refused,
            text: format!("error: {message}"),
            problems: vec![problem],
        }
    }

    /// A file that is something else than the command takes, and what to do with it.
    pub(crate) fn mistaken(path: &Path, message: &str, hint: &str) -> Self {
        Self::at(path, [1, 1], message, hint)
    }

    /// A file that is wrong from a line and column on, or, without them, as a whole.
    pub(crate) fn at(
        path: &Path,
        [line, column]: [u64; 2],
        message: &str,
        hint: &str,
    ) -> Self {
        let mut problem = Problem::new(Code::File, path, line, message.to_owned());
        (problem.column, problem.hint) = (column, hint.to_owned());
        Self::listed(vec![problem])
    }

    /// A folder that no text can name.
    pub(crate) fn unnameable(folder: &Unnameable) -> Self {
        let hint = "rename it, or run the command inside it";
        Self::at(&folder.0, [0, 0], &folder.to_string(), hint)
    }

    /// Standard output that cannot be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        Self::wrong(&format!("cannot print: {error}"))
    }

    /// With a sentence more where there is one, which is no problem of its own.
    pub(crate) fn with(mut self, sentence: Option<&str>) -> Self {
        self.text.extend(sentence.into_iter().flat_map(|own| ["\n", own]));
        self
    }

    /// A GPU that is not as it should be, of which a document has said all: nothing is printed behind that.
    pub(crate) fn wrong(message: &str) -> Self {
        let text = format!("error: {message}");
        Self { kind: Kind::Run, text, problems: Vec::new() }
    }

    /// A run that was interrupted and is at rest.
    pub(crate) fn interrupted(text: &str) -> Self {
        Self { kind: Kind::Interrupted, text: text.to_owned(), problems: Vec::new() }
    }

    /// A command that was interrupted before it printed anything.
    pub(crate) fn interrupted_early(path: &Path, message: &str) -> Self {
        let problem = Problem::new(Code::Interrupted, path, 0, message.to_owned());
        Self { problems: vec![problem], ..Self::interrupted(message) }
    }

    /// A program that is refused.
    pub(crate) fn program(diagnostics: &Diagnostics) -> Self {
        let problems = diagnostics.iter().map(Problem::from).collect();
        Self { kind: Kind::Refused, text: diagnostics.to_string(), problems }
    }

    /// An input that is refused for one reason, with its place.
    pub(crate) fn diagnostic(diagnostic: &Diagnostic) -> Self {
        let problems = vec![Problem::from(diagnostic)];
        Self { kind: Kind::Refused, text: diagnostic.to_string(), problems }
    }

    /// With what was told before, for whoever reads documents.
    pub(crate) fn beside(mut self, told: Vec<Problem>) -> Self {
        self.problems.splice(0..0, told);
        self
    }

    /// No plan fits.
    pub(crate) fn no_plan(loaded: &Loaded, refusal: &Refusal) -> Self {
        if refusal.searched == Searched::Unproven {
            return Self::unproven(&loaded.file, refusal);
        }
        let binding = refusal.binding.clone();
        let mut problem = Problem::new(Code::NoPlan, &loaded.file, 0, binding);
        let lines = refusal.repairs.iter().map(|repair| repair.lines.join(", "));
        problem.hint = lines.collect::<Vec<_>>().join("; ");
        problem.repairs = refusal.repairs.iter().map(RepairRow::from).collect();
        let lines = &loaded.lines;
        let place = refusal.blamed.iter().find_map(|key| lines.of_key(key).next());
        let place = place.map(|line| &line.place);
        if let Some(SourcePlace { file, line, column, .. }) = place {
            problem.file.clone_from(file);
            (problem.line, problem.column) = (u64::from(*line), u64::from(*column));
        }
        let text = format!("error: {refusal}");
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let place = place.map_or(String::new(), SourcePlace::to_string);
        let text = format!("{first}\n{place}{rest}");
        Self { kind: Kind::Refused, text, problems: vec![problem] }
    }

    /// A search that found no plan.
    pub(crate) fn unplanned(loaded: &Loaded, none: &NoPlan) -> Self {
        match none {
            NoPlan::Refused(refusal) => Self::no_plan(loaded, refusal),
            NoPlan::Interrupted => {
                Self::interrupted_early(&loaded.file, &none.to_string())
            }
        }
    }

    /// A plan file that is refused.
    pub(crate) fn plan_file(path: &Path, mistakes: &PlanMistakes) -> Self {
        let of = |m: &PlanMistake| {
            Problem::new(Code::Plan, path, m.line as u64, m.message.clone())
        };
        Self::listed(mistakes.0.iter().map(of).collect())
    }

    /// Lists that are no training step.
    pub(crate) fn lists(path: &Path, mistakes: &[ListMistake]) -> Self {
        let of = |mistake: &ListMistake| {
            let line = mistake.line as u64;
            let mut problem =
                Problem::new(Code::Lists, path, line, mistake.message.clone());
            problem.column = mistake.column as u64;
            problem.hint.clone_from(&mistake.hint);
            problem
        };
        let mut told: Vec<Problem> = mistakes.iter().take(LISTED_MAX).map(of).collect();
        told.extend(further(path, Code::Lists, mistakes.len() - told.len(), "mistakes"));
        Self::listed(told)
    }

    /// A schedule file that is refused.
    pub(crate) fn schedule_file(path: &Path, errors: &FileErrors) -> Self {
        let of = |error: &roundelay::parts::schedule::FileError| {
            let mut problem = Problem::new(
                Code::Schedule,
                path,
                error.line as u64,
                error.message.clone(),
            );
            problem.column = error.column as u64;
            problem.hint.clone_from(&error.hint);
            problem
        };
        Self::listed(errors.iter().map(of).collect())
    }

    /// A schedule that breaks a rule, with the lines of its file.
    pub(crate) fn violations(
        path: &Path,
        violations: &Violations,
        lines: &Lines,
    ) -> Self {
        let mut of_call = None;
        let mut told = Vec::new();
        for violation in violations.iter() {
            let culprit = violation.culprit();
            let found = culprit.and_then(|culprit| lines.line(culprit));
            let line = found.unwrap_or(0) as u64;
            if let (Some(Culprit::Call(..)), Some(_)) = (culprit, found) {
                of_call.get_or_insert(told.len());
            }
            told.push(Problem::new(Code::Check, path, line, violation.to_string()));
        }
        if let Some(first) = of_call {
            told[first].hint = OTHER_CALLS.to_owned();
        }
        let unlisted = violations.total() - told.len();
        told.extend(further(path, Code::Check, unlisted, "violations"));
        Self::listed(told)
    }

    /// A plan that does not become a schedule.
    pub(crate) fn compile(loaded: &Loaded, error: &CompileError) -> Self {
        match error {
            CompileError::Check(violations) => {
                Self::violations(&loaded.file, violations, &Lines::default())
            }
            CompileError::Unproven(unproven) => Self::unproven(&loaded.file, unproven),
            CompileError::Exactness(refused) => {
                Self::diagnostic(&broken::exactness(refused, loaded))
            }
            CompileError::Memory(shortfalls) => Self::memory(loaded, shortfalls),
            CompileError::Lower(_) | CompileError::Price(_) => {
                Self::refused(Code::Compile, &loaded.file, error.to_string())
            }
        }
    }

    /// A plan that takes more memory than there is, or than the program allows.
    fn memory(loaded: &Loaded, shortfalls: &[Shortfall]) -> Self {
        let of = |short: &Shortfall| match broken::memory(short, loaded) {
            Some(diagnostic) => Problem::from(&diagnostic),
            None => Problem::new(Code::Memory, &loaded.file, 0, short.to_string()),
        };
        Self::listed(shortfalls.iter().map(of).collect())
    }

    fn listed(problems: Vec<Problem>) -> Self {
        let text = problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n");
        Self { kind: Kind::Refused, text, problems }
    }
}
