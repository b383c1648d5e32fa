//! What brings ranks of several processes together.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::api::{Api, RawId};
use crate::error::NcclError;

/// The id of a job that is yet to be joined: made in one process, and handed to the others as text (Base64, by `Display` and
/// `FromStr`) or as bytes. Good for one [`join`](crate::Communicators::join).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl UniqueId {
    /// The size of an id.
    pub const BYTES: usize = 128;

    /// A new id. This process then listens for the ranks to come, and must live until they have joined.
    pub fn new() -> Result<UniqueId, NcclError> {
        UniqueId::by(Api::get()?)
    }

    pub(crate) fn by(api: &Api) -> Result<UniqueId, NcclError> {
        let mut id = RawId([0; UniqueId::BYTES]);
        // SAFETY: it writes the 128 bytes of the id.
        api.check("ncclGetUniqueId", None, unsafe { (api.functions.unique_id)(&mut id) })?;
        Ok(UniqueId(id.0))
    }

    /// The id that another process gave as bytes.
    pub fn from_bytes(bytes: [u8; UniqueId::BYTES]) -> UniqueId {
        UniqueId(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; UniqueId::BYTES] {
        &self.0
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({self})")
    }
}

impl FromStr for UniqueId {
    type Err = NcclError;

    /// Reads what `Display` wrote; space around it is left out.
    fn from_str(text: &str) -> Result<UniqueId, NcclError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|error| NcclError::UniqueId(error.to_string()))?;
        let length = bytes.len();
        let bytes = bytes.try_into().map_err(|_| NcclError::UniqueId(format!("it is of {length} bytes")))?;
        Ok(UniqueId(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_goes_through_text_and_back() {
        let id = UniqueId::from_bytes(std::array::from_fn(|i| (i * 7) as u8));
        let text = id.to_string();
        assert_eq!(text.len(), 172);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(format!("  {text}\n").parse(), Ok(id));
        assert_eq!(format!("{id:?}"), format!("UniqueId({text})"));
    }

    #[test]
    fn a_text_that_is_no_id_is_refused() {
        let text = UniqueId::from_bytes([0xff; 128]).to_string();
        let longer = STANDARD.encode([0; 129]);
        for (bad, why) in [
            ("", "it is of 0 bytes"),
            ("AAAA", "it is of 3 bytes"),
            (&longer, "it is of 129 bytes"),
            (&text[..171], "padding"),
            (&text.replacen('/', "?", 1), "63"),
            (&text.replacen('/', "_", 1), "95"),
        ] {
            let error = bad.parse::<UniqueId>().unwrap_err().to_string();
            assert!(error.contains("128 bytes in Base64") && error.contains(why), "{bad}: {error}");
        }
    }
}
