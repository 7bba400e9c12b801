//! `import`: a program for the model of a Hugging Face configuration.

use super::{
    FORMAT, Form, args::ImportArgs, failure::Failure, load, note, print, print_json,
    problem::Problem,
};
use roundelay::{ImportOptions, Imported, SourceFile};
use serde::Serialize;
use std::slice;

#[derive(Serialize)]
struct Document {
    format: u32,
    family: &'static str,
    parameters: u64,
    output: String,
    warnings: Vec<Problem>,
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let output = load::output(&args.output, slice::from_ref(&args.file))?;
    let path = args.file.display().to_string();
    let source = SourceFile::new(path, load::text(&args.file)?);
    let options = ImportOptions {
        sequence: args.seq,
        batch: args.batch,
        dtype: args.dtype,
        cluster: args.cluster,
        nodes: args.nodes,
        ignored: args.ignore.clone(),
    };
    let imported = roundelay::import(&source, &options);
    let imported = imported.map_err(|refused| Failure::program(&refused))?;
    for warning in &imported.warnings {
        note(&warning.to_string());
    }
    load::write(&output, &imported.text)?;
    tell(args, &imported)
}

fn tell(args: &ImportArgs, imported: &Imported) -> Result<(), Failure> {
    let Imported { family, parameters, warnings, .. } = imported;
    let output = args.output.display().to_string();
    if args.json {
        let document = Document {
            format: FORMAT,
            family,
            parameters: *parameters,
            output,
            warnings: warnings.iter().map(Problem::from).collect(),
        };
        return print_json(&document, Form::Document);
    }
    print(&format!("{family}: {parameters} parameters, written to {output}\n"))
}
