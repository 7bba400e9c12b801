//! Which neighbouring calls of a stage are one call, as plain data: rules by name, and the
//! operations of the model where each is applied. What a rule says is up to the compiler.

use crate::spelled::spelled;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

spelled! {
    /// The name of a rule that makes one call of two neighbouring ones.
    pub enum Rewrite: "rewrite" {
        /// A product and its bias.
        Affine = "affine",
        /// An affine map and the rectifier behind it.
        AffineRelu = "affine_relu",
        /// An affine map and the GELU behind it.
        AffineGelu = "affine_gelu",
        /// An affine map and the GELU by a hyperbolic tangent behind it.
        AffineGeluTanh = "affine_gelu_tanh",
        /// An affine map and what is added to it.
        AffineAdd = "affine_add",
        /// The gradient of what goes into an affine map, and that of the GELU by a hyperbolic
        /// tangent before the map.
        MatmulGeluTanhBackward = "matmul_gelu_tanh_backward",
        /// The gradients of an affine map's weight and of its bias.
        AffineGradients = "affine_gradients",
        /// A batch norm and what is added to it.
        BatchNormAdd = "batch_norm_add",
        /// A batch norm and the rectifier behind it.
        BatchNormRelu = "batch_norm_relu",
        /// The gradients of a rectifier and of the batch norm before it.
        BatchNormBackwardRelu = "batch_norm_backward_relu",
        /// What was summed and scattered over rows is gathered again: a sum.
        GatherOfScatter = "gather_of_scatter",
        /// What all rows have is cut into parts and gathered again: it is there.
        GatherOfPart = "gather_of_part",
        /// Each row takes its part of a sum over rows.
        PartOfSum = "part_of_sum",
    }
}

/// Operations of a model, by their numbers. Rules name those whose calls come second of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites(BTreeSet<u32>);

/// The rewrites of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rewrites(BTreeMap<Rewrite, Sites>);

impl Rewrites {
    /// Applies a rule at an operation.
    pub fn insert(&mut self, rewrite: Rewrite, site: u32) {
        self.0.entry(rewrite).or_default().insert(site);
    }
    /// Whether a rule is applied at an operation.
    pub fn contains(&self, rewrite: Rewrite, site: u32) -> bool {
        self.0.get(&rewrite).is_some_and(|sites| sites.0.contains(&site))
    }
    /// Whether nothing is rewritten.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The rules that are applied, each with its sites.
    pub fn iter(&self) -> impl Iterator<Item = (Rewrite, &Sites)> {
        self.0.iter().map(|(rewrite, sites)| (*rewrite, sites))
    }
    /// The first rule and site that others lack.
    pub fn beyond(&self, others: &Self) -> Option<(Rewrite, u32)> {
        let all = self
            .iter()
            .flat_map(|(rewrite, sites)| sites.iter().map(move |site| (rewrite, site)));
        let mut lacking = all.filter(|(rewrite, site)| !others.contains(*rewrite, *site));
        lacking.next()
    }
}

impl Sites {
    /// Adds an operation.
    pub(crate) fn insert(&mut self, site: u32) {
        self.0.insert(site);
    }

    /// Their numbers, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, site) in self.iter().enumerate() {
            let before = if index == 0 { "" } else { " " };
            write!(f, "{before}o{site}")?;
        }
        Ok(())
    }
}

impl FromStr for Sites {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sites = BTreeSet::new();
        for word in text.split_whitespace() {
            let number = word.strip_prefix('o').and_then(|digits| digits.parse().ok());
            let number = number.filter(|number: &u32| word == format!("o{number}"));
            let number = number.ok_or_else(|| {
                format!("expected operations like `o4 o7`, found `{word}`")
            })?;
            if !sites.insert(number) {
                return Err(format!("`{word}` stands twice"));
            }
        }
        match sites.is_empty() {
            true => Err("no operation is named: delete the line".to_owned()),
            false => Ok(Self(sites)),
        }
    }
}

impl Serialize for Sites {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_read_back_as_written() {
        let mut rewrites = Rewrites::default();
        for site in [17, 4, 4] {
            rewrites.insert(Rewrite::AffineAdd, site);
        }
        let (_, sites) = rewrites.iter().next().expect("it was inserted");
        assert_eq!(sites.to_string(), "o4 o17");
        assert_eq!(sites.to_string().parse(), Ok(sites.clone()));
        for (text, wrong) in [
            ("", "no operation is named: delete the line"),
            ("4", "expected operations like `o4 o7`, found `4`"),
            ("o+4", "expected operations like `o4 o7`, found `o+4`"),
            ("o04", "expected operations like `o4 o7`, found `o04`"),
            ("o4 o4", "`o4` stands twice"),
        ] {
            assert_eq!(text.parse::<Sites>(), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn what_others_lack_is_found() {
        let [mut one, mut other] = [Rewrites::default(), Rewrites::default()];
        one.insert(Rewrite::Affine, 3);
        one.insert(Rewrite::AffineAdd, 5);
        other.insert(Rewrite::Affine, 3);
        assert_eq!(one.beyond(&other), Some((Rewrite::AffineAdd, 5)));
        assert_eq!(other.beyond(&one), None);
    }
}
