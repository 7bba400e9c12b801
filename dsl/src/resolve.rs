//! Syntax to a [`Program`]: every name a handle, every shape and unit checked, repeats and blocks
//! expanded.

mod call;
mod changed;
mod cluster;
mod component;
mod constant;
mod cuts;
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
mod origins;
mod plan;
mod recompute;
mod repeated;
mod resized;
mod scope;
mod sections;
mod set;
mod settable;
mod settings;
mod stage;
mod tiers;
mod train;
mod unreached;

use crate::{
    Code, Diagnostic, Diagnostics, Files, Mistake, Model, Program, Search, SourceFile,
    Span, Train,
    held::Constant,
    import, limit, local,
    report::{Known, Report},
};
pub(crate) use cluster::plain;
pub(crate) use definitions::Definitions;
use measured::Shelf;
pub use measured::Tables;
use model::Resolved;
pub use objective::kind_of;
use roundelay_schedule::Float;
pub use sections::SECTIONS;
pub(crate) use set::Set;

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
    parse_set(source, files, tables, &[""; 0]).map_err(|refused| match refused {
        Refused::Program(diagnostics) => diagnostics,
        Refused::Setting(setting) => Diagnostics::new(vec![setting]),
    })
}

/// Why a program that is read with settings is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What is wrong with the program itself.
    Program(Diagnostics),
    /// The first setting that does not go with it.
    Setting(Diagnostic),
}

/// Reads a program like [`parse_with`] and sets one thing after another, as [`Program::set_all`] does;
/// warnings are about the program that this makes.
///
/// # Errors
/// All mistakes, in source order; without any, the first wrong setting.
pub fn parse_set(
    source: &SourceFile,
    files: &dyn Files,
    tables: Tables,
    settings: &[impl AsRef<str>],
) -> Result<(Program, Vec<Diagnostic>), Refused> {
    let mut report = Report::default();
    let trees = import::load(source, files, &mut report);
    let definitions = Definitions::collect(&trees, &mut report);
    let mut shelf = Shelf::new(files, tables);
    let asked = changed::asked(settings);
    let mut read = program(&definitions, asked, &mut shelf, &mut report);
    if let Ok((program, heads)) = &mut read {
        if report.errors() == 0 {
            program.set_all_from(settings, files).map_err(Refused::Setting)?;
        }
        for (head, mistake) in local::idle(program) {
            report.warning(heads[head], mistake);
        }
    }
    report.finish(read.map(|(program, _)| program)).map_err(Refused::Program)
}

/// A program, in the type that was asked for if one was, and where its heads were written.
fn program(
    definitions: &Definitions<'_>,
    asked: train::Asked,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<(Program, Vec<Span>)> {
    let model = model::resolve(definitions, report);
    let train = train::resolve(definitions, asked, report);
    let dtype = train.as_ref().map_or(Train::default().dtype, |(train, _)| train.dtype);
    let target = cluster::resolve(definitions, dtype, shelf, report);
    let search = plan::resolve(definitions, shelf.files(), report);
    let Resolved { mut model, places, heads, constants } = model?;
    let (train, no_decay) = train?;
    optimizer::spare(&mut model, &no_decay);
    shelf.check_dtype(&train, report);
    data::fit(&train, &model, &places, report);
    bound_results(&model, &train, places.model, report);
    hold(constants, train.dtype, report);
    let search: Search = search?;
    let cluster::Machines { target, profiles, prices, peaks } = target?;
    let program = Program { model, target, train, search, profiles, prices, peaks };
    optimizer::name_some(&program, &no_decay, report);
    plan::fit(definitions, &program, report);
    objective::check(&program, definitions, report);
    Ok((program, heads))
}

/// Kernels compute with the numbers that are written.
fn hold(
    constants: impl IntoIterator<Item = (Span, Constant)>,
    dtype: Float,
    report: &mut Report,
) {
    for (place, constant) in constants {
        if let Some(mistake) = constant.lost(dtype) {
            report.error(place, mistake);
        }
    }
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
