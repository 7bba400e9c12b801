//! Whose plan a file holds: the names of model and cluster stand below the decisions, so that
//! whoever reads it with another program hears that first.

use super::{PlanMistake, PlanMistakes};
use roundelay_dsl::Program;
use roundelay_schedule::read_yaml;
use std::collections::BTreeMap;

/// The keys of the names.
const KEYS: [&str; 2] = ["model", "cluster"];

/// The names in a file, each with its line, counted from one; files need not have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin([Option<(usize, String)>; 2]);

/// The names of a program, as lines of a file.
pub(super) fn lines(program: &Program) -> String {
    let named = KEYS.into_iter().zip(names(program)).filter(|(_, name)| is_plain(name));
    // A name may be a word that YAML has another meaning for.
    let line = |(key, name)| match read_yaml::<String>(name) {
        Ok(_) => format!("{key}: {name}\n"),
        Err(_) => format!("{key}: \"{name}\"\n"),
    };
    named.map(line).collect()
}

/// Whether a line begins with a key.
fn has_key(line: &str, key: &str) -> bool {
    line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
}

fn names(program: &Program) -> [&str; 2] {
    [&program.model.name, &program.target.name]
}

/// Whether a name is one of the language; programs that are built may have others.
fn is_plain(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

impl Origin {
    /// The names, and the text with empty lines in their places.
    ///
    /// # Errors
    /// The places where a key stands once more, or has no name behind it.
    pub(super) fn take(text: &str) -> Result<(Self, String), PlanMistakes> {
        let mut origin = Self::default();
        let mut rest = String::with_capacity(text.len());
        let mut mistakes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let noted = match KEYS.iter().position(|key| has_key(line, key)) {
                Some(place) => origin.note(place, index + 1, line),
                None => {
                    rest.push_str(line);
                    Ok(())
                }
            };
            let mistake = |message| PlanMistake { line: index + 1, message };
            mistakes.extend(noted.err().map(mistake));
            rest.push('\n');
        }
        if mistakes.is_empty() { Ok((origin, rest)) } else { Err(PlanMistakes(mistakes)) }
    }

    /// Reads the name behind a key.
    fn note(&mut self, place: usize, number: usize, line: &str) -> Result<(), String> {
        if let Some((first, _)) = &self.0[place] {
            return Err(format!(
                "`{}` is said twice, first in line {first}",
                KEYS[place]
            ));
        }
        let read: Result<BTreeMap<String, String>, _> = read_yaml(line);
        let read = read.map_err(|error| error.fault.hinted())?;
        self.0[place] = read.into_values().next().map(|name| (number, name));
        Ok(())
    }

    /// What is to be said of a program that is another one, where the plan does not go with it.
    pub(super) fn mistake(&self, program: &Program) -> Option<PlanMistake> {
        let (line, others) = self.others(program)?;
        let message = format!(
            "the plan is of another program and does not go with this one: it is for {others}; \
             plan this program, or read it with its own"
        );
        Some(PlanMistake { line, message })
    }

    /// The same where the plan goes with it.
    pub(super) fn doubt(&self, program: &Program) -> Option<PlanMistake> {
        let (line, others) = self.others(program)?;
        let message = format!(
            "the plan is of another program, though it goes with this one: it is for {others}; \
             nobody looked for the best plan of this one"
        );
        Some(PlanMistake { line, message })
    }

    /// The names that are not the program's, and the line of the first.
    fn others(&self, program: &Program) -> Option<(usize, String)> {
        let own = names(program);
        let known = self.0.iter().zip(own).zip(KEYS);
        let other = |((found, own), key): ((&Option<(usize, String)>, &str), _)| {
            let (line, name) = found.as_ref().filter(|(_, name)| name != own)?;
            Some((*line, format!("{key} `{name}`, and the program's is `{own}`")))
        };
        let others: Vec<(usize, String)> = known.filter_map(other).collect();
        let line = others.first()?.0;
        let told: Vec<&str> = others.iter().map(|(_, text)| text.as_str()).collect();
        Some((line, told.join("; for ")))
    }
}
