//! `fmt`: a program file in its canonical form.

use super::{args::FmtArgs, failure::Failure, load, problem::Code};
use roundelay::SourceFile;

pub(super) fn fmt(args: &FmtArgs) -> Result<(), Failure> {
    let text = load::program_text(&args.file)?;
    let source = SourceFile::new(args.file.display().to_string(), text);
    let formatted = source.format().map_err(|refused| Failure::program(&refused))?;
    if formatted == source.text {
        return Ok(());
    }
    if args.check {
        let message = format!("`{}` is not formatted", args.file.display());
        return Err(Failure::refused(Code::Format, &args.file, message));
    }
    load::replace(&args.file, &formatted)
}
