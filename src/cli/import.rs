//! `import`: a program for the model of a Hugging Face configuration, and its weights for that program.

use super::{
    FORMAT, Form, args::ImportArgs, failure::Failure, load, note, print, print_json,
    problem::Problem,
};
use roundelay::{
    ImportOptions, Imported, OutputFile, SourceFile, Translation, TranslationError,
    WeightsError, WeightsFiles, WeightsMistake, parts::schedule::printable,
};
use serde::Serialize;
use std::{iter, path::Path, slice};

#[derive(Serialize)]
struct Document {
    format: u32,
    family: &'static str,
    parameters: u64,
    output: String,
    weights: Option<Written>,
    warnings: Vec<Problem>,
}

/// A file of weights.
#[derive(Serialize)]
struct Written {
    output: String,
    /// Arrays that the model has nothing of.
    left_out: Vec<String>,
}

/// Weights that are there, where they go, and what of them does not.
struct Weights<'a> {
    files: WeightsFiles,
    output: OutputFile,
    fresh: &'a [String],
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let output = load::output(&args.output, slice::from_ref(&args.file))?;
    let weights = weights(args)?;
    let options = ImportOptions {
        sequence: args.seq,
        batch: args.batch,
        dtype: args.dtype,
        cluster: args.cluster,
        nodes: args.nodes,
        ignored: args.ignore.clone(),
    };
    let imported = imported(&args.file, &options)?;
    for warning in &imported.warnings {
        note(&warning.to_string());
    }
    let weights = weights.map(|weights| weights.written(&imported)).transpose()?;
    load::write(&output, &imported.text)?;
    tell(args, &imported, weights)
}

/// What a configuration becomes.
pub(super) fn imported(
    file: &Path,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let source = SourceFile::new(file.display().to_string(), load::text(file)?);
    let imported = roundelay::import(&source, options);
    imported.map_err(|refused| Failure::program(&refused))
}

/// The weights that are asked for; they are none of the other files.
fn weights(args: &ImportArgs) -> Result<Option<Weights<'_>>, Failure> {
    let (Some(weights), Some(save)) = (&args.weights, &args.save) else {
        return Ok(None);
    };
    let files =
        WeightsFiles::open(weights).map_err(|wrong| Failure::weights(&wrong, ""))?;
    let program = load::output(&args.output, files.files())?;
    let output = load::output(save, files.files().iter().chain(iter::once(&args.file)))?;
    if program.is(&output) {
        let message = "the program and its weights are two files: `--save` names another";
        return Err(Failure::usage(save, message));
    }
    Ok(Some(Weights { files, output, fresh: &args.fresh }))
}

impl Weights<'_> {
    fn written(&self, imported: &Imported) -> Result<Written, Failure> {
        let translation = imported.weights.without(self.fresh);
        let translation = translation.map_err(|mistakes| {
            let message = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
            Failure::usage(self.files.path(), &message.join("; "))
        })?;
        let left_out = translation.ours(&self.files, &self.output);
        let left_out = left_out.map_err(|error| {
            Failure::untranslated(&error, &fresh_hint(&translation, &error))
        })?;
        if !left_out.is_empty() {
            note(&format!(
                "warning: arrays of `{}` are left out, because the model has no parameter for \
                 them:\n{}",
                self.files.path().display(),
                listed(&left_out)
            ));
        }
        Ok(Written { output: self.output.path().display().to_string(), left_out })
    }
}

/// What to do about a head that weights do not have, or have for other classes: its names here.
fn fresh_hint(translation: &Translation, error: &TranslationError) -> String {
    const NAMED: usize = 4;
    let TranslationError::Weights(WeightsError::Mismatch { mistakes, .. }) = error else {
        return String::new();
    };
    let own = mistakes.iter().filter_map(|mistake| match mistake {
        WeightsMistake::Missing { name, .. } | WeightsMistake::Shape { name, .. } => {
            Some(translation.parameters_of(name))
        }
        _ => None,
    });
    let names: Vec<String> =
        own.flatten().map(|own| format!("`--fresh {}`", own.name)).collect();
    if names.is_empty() {
        return String::new();
    }
    let more = if names.len() > NAMED { ", …" } else { "" };
    let named = names[..names.len().min(NAMED)].join(", ");
    format!(
        "what is to begin as it is drawn is left out, here and in `run`: {named}{more}"
    )
}

/// The first names, each on a line of its own.
fn listed(names: &[String]) -> String {
    const TOLD: usize = 10;
    let told = names.iter().take(TOLD).map(|name| format!("  {}", printable(name)));
    let more = names.len().saturating_sub(TOLD);
    let more = (more > 0).then(|| format!("  and {more} more"));
    told.chain(more).collect::<Vec<_>>().join("\n")
}

fn tell(
    args: &ImportArgs,
    imported: &Imported,
    weights: Option<Written>,
) -> Result<(), Failure> {
    let Imported { family, parameters, warnings, .. } = imported;
    let output = args.output.display().to_string();
    if args.json {
        let document = Document {
            format: FORMAT,
            family,
            parameters: *parameters,
            output,
            weights,
            warnings: warnings.iter().map(Problem::from).collect(),
        };
        return print_json(&document, Form::Document);
    }
    let weights = weights.map(|own| format!("; weights in {}", own.output));
    let weights = weights.unwrap_or_default();
    print(&format!("{family}: {parameters} parameters, written to {output}{weights}\n"))
}
