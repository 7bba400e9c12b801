//! `devices --compile`: machine code of all kernels, for runs to come.

use super::super::{
    FORMAT, Form, args::DevicesArgs, failure::Failure, print, print_json,
};
use roundelay::{Came, Compilation};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    device: String,
    architecture: &'a str,
    folder: &'a Path,
    sources: Vec<Source<'a>>,
}

#[derive(Serialize)]
struct Source<'a> {
    file: &'a str,
    /// None where the cache had it.
    compile_s: Option<f64>,
}

pub(super) fn compile(args: &DevicesArgs) -> Result<(), Failure> {
    let made = roundelay::compile_kernels().map_err(|error| Failure::gpus(&error))?;
    match args.json {
        true => print_json(&document(&made), Form::Document),
        false => print(&said(&made)),
    }
}

fn document(made: &Compilation) -> Document<'_> {
    let sources = made.sources.iter().map(|(file, came)| Source {
        file,
        compile_s: match came {
            Came::Kept => None,
            Came::Compiled(time) => Some(time.as_secs_f64()),
        },
    });
    Document {
        format: FORMAT,
        device: made.device.to_string(),
        architecture: &made.architecture,
        folder: &made.folder,
        sources: sources.collect(),
    }
}

fn said(made: &Compilation) -> String {
    let Compilation { device, architecture, folder, sources } = made;
    let new = sources.iter().filter(|(_, came)| *came != Came::Kept).count();
    let (all, folder) = (sources.len(), folder.display());
    format!(
        "{device}: machine code of {all} files for {architecture} is in {folder}; {new} of them were \
         compiled now\n"
    )
}
