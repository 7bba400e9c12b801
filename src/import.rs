//! A program from a Hugging Face `config.json`.
//!
//! A family reads the fields of its configuration, with its defaults, into a model; every field
//! is read, known to change nothing, or refused. What is written is parsed again, so that its
//! parameters are counted and not guessed.
//!
//! This module must not know: how the model is planned or run.

mod activation;
mod bert;
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
mod names;
mod options;
mod pattern;
mod program;
mod rotary;
mod stretch;
mod unknown;

pub use options::{ImportCluster, ImportDtype, ImportOptions, Imported};

use family::{FAMILIES, Family};
use fields::Fields;
use model::Model;
use program::Program;
use roundelay_dsl::{
    self as dsl, Code, Diagnostic, Diagnostics, NoFiles, SourceFile, Span, format, parse,
};
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
    let dtype = options.dtype.unwrap_or_else(|| stored(&mut fields));
    let warnings = fields.finish(&options.ignored).map_err(refused)?;
    written(source, (options, dtype), family, &model, warnings)
}

/// What suits what the weights are stored in: `dtype`, which older files call `torch_dtype`.
fn stored(fields: &mut Fields<'_>) -> ImportDtype {
    let [new, old] = ["dtype", "torch_dtype"]
        .map(|field| fields.text(field).map(|text| (field, text)));
    let Some((field, text)) = new.or(old) else { return ImportDtype::F32 };
    match text.strip_prefix("torch.").unwrap_or(&text) {
        "bfloat16" | "float16" => ImportDtype::Bf16,
        "float32" => ImportDtype::F32,
        _ => {
            let message = format!(
                "`{field}` is `{text}`, but known are float32, bfloat16 and float16"
            );
            let hint = "say what the model trains in: `--dtype f32` or `--dtype bf16`";
            fields.refuse(field, Code::Value, message, hint);
            ImportDtype::F32
        }
    }
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
    (options, dtype): (&ImportOptions, ImportDtype),
    family: &Family,
    model: &Model,
    warnings: Vec<Diagnostic>,
) -> Result<Imported, Diagnostics> {
    let restated = |wrong: Diagnostics| restated(source, &wrong);
    let alone = alone(&model.text(), options.cluster).map_err(restated)?;
    let parameters = alone.model.trained_numbers();
    let program = Program {
        model,
        source: &source.path,
        parameters,
        warnings: warnings.iter().map(|warning| warning.message.as_str()).collect(),
        batch: options.batch,
        dtype,
        cluster: options.cluster,
        device_bytes: least_memory(&alone),
        nodes: options.nodes,
    };
    let text = format(&program.text()).map_err(restated)?;
    // The model has been read before, so that what is wrong now is what is said besides.
    let option = options.batch.map(|batch| SourceFile::new("--batch", batch.to_string()));
    let blamed = option.as_ref().unwrap_or(source);
    parse(&own(&text), &NoFiles).map_err(|wrong| self::restated(blamed, &wrong))?;
    let weights = model.published.translation(&alone.model);
    Ok(Imported { text, family: family.model_type, parameters, weights, warnings })
}

/// A model with the devices of a cluster.
fn alone(model: &str, cluster: ImportCluster) -> Result<dsl::Program, Diagnostics> {
    let text = format!("import \"{}\"\n{model}", program::path(cluster));
    parse(&own(&text), &NoFiles).map(|(program, _)| program)
}

/// Bytes that each device has for a model.
fn least_memory(alone: &dsl::Program) -> u64 {
    let devices = alone.target.devices.values();
    devices.map(|device| device.memory.0).min().unwrap_or_default()
}

fn own(text: &str) -> SourceFile {
    SourceFile::new("imported.rdl", text)
}

/// What the language refuses of a program, said of the configuration or the option that describes it.
fn restated(source: &SourceFile, wrong: &Diagnostics) -> Diagnostics {
    let restate = |said: &Diagnostic| {
        let message = format!("the model cannot be built: {}", said.message);
        let mut wrong = json::diagnostic(source, said.code, Span::default(), message);
        wrong.hints.clone_from(&said.hints);
        wrong.hints.push(format!("it would say `{}`", said.place.text.trim()));
        wrong
    };
    Diagnostics::new(wrong.iter().map(restate).collect())
}
