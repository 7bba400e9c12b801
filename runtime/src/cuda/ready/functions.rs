//! Functions of sources, compiled and loaded when they are first asked for.

use super::{
    super::{
        CudaError,
        driver::{DeviceFacts, DriverError, Function, Module, Parameters, Stream},
    },
    code::{Binding, Step, give},
    compile::Compiler,
    precompile::{self, Compiled},
};
use crate::digest::Digest;
use roundelay_kernels::cuda::{self, Launch, Source};
use roundelay_schedule::Schedule;
use std::collections::BTreeMap;

/// Functions of ours with their launches, one after another.
#[derive(Default)]
pub(super) struct Loaded(Vec<(Function, Launch)>);

impl Loaded {
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.0.iter().map(|(_, launch)| launch)
    }

    /// Gives all of them to a stream.
    pub(super) fn give(
        &self,
        binding: &Binding<'_>,
        parameters: &mut Parameters,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        self.0.iter().try_for_each(|(function, launch)| {
            give((function, launch), binding, parameters, stream)
        })
    }

    /// Each as a step of its own.
    pub(super) fn into_steps(self) -> Vec<Step> {
        self.0
            .into_iter()
            .map(|(function, launch)| Step::Launch(function, launch))
            .collect()
    }
}

/// What is loaded on one device.
pub(super) struct Functions {
    compiler: Compiler,
    facts: DeviceFacts,
    compiled: Compiled,
    modules: BTreeMap<Source, Module>,
    /// With the shared memory that each was told to expect.
    known: BTreeMap<cuda::Function, (Function, u64)>,
}

impl Functions {
    /// Nothing yet.
    pub(super) fn new(facts: &DeviceFacts) -> Self {
        Self {
            compiler: Compiler::new(facts),
            facts: facts.clone(),
            compiled: Compiled::new(),
            modules: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Compiles all that a schedule asks for, on all cores.
    pub(super) fn compile_for(&mut self, schedule: &Schedule) {
        self.compiled = precompile::compile(schedule, &self.facts, &self.compiler);
    }

    /// The function of a launch.
    ///
    /// # Errors
    /// When its source is not compiled, or does not have it.
    pub(super) fn of(&mut self, launch: &Launch) -> Result<Function, CudaError> {
        let shared = launch.shared.0;
        match self.known.get(&launch.function) {
            Some((function, expected)) if *expected >= shared => return Ok(*function),
            Some(_) | None => {}
        }
        let cuda::Function { source, symbol } = &launch.function;
        let found = self.module(*source)?.function(symbol, shared);
        let function = found.map_err(|reason| CudaError::Function {
            file: source.name,
            symbol: symbol.clone(),
            device: self.facts.to_string(),
            reason,
        })?;
        self.known.insert(launch.function.clone(), (function, shared));
        Ok(function)
    }

    /// The functions of launches.
    ///
    /// # Errors
    /// As [`Functions::of`].
    pub(super) fn all(&mut self, launches: &[Launch]) -> Result<Loaded, CudaError> {
        let each = launches.iter().map(|launch| Ok((self.of(launch)?, launch.clone())));
        Ok(Loaded(each.collect::<Result<_, CudaError>>()?))
    }

    fn module(&mut self, source: Source) -> Result<&Module, CudaError> {
        if !self.modules.contains_key(&source) {
            let load = |code: &[u8]| {
                Module::new(code).map_err(|reason| {
                    let what = format!("the machine code of `{}`", source.name);
                    CudaError::refused(&self.facts, what, reason)
                })
            };
            let module = match self.compiled.remove(&source) {
                Some(code) => load(&code)?,
                None => self.compiler.load(source, load)?,
            };
            self.modules.insert(source, module);
        }
        Ok(&self.modules[&source])
    }
}

/// A digest of the sources of functions: others take another time.
pub(super) fn digest_of<'a>(of: impl IntoIterator<Item = &'a Launch>) -> u64 {
    let mut digest = Digest::new();
    for launch in of {
        digest.add(launch.function.source.text.as_bytes());
        digest.add(launch.function.symbol.as_bytes());
    }
    digest.value()
}
