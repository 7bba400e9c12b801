//! Reading programs, plans and schedules from files.

use super::{
    args::ProgramArgs,
    failure::Failure,
    note,
    problem::{Code, Problem},
};
use roundelay::{
    Checked, OutputFile, Program, ReadError, SourceFile, Unnameable, WriteError,
    parts::{
        dsl::{self, Files},
        runtime::{Written, data_files, refuse_among_data},
        schedule,
    },
};
use std::{
    cell::RefCell,
    fs,
    io::Read,
    iter,
    path::{Path, PathBuf},
};

/// Files above this size are refused.
const BYTES: u64 = 256 << 20;

/// A text file.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let file = fs::File::open(path).map_err(|error| Failure::file(path, &error))?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::file(path, &error))?;
    if bytes.len() as u64 > BYTES {
        let message = format!("`{}` is larger than {} MiB", path.display(), BYTES >> 20);
        return Err(Failure::refused(Code::Limit, path, message));
    }
    dsl::utf8(bytes).map_err(|dsl::NotUtf8 { line, column }| {
        let message = "this byte is not part of UTF-8 text";
        Failure::at(path, [line, column], message, "save the file as UTF-8")
    })
}

/// A program with its `--set` decisions.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The program.
    pub(super) program: Program,
    /// Its file.
    pub(super) file: PathBuf,
    /// All files that it is made of, its own first.
    pub(super) read: Vec<PathBuf>,
    /// Where it says what may be planned.
    pub(super) lines: dsl::PlanLines,
    /// What is odd about it.
    warnings: Vec<dsl::Diagnostic>,
}

impl Loaded {
    /// Prints its warnings.
    pub(super) fn warn(&self) {
        self.warnings.iter().for_each(|warning| note(&warning.to_string()));
    }

    /// All files that it is made of and that its data is read from; data that is not to be found is no
    /// file. `data` takes the place of the folder that the program names.
    pub(super) fn files(&self, data: Option<&Path>) -> impl Iterator<Item = PathBuf> {
        let of_data = move || data_files(&self.program.train.data, data);
        let of_data = iter::once_with(of_data).flatten().flatten();
        self.read.iter().cloned().chain(of_data)
    }

    /// A text file that is written at the end of long work: none of those that this is made of, and none
    /// that its data would take for its own the next time.
    pub(super) fn output(
        &self,
        path: &Path,
        data: Option<&Path>,
    ) -> Result<OutputFile, Failure> {
        let file = output(path, self.files(data))?;
        let among =
            refuse_among_data(&self.program.train.data, data, Written::File(path));
        among.map_err(|error| Failure::unwritten(&error))?;
        Ok(file)
    }
}

/// Files of the file system, and which of them were read.
struct Noted(RefCell<Vec<PathBuf>>);

impl Files for Noted {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.borrow_mut().push(path.into());
        dsl::Disk.read(path)
    }

    fn identity(&self, path: &str) -> String {
        dsl::Disk.identity(path)
    }
}

/// A program with its `--set` decisions; warnings are printed.
pub(super) fn program(args: &ProgramArgs) -> Result<Loaded, Failure> {
    program_with(args, dsl::Tables::Read)
}

/// A program like [`program`], with or without the tables that it names.
pub(super) fn program_with(
    args: &ProgramArgs,
    tables: dsl::Tables,
) -> Result<Loaded, Failure> {
    let loaded = parsed(args, program_text(&args.file)?, tables)?;
    loaded.warn();
    Ok(loaded)
}

/// A text that does not begin as schedules do.
pub(super) fn program_text(path: &Path) -> Result<String, Failure> {
    let text = text(path)?;
    if schedule::begins_schedule(&text) {
        let message = "this is a schedule file, not a program";
        let hint = "it has every decision made; `check`, `simulate`, `show`, `run`, `evaluate` and \
                    `data` take it";
        return Err(Failure::mistaken(path, message, hint));
    }
    Ok(text)
}

fn parsed(
    args: &ProgramArgs,
    text: String,
    tables: dsl::Tables,
) -> Result<Loaded, Failure> {
    let folder = args.file.parent().unwrap_or(Path::new(""));
    if folder.to_str().is_none() {
        return Err(Failure::unnameable(&Unnameable(folder.to_owned())));
    }
    let source = SourceFile::new(args.file.display().to_string(), text);
    let files = Noted(RefCell::new(vec![args.file.clone()]));
    let parsed = dsl::parse_set(&source, &files, tables, &args.set);
    let (program, warnings) = parsed.map_err(|refused| match refused {
        dsl::Refused::Program(mistakes) => Failure::program(&mistakes),
        dsl::Refused::Setting(mistake) => Failure::diagnostic(&mistake),
    })?;
    let lines = dsl::PlanLines::of(&source, &dsl::Disk, &args.set);
    let (file, read) = (args.file.clone(), files.0.into_inner());
    Ok(Loaded { program, file, read, lines, warnings })
}

