//! A program from a Hugging Face `config.json`.
//!
//! A family reads the fields of its configuration, with its defaults, into a model; every field
//! is read, known to change nothing, or refused. What is written is parsed again, so that its
//! parameters are counted and not guessed.
//!
//! This module must not know: how the model is planned or run.

mod activation;
mod call;
mod decoder;
mod encoder;
mod family;
mod fields;
mod gemma;
mod gpt;
mod inert;
mod json;
mod layer;
mod llama;
mod model;
mod options;
mod pattern;
mod program;
mod rotary;
mod unknown;

pub use options::{ImportOptions, Imported};

use family::{FAMILIES, Family};
use fields::Fields;
use model::Model;
use program::Program;
use roundelay_dsl::{Code, Diagnostic, Diagnostics, NoFiles, SourceFile, format, parse};
use serde_json::Value;

/// The names of the families that can be imported.
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.model_type)
}

/// A program for the model of a configuration.
///
/// # Errors
/// Every mistake: a text that is no JSON, a family that cannot be imported, fields that are
/// missing, of a wrong type, do not fit, cannot be expressed, or are not known.
pub fn import(
    source: &SourceFile,
    options: &ImportOptions,
) -> Result<Imported, Diagnostics> {
    let refused = |wrong: Vec<Diagnostic>| Diagnostics::new(wrong);
    let fields = json::fields(source).map_err(|wrong| refused(vec![wrong]))?;
    let mut fields = Fields::new(source, fields);
    let family = match family(&mut fields) {
        Ok(family) => family,
        Err((message, hint)) => {
            return Err(refused(fields.refused(
                "model_type",
                Code::UnknownName,
                message,
                &hint,
            )));
        }
    };
    let model = (family.read)(&mut fields, options);
    let warnings = fields.finish(&options.ignored).map_err(refused)?;
    written(source, options, family, &model, warnings)
}

/// The family that `model_type` names, or what to say.
fn family(fields: &mut Fields<'_>) -> Result<&'static Family, (String, String)> {
    let name = match fields.value("model_type") {
        Some(Value::String(name)) => name,
        Some(_) => return Err(unknown::untold("the field `model_type` must be a text")),
        None => return Err(unknown::untold("the field `model_type` is missing")),
    };
    let known = FAMILIES.iter().find(|family| family.model_type == name);
    known.ok_or_else(|| unknown::refusal(&name))
}

/// The program's text; the model alone is parsed first, to count its parameters.
fn written(
    source: &SourceFile,
    options: &ImportOptions,
    family: &Family,
    model: &Model,
    warnings: Vec<Diagnostic>,
) -> Result<Imported, Diagnostics> {
    let parameters = parameters(&model.text())?;
    let said = warnings.iter().map(|warning| warning.message.as_str()).collect();
    let (batch, path) = (options.batch, source.path.as_str());
    let program = Program { model, source: path, parameters, warnings: said, batch };
    let text = format(&program.text())?;
    parse(&SourceFile::new("imported.rdl", text.as_str()), &NoFiles)?;
    Ok(Imported { text, family: family.model_type, parameters, warnings })
}

/// Numbers that a model trains.
fn parameters(text: &str) -> Result<u64, Diagnostics> {
    let source = SourceFile::new("imported.rdl", text);
    let (program, _) = parse(&source, &NoFiles)?;
    let elements =
        program.model.parameters.values().map(|row| row.shape.iter().product::<u64>());
    Ok(elements.sum())
}
