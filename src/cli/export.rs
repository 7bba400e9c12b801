//! `export`: weights of an imported program, under the names of Hugging Face.

use super::{
    FORMAT, Form, args::ExportArgs, failure::Failure, import, load, print, print_json,
};
use roundelay::{ImportDtype, ImportOptions, Weights};
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    format: u32,
    family: &'static str,
    arrays: usize,
    output: String,
}

pub(super) fn export(args: &ExportArgs) -> Result<(), Failure> {
    let output = load::output(&args.output, [&args.file, &args.weights])?;
    let options = ImportOptions {
        ignored: args.ignore.clone(),
        // Names and shapes do not depend on what is trained in, which a configuration need not say.
        dtype: Some(ImportDtype::F32),
        ..ImportOptions::default()
    };
    let imported = import::imported(&args.file, &options)?;
    let weights =
        Weights::open(&args.weights).map_err(|wrong| Failure::weights(&wrong, ""))?;
    let written = imported.weights.theirs(&weights, &output);
    written.map_err(|error| Failure::untranslated(&error, ""))?;
    let (family, arrays) = (imported.family, imported.weights.twins.len());
    let output = args.output.display().to_string();
    if args.json {
        let document = Document { format: FORMAT, family, arrays, output };
        return print_json(&document, Form::Document);
    }
    print(&format!("{family}: {arrays} arrays, written to {output}\n"))
}
