//! What all ranks bring together, in their order.

use super::Control;
use crate::ranks::{trouble::Trouble, wire};
use serde::{Serialize, de::DeserializeOwned};

impl Control {
    /// What every rank brings, in their order; all ranks call this, equally often.
    ///
    /// # Errors
    /// When some rank fails or does not come in time.
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Trouble> {
        let shared = &self.shared;
        match self.collect(own)? {
            Some(all) => {
                let joined = wire::join(&all);
                (0..shared.links.len())
                    .try_for_each(|link| shared.send(link, &joined))?;
                Ok(all)
            }
            None => {
                let all = shared.receive(0)?;
                wire::split(&all).map_err(|error| {
                    shared.raise(shared.failed(&format!("rank 0 sent nonsense: {error}")))
                })
            }
        }
    }

    /// What every rank brings, in their order, on rank 0, and nothing on others; all ranks call
    /// this, equally often.
    ///
    /// # Errors
    /// When some rank fails or does not come in time.
    pub fn collect(&self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, Trouble> {
        let shared = &self.shared;
        if !shared.seat.is_first() {
            shared.send(0, &own)?;
            return Ok(None);
        }
        let mut all = vec![own];
        for link in 0..shared.links.len() {
            all.push(shared.receive(link)?);
        }
        Ok(Some(all))
    }

    /// As [`Control::collect`], of data that is sent as text.
    ///
    /// # Errors
    /// As [`Control::collect`], and when a rank does not understand another one.
    pub fn collect_as<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
    ) -> Result<Option<Vec<T>>, Trouble> {
        let failed = |error| self.misunderstood(&error);
        let all = self.collect(serde_json::to_vec(own).map_err(failed)?)?;
        let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes);
        let all = all.map(|all| all.iter().map(read).collect::<Result<_, _>>());
        all.transpose().map_err(failed)
    }

    /// As [`Control::gather`], of data that is sent as text.
    ///
    /// # Errors
    /// As [`Control::collect_as`].
    pub fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
    ) -> Result<Vec<T>, Trouble> {
        let failed = |error| self.misunderstood(&error);
        let all = self.gather(serde_json::to_vec(own).map_err(failed)?)?;
        let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes);
        all.iter().map(read).collect::<Result<_, _>>().map_err(failed)
    }

    /// What rank 0 makes of what every rank brings, in their order; all ranks call this, equally often.
    ///
    /// # Errors
    /// As [`Control::collect_as`].
    pub fn settle<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
        settled: impl FnOnce(Vec<T>) -> T,
    ) -> Result<T, Trouble> {
        let failed = |error| self.misunderstood(&error);
        let told = match self.collect_as(own)?.map(settled) {
            Some(settled) => serde_json::to_vec(&settled).map_err(failed)?,
            None => Vec::new(),
        };
        serde_json::from_slice(&self.gather(told)?[0]).map_err(failed)
    }

    fn misunderstood(&self, error: &serde_json::Error) -> Trouble {
        self.fail(&format!("it does not understand another rank: {error}"))
    }
}
