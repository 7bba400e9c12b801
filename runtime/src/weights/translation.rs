//! Weights of another program: the same numbers under other names, in arrays that lie otherwise.
//!
//! One description serves both directions. Numbers keep their element type, and no more than one array
//! is in memory at a time.

mod files;
mod recipe;

pub use files::WeightsFiles;

use super::{
    Arrays, Weights, WeightsError, WeightsMistake, WeightsNames, convert, fits,
    fresh::Fresh, names, order, strangers,
};
use crate::{OutputError, OutputFile};
use files::Stored;
use recipe::{Recipe, write};
use roundelay_schedule::{ParameterKind, nearest_hint};
use safetensors::Dtype;
use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    ops::Range,
    path::Path,
};
use thiserror::Error;

/// How the arrays of another program hold the parameters of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The arrays; together they hold every parameter once.
    pub twins: Vec<Twin>,
    /// What names of arrays end with that hold constants, of which nobody needs to be told.
    pub idle: Vec<String>,
    /// Arrays that are left out on purpose.
    pub skipped: BTreeSet<String>,
}

/// An array of another program, and whose numbers it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// What the other program calls it.
    pub name: String,
    /// What it has called it before; arrays are read under these names too.
    pub older: Vec<String>,
    /// The parameters, one behind the other along the first extent of each.
    pub parameters: Vec<TwinParameter>,
    /// What else is between the array and these.
    pub layout: TwinLayout,
}

/// A parameter that stands in an array of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinParameter {
    /// Global name.
    pub name: String,
    /// Its whole extents, in our order.
    pub shape: Vec<u64>,
    /// What these are.
    pub kind: ParameterKind,
}

/// How an array of another program differs from its parameters, but for their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwinLayout {
    /// In nothing: extents are those of a file of weights.
    Same,
    /// Matrices have columns where we have rows.
    Transposed,
    /// Extents of one stand before the others, so many.
    Within(usize),
    /// Numbers are less by one.
    LessOne,
}

/// Why weights are not translated.
#[derive(Debug, Error)]
pub enum TranslationError {
    /// What is read does not serve.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// What is made is not written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Translation {
    /// The same without arrays all of whose parameters begin as they are drawn ([`Weights::without`]).
    ///
    /// # Errors
    /// [`WeightsMistake::NothingFresh`] for each name that no parameter lies in.
    pub fn without(&self, fresh: &[String]) -> Result<Self, Vec<WeightsMistake>> {
        let fresh = Fresh::new(fresh);
        let mistakes = fresh.strangers(&self.parameters());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let begins =
            |twin: &&Twin| twin.parameters.iter().all(|own| fresh.has(&own.name));
        let (drawn, twins): (Vec<_>, Vec<_>) = self.twins.iter().partition(begins);
        let names = drawn.iter().flat_map(|twin| twin.names());
        let skipped = self.skipped.iter().chain(names).cloned().collect();
        let twins = twins.into_iter().cloned().collect();
        Ok(Self { twins, idle: self.idle.clone(), skipped })
    }

    /// The parameters of an array, by any of its names.
    pub fn parameters_of(&self, array: &str) -> &[TwinParameter] {
        let twin = self.twins.iter().find(|twin| twin.names().any(|name| name == array));
        twin.map_or(&[], |twin| &twin.parameters)
    }

    /// Descriptions that no array can keep.
    fn faults(&self) -> Vec<WeightsMistake> {
        let faulty = self.twins.iter().filter(|twin| !twin.is_sound());
        faulty
            .map(|twin| WeightsMistake::Description { name: twin.name.clone() })
            .collect()
    }

    /// The names of all parameters.
    fn parameters(&self) -> BTreeSet<&str> {
        let own = self.twins.iter().flat_map(|twin| &twin.parameters);
        own.map(|own| own.name.as_str()).collect()
    }

