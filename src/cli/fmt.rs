//! `fmt`: a program file in its canonical form.

use super::{args::FmtArgs, failure::Failure, load};

pub(super) fn fmt(args: &FmtArgs) -> Result<(), Failure> {
    let text = load::program_text(&args.file)?;
    let formatted = roundelay::format(&text)
        .map_err(|refused| Failure::unnamed_program(&args.file, &refused))?;
    if formatted == text {
        return Ok(());
    }
    if args.check {
        let message = format!("`{}` is not formatted", args.file.display());
        return Err(Failure::refused("format", &args.file, message));
    }
    load::replace(&args.file, &formatted)
}