/// A checked schedule; its data paths are relative to its own folder.
pub(super) fn schedule(path: &Path) -> Result<Checked, Failure> {
    let text = text(path)?;
    if dsl::begins_program(&text) {
        let message = "this is a program, not a schedule file";
        let hint = "`roundelay compile` makes a schedule file of it";
        return Err(Failure::mistaken(path, message, hint));
    }
    if dsl::begins_lists(&text) {
        let message = "these are lists of passes, not a schedule file";
        let hint = "`roundelay check` takes them from files whose names end with `.csv`";
        return Err(Failure::mistaken(path, message, hint));
    }
    checked(path, &text)
}

/// The text of a plan file.
pub(super) fn plan_text(path: &Path) -> Result<String, Failure> {
    let text = text(path)?;
    let found = match dsl::begins_program(&text) {
        true => "a program",
        false if schedule::begins_schedule(&text) => "a schedule file",
        false => return Ok(text),
    };
    let message = format!("this is {found}, not a plan file");
    Err(Failure::mistaken(
        path,
        &message,
        "`roundelay plan PROGRAM -o PLAN` writes plan files",
    ))
}

/// A schedule that was read and holds.
pub(super) fn checked(path: &Path, text: &str) -> Result<Checked, Failure> {
    roundelay::read_as(path, text).map_err(|error| match error {
        ReadError::File { path, source } => Failure::file(&path, &source),
        ReadError::Text { path, errors } => Failure::schedule_file(&path, &errors),
        ReadError::Check { path, violations, lines } => {
            Failure::violations(&path, &violations, &lines)
        }
        ReadError::Folder(folder) => Failure::unnameable(&folder),
    })
}

/// What is odd about a schedule that holds, which is printed.
pub(super) fn warned(path: &Path, schedule: &Checked) -> Option<Problem> {
    let warning = schedule.is_recoded().then(|| Problem::recoded(path));
    warning.inspect(|warning| note(&warning.to_string()))
}

/// What can be trained.
pub(super) enum Input {
    /// A program, to be planned.
    Program(Box<Loaded>),
    /// A schedule, which has every decision made.
    Schedule(Box<Checked>),
}

impl Input {
    /// Prints what is odd about what was read from this file.
    pub(super) fn warn(&self, path: &Path) {
        match self {
            Self::Program(loaded) => loaded.warn(),
            Self::Schedule(schedule) => drop(warned(path, schedule)),
        }
    }
}

/// A program or a schedule, by how the file begins, and by its extension where that does not say; whose
/// warnings are yet to be printed.
pub(super) fn input(args: &ProgramArgs) -> Result<Input, Failure> {
    let path = &args.file;
    let text = text(path)?;
    let named = path.extension().is_some_and(|own| own.eq_ignore_ascii_case("rdl"));
    let is_schedule = schedule::begins_schedule(&text);
    if !is_schedule && (dsl::begins_program(&text) || named) {
        let program = parsed(args, text, dsl::Tables::Read)?;
        return Ok(Input::Program(Box::new(program)));
    }
    if !is_schedule {
        let message = "this is neither a program nor a schedule file";
        let hint = "a program begins with an item, such as `model`, `import` or `train`, behind \
                    comments; a schedule file with `roundelay schedule`";
        return Err(Failure::mistaken(path, message, hint));
    }
    if !args.set.is_empty() {
        let message = "`--set` needs a program; a schedule has every decision made";
        return Err(Failure::usage(path, message));
    }
    checked(path, &text).map(|schedule| Input::Schedule(Box::new(schedule)))
}

/// A text file that is written at the end of long work, and is none of the files that this reads.
pub(super) fn output(
    path: &Path,
    read: impl IntoIterator<Item: AsRef<Path>>,
) -> Result<OutputFile, Failure> {
    OutputFile::beside(read, path).map_err(|error| Failure::unwritten(&error))
}

/// Writes a schedule file.
pub(super) fn write_schedule(
    file: &OutputFile,
    schedule: &Checked,
) -> Result<(), Failure> {
    roundelay::write_file(schedule, file).map_err(|error| match error {
        WriteError::Folder(folder) => Failure::unnameable(&folder),
        WriteError::Output(error) => Failure::unwritten(&error),
    })
}

/// Writes a text file.
pub(super) fn write(file: &OutputFile, text: &str) -> Result<(), Failure> {
    file.write(text.as_bytes()).map_err(|error| Failure::unwritten(&error))
}

/// Writes a text file that may be there.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OutputFile::new(path).map_err(|error| Failure::unwritten(&error))?;
    write(&file, text)
}