    /// Writes weights of the other program as a file of weights. Numbers that are less by one become f32,
    /// unless they are f64, because the sum may need more digits than 16 bits have. Returns which arrays
    /// are left out, but for constants and those that are skipped.
    ///
    /// # Errors
    /// [`WeightsError::Mismatch`] with everything that does not fit, or with descriptions that no array can
    /// keep; [`WeightsError::Read`], and those of [`OutputFile::write`].
    pub fn ours(
        &self,
        from: &WeightsFiles,
        to: &OutputFile,
    ) -> Result<Vec<String>, TranslationError> {
        refuse(from.path(), self.faults(), WeightsNames::Own)?;
        let (mut recipes, mut mistakes) = (BTreeMap::new(), Vec::new());
        let mut taken = BTreeSet::new();
        for twin in &self.twins {
            match twin.found(from) {
                Ok((name, stored)) => {
                    taken.insert(name);
                    recipes.extend(twin.own_recipes(stored));
                }
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let is_missing =
            |mistake: &&WeightsMistake| matches!(mistake, WeightsMistake::Missing { .. });
        let missing = mistakes.iter().filter(is_missing).count();
        let names = match 2 * missing > self.twins.len() {
            true => WeightsNames::Other,
            false => WeightsNames::Own,
        };
        refuse(from.path(), mistakes, names)?;
        write(&recipes, to)?;
        let is_told = |name: &&String| {
            let is_idle = self.idle.iter().any(|end| name.ends_with(end));
            !taken.contains(name.as_str()) && !is_idle && !self.skipped.contains(*name)
        };
        Ok(from.names().filter(is_told).cloned().collect())
    }

    /// Writes a file of weights, or the newest parameters of a checkpoint, as one safetensors file of the
    /// other program. Heads of units are left out.
    ///
    /// # Errors
    /// As [`Translation::ours`].
    pub fn theirs(
        &self,
        from: &Weights,
        to: &OutputFile,
    ) -> Result<(), TranslationError> {
        refuse(&from.path, self.faults(), WeightsNames::Own)?;
        let arrays = from.arrays();
        let mut mistakes = strangers(&arrays, &self.parameters());
        let mut recipes = BTreeMap::new();
        for twin in &self.twins {
            match twin.stored(from, &arrays) {
                Ok(parts) => {
                    recipes.insert(twin.name.clone(), twin.other_recipe(from, parts));
                }
                Err(mistake) => mistakes.extend(mistake),
            }
        }
        let names = names(&arrays, &mistakes);
        refuse(&from.path, mistakes, names)?;
        write(&recipes, to)
    }
}

/// Nothing is written of weights with mistakes.
fn refuse(
    path: &Path,
    mistakes: Vec<WeightsMistake>,
    names: WeightsNames,
) -> Result<(), WeightsError> {
    match mistakes.is_empty() {
        true => Ok(()),
        false => {
            Err(WeightsError::Mismatch { path: path.to_path_buf(), mistakes, names })
        }
    }
}

impl TwinParameter {
    /// How many of its rows the array has.
    fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Its extents in a file of weights.
    fn shape_in_file(&self) -> Vec<u64> {
        order::shape_in_file(self.kind, &self.shape)
    }
}

impl Twin {
    /// All its names, the newest first.
    fn names(&self) -> impl Iterator<Item = &String> {
        iter::once(&self.name).chain(&self.older)
    }

    /// Rows of all its parameters.
    fn rows(&self) -> u64 {
        self.parameters.iter().map(TwinParameter::rows).sum()
    }

    /// Whether there can be such an array: parameters that differ in their rows alone, matrices where these
    /// are transposed, and no more bytes than memory has places.
    fn is_sound(&self) -> bool {
        let shapes: Vec<Vec<u64>> =
            self.parameters.iter().map(TwinParameter::shape_in_file).collect();
        let alike = shapes.windows(2).all(|two| {
            two[0].len() == two[1].len()
                && two[0].iter().skip(1).eq(two[1].iter().skip(1))
        });
        let rank = shapes.first().map_or(1, Vec::len);
        let bytes = |shape: &Vec<u64>| {
            let widest = size_of::<f64>() as u64;
            shape.iter().try_fold(widest, |all, extent| all.checked_mul(*extent))
        };
        let all = shapes.iter().try_fold(0_u64, |all, own| all.checked_add(bytes(own)?));
        alike
            && (self.layout != TwinLayout::Transposed || rank <= 2)
            && (self.parameters.len() < 2 || rank > 0)
            && all.is_some_and(|all| isize::try_from(all).is_ok())
    }

    /// The extents of the array.
    fn shape(&self) -> Vec<u64> {
        let first = self.parameters.first();
        let mut whole = first.map_or_else(|| vec![0], TwinParameter::shape_in_file);
        if let Some(rows) = whole.first_mut() {
            *rows = self.rows();
        }
        match self.layout {
            TwinLayout::Same | TwinLayout::LessOne => whole,
            TwinLayout::Transposed => whole.into_iter().rev().collect(),
            TwinLayout::Within(ones) => [vec![1; ones], whole].concat(),
        }
    }

    /// Rows and columns of all parameters together, where the array has them the other way round.
    fn turned(&self) -> Option<[u64; 2]> {
        match self.layout {
            TwinLayout::Transposed => {
                let [columns, rows] = self.shape().try_into().ok()?;
                Some([rows, columns])
            }
            TwinLayout::Same | TwinLayout::Within(_) | TwinLayout::LessOne => None,
        }
    }

    /// Where the array lies among files of the other program, and under which name.
    fn found<'a>(
        &self,
        files: &'a WeightsFiles,
    ) -> Result<(&'a str, &'a Stored), WeightsMistake> {
        let Some((name, stored)) = self.names().find_map(|name| files.get(name)) else {
            let name = self.name.clone();
            let hint = nearest_hint(&name, files.names().map(String::as_str));
            return Err(WeightsMistake::Missing { name, hint });
        };
        fits(name, &stored.place, self.shape()).map(|()| (name.as_str(), stored))
    }

    /// How each parameter comes from the array.
    fn own_recipes<'a>(
        &'a self,
        stored: &'a Stored,
    ) -> impl Iterator<Item = (String, Recipe<'a>)> {
        let mut first = 0;
        self.parameters.iter().map(move |own| {
            let rows = first..first + own.rows();
            first = rows.end;
            let dtype = match (self.layout, stored.place.dtype) {
                (TwinLayout::LessOne, Dtype::F64) => Dtype::F64,
                (TwinLayout::LessOne, _) => Dtype::F32,
                (_, dtype) => dtype,
            };
            let numbers = move || self.own_numbers(stored, &rows, dtype);
            (own.name.clone(), Recipe::new(dtype, &own.shape_in_file(), numbers))
        })
    }

