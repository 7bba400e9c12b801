//! One thing that is wrong, as text and in a document.

use roundelay::{
    Diagnostic,
    parts::{
        dsl::{self, Severity},
        planner::{PlanMistake, Repair},
        schedule::printable,
    },
};
use serde::{Serialize, Serializer};
use std::{fmt, path::Path};

/// One thing that is wrong, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    code: Code,
    severity: &'static str,
    pub(super) file: String,
    pub(super) line: u64,
    pub(super) column: u64,
    pub(super) message: String,
    pub(super) hint: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) repairs: Vec<RepairRow>,
}

/// A change with which a plan fits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RepairRow {
    lines: Vec<String>,
    amount: String,
    plan: String,
    step_time_s: f64,
}

impl From<&Repair> for RepairRow {
    fn from(repair: &Repair) -> Self {
        Self {
            lines: repair.lines.clone(),
            amount: repair.amount.clone(),
            plan: repair.plan.clone(),
            step_time_s: repair.step_time.0 as f64 / 1e9,
        }
    }
}

/// What kind of problem it is; `docs/diagnostics.schema.json` has how each is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// A schedule that breaks a rule.
    Check,
    /// A folder of checkpoints, or a file in it.
    Checkpoint,
    /// A plan that does not become a schedule.
    Compile,
    /// A GPU that cannot be used or that fails, or what of its driver and libraries is missing.
    Cuda,
    /// Data that cannot be used.
    Data,
    /// A type of numbers in which nothing here trains.
    Dtype,
    /// A file that cannot be read or written, or is something else.
    File,
    /// A program that is not formatted.
    Format,
    /// Ctrl-C before anything came of the command.
    Interrupted,
    /// Something is too large.
    Limit,
    /// Lists that are no training step.
    Lists,
    /// A plan that takes too much memory, or a machine that has too little left.
    Memory,
    /// No plan fits.
    NoPlan,
    /// A plan file that is refused.
    Plan,
    /// What cannot be measured.
    Profile,
    /// Processes that do not train together as they should.
    Ranks,
    /// A run that failed for another reason.
    Run,
    /// A text that is no schedule.
    Schedule,
    /// Signals that cannot be listened for.
    Signal,
    /// Arguments that do not go together.
    Usage,
    /// A file of weights.
    Weights,
    /// A mistake of a program or of a setting, which the language has kinds of.
    Program(dsl::Code),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Check => "check",
            Code::Checkpoint => "checkpoint",
            Code::Compile => "compile",
            Code::Cuda => "cuda",
            Code::Data => "data",
            Code::Dtype => "dtype",
            Code::File => "file",
            Code::Format => "format",
            Code::Interrupted => "interrupted",
            Code::Limit => "limit",
            Code::Lists => "lists",
            Code::Memory => "memory",
            Code::NoPlan => "no_plan",
            Code::Plan => "plan",
            Code::Profile => "profile",
            Code::Ranks => "ranks",
            Code::Run => "run",
            Code::Schedule => "schedule",
            Code::Signal => "signal",
            Code::Usage => "usage",
            Code::Weights => "weights",
            Code::Program(code) => return code.fmt(f),
        })
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Problem {
    /// A plan of another program that is taken all the same.
    pub(super) fn doubt(path: &Path, doubt: PlanMistake) -> Self {
        let problem = Self::new(Code::Plan, path, doubt.line as u64, doubt.message);
        Self { severity: "warning", ..problem }
    }

    /// A schedule whose routines or units were changed, which is taken all the same.
    pub(super) fn recoded(path: &Path) -> Self {
        let message = "the routines of this schedule, or the units that they train in, are not those \
                       that were compiled";
        let problem = Self::new(Code::Schedule, path, 0, message.to_owned());
        let hint = "what they compute is taken as it stands: it is proven who computes when and from \
                    what, not that this is what the model computes";
        Self { severity: "warning", hint: hint.to_owned(), ..problem }
    }

    /// Whether its message names the file, or there is none.
    fn tells_file(&self) -> bool {
        let named = |file: &str| self.message.contains(&format!("`{file}`"));
        self.file.is_empty() || named(&self.file) || named(&printable(&self.file))
    }

    pub(super) fn new(code: Code, path: &Path, line: u64, message: String) -> Self {
        Self {
            code,
            severity: "error",
            file: path.display().to_string(),
            line,
            column: 0,
            message,
            hint: String::new(),
            repairs: Vec::new(),
        }
    }
}

impl From<&Diagnostic> for Problem {
    fn from(diagnostic: &Diagnostic) -> Self {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        Self {
            code: Code::Program(diagnostic.code),
            severity,
            file: diagnostic.place.file.clone(),
            line: u64::from(diagnostic.place.line),
            column: u64::from(diagnostic.place.column),
            message: diagnostic.message.clone(),
            hint: diagnostic.hints.join("; "),
            repairs: Vec::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)?;
        let file = printable(&self.file);
        match (self.line, self.column) {
            (0, _) if self.tells_file() => {}
            (0, _) => write!(f, "\n --> {file}")?,
            (line, 0) => write!(f, "\n --> {file}:{line}")?,
            (line, column) => write!(f, "\n --> {file}:{line}:{column}")?,
        }
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\n  hint: {}", self.hint) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn a_file_moves_no_cursor_and_is_named_once() {
        let file = Path::new("a\u{1b}[2J");
        let problem =
            |message: &str| Problem::new(Code::File, file, 0, message.to_owned());
        assert_eq!(problem("wrong").to_string(), "error: wrong\n --> a\\u{1b}[2J");
        let named = "`a\\u{1b}[2J` is wrong";
        assert_eq!(problem(named).to_string(), format!("error: {named}"));
    }

    const OWN: [Code; 21] = [
        Code::Check,
        Code::Checkpoint,
        Code::Compile,
        Code::Cuda,
        Code::Data,
        Code::Dtype,
        Code::File,
        Code::Format,
        Code::Interrupted,
        Code::Limit,
        Code::Lists,
        Code::Memory,
        Code::NoPlan,
        Code::Plan,
        Code::Profile,
        Code::Ranks,
        Code::Run,
        Code::Schedule,
        Code::Signal,
        Code::Usage,
        Code::Weights,
    ];

    const PROGRAM: [dsl::Code; 15] = [
        dsl::Code::Syntax,
        dsl::Code::Limit,
        dsl::Code::UnknownName,
        dsl::Code::UnknownKey,
        dsl::Code::Duplicate,
        dsl::Code::Type,
        dsl::Code::Shape,
        dsl::Code::Unit,
        dsl::Code::Value,
        dsl::Code::Missing,
        dsl::Code::Import,
        dsl::Code::Table,
        dsl::Code::NotYet,
        dsl::Code::Unused,
        dsl::Code::Plan,
    ];

    #[test]
    fn the_schema_has_every_code_and_no_other() {
        let schema = include_str!("../../docs/diagnostics.schema.json");
        let schema: Value = serde_json::from_str(schema).expect("a schema is JSON");
        let path = "/properties/diagnostics/items/properties/code/enum";
        let listed = schema.pointer(path).and_then(Value::as_array).expect("it is there");
        let listed: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
        let all = OWN.into_iter().chain(PROGRAM.into_iter().map(Code::Program));
        let all: BTreeSet<String> = all.map(|code| code.to_string()).collect();
        assert_eq!(listed, all.iter().collect::<Vec<_>>());
    }
}
