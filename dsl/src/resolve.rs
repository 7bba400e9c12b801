//! Syntax to a [`Program`]: every name a handle, every shape and unit checked, repeats and blocks
//! expanded.

mod changed;
mod cluster;
mod component;
mod constant;
mod data;
mod definitions;
mod evaluate;
mod head;
mod hinted;
mod measured;
mod model;
mod objective;
mod optimizer;
mod order;
mod plan;
mod repeated;
mod resized;
mod scope;
mod settings;
mod stage;
mod train;

use crate::{
    Code, Diagnostic, Diagnostics, Files, Mistake, Model, Program, Search, SourceFile,
    Span, Train, import, limit, local,
    report::{Known, Report},
};
pub(crate) use cluster::plain;
use definitions::Definitions;
use measured::Shelf;
pub use measured::Tables;
use model::Resolved;
pub use objective::kind_of;

/// Reads a program: the file and all it imports.
///
/// Returns the program with warnings about what has no effect.
///
/// # Errors
/// All mistakes, in source order.
///
/// ```
/// let text = "
///     model line {
///         input x: real[batch, 4]
///         input y: real[batch, 1]
///         loss mse(linear(x, 1), y)
///     }";
/// let source = roundelay_dsl::SourceFile::new("line.rdl", text);
/// let (program, warnings) = roundelay_dsl::parse(&source, &roundelay_dsl::NoFiles)?;
/// assert_eq!(program.model.parameters.len(), 2);
/// assert!(warnings.is_empty());
/// # Ok::<(), roundelay_dsl::Diagnostics>(())
/// ```
pub fn parse(
    source: &SourceFile,
    files: &dyn Files,
) -> Result<(Program, Vec<Diagnostic>), Diagnostics> {
    parse_with(source, files, Tables::Read)
}

/// Reads a program like [`parse`], with or without the tables that its devices and links name.
/// Links without their table move 8 GB/s after 2 µs.
///
/// # Errors
/// All mistakes, in source order.
pub fn parse_with(
    source: &SourceFile,
    files: &dyn Files,
    tables: Tables,
) -> Result<(Program, Vec<Diagnostic>), Diagnostics> {
    let mut report = Report::default();
    let trees = import::load(source, files, &mut report);
    let definitions = Definitions::collect(&trees, &mut report);
    let mut shelf = Shelf::new(files, tables);
    let program = program(&definitions, &mut shelf, &mut report);
    report.finish(program)
}

fn program(
    definitions: &Definitions<'_>,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Program> {
    let model = model::resolve(definitions, report);
    let train = train::resolve(definitions, report);
    let dtype = train.as_ref().map_or(Train::default().dtype, |(train, _)| train.dtype);
    let target = cluster::resolve(definitions, dtype, shelf, report);
    let search = plan::resolve(definitions, shelf.files(), report);
    let Resolved { mut model, place, heads } = model?;
    let (train, no_decay) = train?;
    optimizer::spare(&mut model, &no_decay);
    shelf.check_dtype(&train, report);
    data::fit(&train, &model, place, report);
    bound_results(&model, &train, place, report);
    let search: Search = search?;
    let (target, profiles, prices) = target?;
    let program = Program { model, target, train, search, profiles, prices };
    optimizer::name_some(&program, &no_decay, report);
    plan::fit(definitions, &program, report);
    for (head, mistake) in local::idle(&program) {
        report.warning(heads[head], mistake);
    }
    objective::check(&program, definitions, report);
    Ok(program)
}

fn first(diagnostics: Diagnostics) -> Diagnostic {
    diagnostics.first().clone()
}

/// Results of a whole batch stay within the declared limits.
fn bound_results(model: &Model, train: &Train, place: Span, report: &mut Report) {
    let batch = u64::from(train.batch);
    let mut left = limit::ALL_ELEMENTS;
    for node in model.nodes.values() {
        let elements =
            node.shape.iter().try_fold(1u64, |all, e| all.checked_mul(e.at(batch)));
        let own = elements.filter(|own| *own <= limit::BATCH_ELEMENTS);
        let rest = own.and_then(|own| left.checked_sub(own));
        let Some(rest) = rest else {
            let (name, most) = match own {
                Some(_) => ("the whole model".to_owned(), limit::ALL_ELEMENTS),
                None => (format!("`{}`", node.name), limit::BATCH_ELEMENTS),
            };
            let message =
                format!("{name} has more than {most} elements for {batch} examples");
            let mistake = Mistake::new(Code::Limit, message);
            report.error(place, mistake.hint("take a smaller batch"));
            return;
        };
        left = rest;
    }
}