    /// Rows of the parameters of the array.
    fn own_numbers(
        &self,
        stored: &Stored,
        rows: &Range<u64>,
        dtype: Dtype,
    ) -> Result<Vec<u8>, WeightsError> {
        let row = stored.place.length() / (self.rows() as usize).max(1);
        let bytes = rows.start as usize * row..rows.end as usize * row;
        if let Some([rows, columns]) = self.turned() {
            let size = (stored.place.dtype.bitsize() / 8) as u64;
            let turned = order::transposed(&stored.read()?, [columns, rows], size);
            return Ok(turned[bytes].to_vec());
        }
        let numbers = stored.part(bytes)?;
        Ok(match self.layout {
            TwinLayout::Same | TwinLayout::Transposed | TwinLayout::Within(_) => numbers,
            TwinLayout::LessOne => {
                convert::shifted([stored.place.dtype, dtype], &numbers, 1.0)
            }
        })
    }

    /// Where the parameters lie in a file of ours, all of one type.
    fn stored(
        &self,
        from: &Weights,
        arrays: &Arrays<'_>,
    ) -> Result<Vec<Stored>, Vec<WeightsMistake>> {
        let (mut parts, mut mistakes) = (Vec::<Stored>::new(), Vec::new());
        for own in &self.parameters {
            let kind = from.kind.as_stored(own.kind);
            let expected = order::shape_in_file(kind, &own.shape);
            match super::place(arrays, &own.name, expected) {
                Ok(place) => parts.push(Stored::new(&from.container, place)),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let dtypes =
            parts.windows(2).find(|two| two[0].place.dtype != two[1].place.dtype);
        if let Some([one, other]) = dtypes {
            let [one, other] =
                [one, other].map(|part| format!("{:?}", part.place.dtype).to_lowercase());
            let name = self.name.clone();
            mistakes.push(WeightsMistake::Mixed { name, one, other });
        }
        if mistakes.is_empty() { Ok(parts) } else { Err(mistakes) }
    }

    /// How the array comes from its parameters.
    fn other_recipe<'a>(&'a self, from: &'a Weights, parts: Vec<Stored>) -> Recipe<'a> {
        let dtype = parts.first().map_or(Dtype::F32, |part| part.place.dtype);
        let size = (dtype.bitsize() / 8) as u64;
        Recipe::new(dtype, &self.shape(), move || {
            let mut whole = Vec::new();
            for (own, part) in self.parameters.iter().zip(&parts) {
                let numbers = part.read()?.into();
                // What the file has in another order already is not turned again.
                let kind = match from.kind.as_stored(own.kind) == own.kind {
                    true => ParameterKind::Plain,
                    false => own.kind,
                };
                let numbers = order::to_file(kind, numbers, &own.shape, size);
                whole.extend_from_slice(&numbers);
            }
            Ok(match (self.turned(), self.layout) {
                (Some(extents), _) => order::transposed(&whole, extents, size),
                (None, TwinLayout::LessOne) => {
                    convert::shifted([dtype, dtype], &whole, -1.0)
                }
                (None, _) => whole,
            })
        })
    }
}

#[cfg(test)]
mod tests;
