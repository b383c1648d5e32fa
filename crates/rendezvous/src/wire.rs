//! What crosses a connection: who is there, proof of the token, and then messages.
//!
//! Both sides begin with 40 bytes: `squall`, the protocol's version as two bytes, a nonce of 32. A member then proves that it knows the
//! token, by an HMAC-SHA256 over both nonces, and rank 0 does the same: the token itself never crosses. All that follows are frames: a
//! length of four bytes, the highest first, and JSON.

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::error::MeetError;

/// The protocol's version: another speaks otherwise.
pub(crate) const PROTOCOL: u16 = 1;

/// The longest frame from who is not admitted, in bytes.
pub(crate) const SHORT: usize = 1 << 16;

/// The longest frame of all.
pub(crate) const LONG: usize = 64 << 20;

const MAGIC: [u8; 6] = *b"squall";

/// Random bytes, new for every connection.
pub(crate) type Nonce = [u8; 32];

/// Proof of the token.
pub(crate) type Proof = [u8; 32];

/// A new nonce.
pub(crate) fn nonce() -> Result<Nonce, MeetError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| MeetError::System(format!("no random bytes: {error}")))?;
    Ok(bytes)
}

/// Which side proves: neither can send back what the other said.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Member,
    RankZero,
}

fn mac(token: &[u8], side: Side, member: &Nonce, rank_zero: &Nonce) -> Hmac<Sha256> {
    // A key of any length is taken, so that there is no error to tell.
    let mut mac = Hmac::<Sha256>::new_from_slice(token).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(match side {
        Side::Member => b"squall member",
        Side::RankZero => b"squall rank 0",
    });
    mac.update(member);
    mac.update(rank_zero);
    mac
}

/// Proves that a side knows the token.
pub(crate) fn proof(token: &[u8], side: Side, member: &Nonce, rank_zero: &Nonce) -> Proof {
    mac(token, side, member, rank_zero).finalize().into_bytes().into()
}

/// Whether a side has proven it. Takes as long for every wrong proof.
pub(crate) fn is_proven(token: &[u8], side: Side, member: &Nonce, rank_zero: &Nonce, proof: &Proof) -> bool {
    mac(token, side, member, rank_zero).verify_slice(proof).is_ok()
}

/// Sends the first 40 bytes.
pub(crate) fn greet(stream: &mut impl Write, nonce: &Nonce) -> io::Result<()> {
    let mut bytes = [0; 40];
    bytes[..6].copy_from_slice(&MAGIC);
    bytes[6..8].copy_from_slice(&PROTOCOL.to_be_bytes());
    bytes[8..].copy_from_slice(nonce);
    stream.write_all(&bytes)
}

/// Why the first bytes of the other side are not what they should be.
pub(crate) enum Ungreeted {
    /// It is no squall.
    Stranger,
    /// It speaks another version.
    Protocol(u16),
    Io(io::Error),
}

/// Reads the other side's first 40 bytes. Stops at the first that is wrong, so that a stranger who says little is known, too.
pub(crate) fn greeted(stream: &mut impl Read) -> Result<Nonce, Ungreeted> {
    let mut magic = [0; 6];
    for (place, wanted) in MAGIC.iter().enumerate() {
        stream.read_exact(&mut magic[place..=place]).map_err(Ungreeted::Io)?;
        if magic[place] != *wanted {
            return Err(Ungreeted::Stranger);
        }
    }
    let mut version = [0; 2];
    stream.read_exact(&mut version).map_err(Ungreeted::Io)?;
    let version = u16::from_be_bytes(version);
    if version != PROTOCOL {
        return Err(Ungreeted::Protocol(version));
    }
    let mut nonce = [0; 32];
    stream.read_exact(&mut nonce).map_err(Ungreeted::Io)?;
    Ok(nonce)
}

/// A message as a frame.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > LONG {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Reads a message of at most so many bytes.
pub(crate) fn read<T: DeserializeOwned>(stream: &mut impl Read, longest: usize) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > longest {
        let text = format!("a message of {length} bytes, where {longest} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // Grows as bytes come: a length alone costs no memory.
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Bytes as text in JSON.
pub(crate) mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Some bytes, which are text in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Bytes(#[serde(with = "bytes")] pub(crate) Vec<u8>);

/// What a member tells rank 0's process once it is admitted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromMember {
    /// A part of what `count` are to share under `key`, at `place`.
    Share { key: String, count: u32, place: u32, bytes: Bytes },
    /// Its group ended early.
    Ending { kind: EndingWord, text: String },
    /// It has nothing more to do with the others.
    Bye,
}

/// What rank 0's process tells a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromRankZero {
    /// All have come, and agree. `local_rank` is the number of ranks on this host before the member's first.
    Met { processes: u32, place: u32, local_rank: u32 },
    /// They will not meet: the same for all, or this member's own.
    Refused(MeetError),
    /// What was shared under `key`, by place.
    Shared { key: String, all: Vec<Bytes> },
    /// The group of the process at `place` ended early.
    Ended { place: u32, kind: EndingWord, text: String },
    /// The process at `place` has nothing more to do with the others.
    Left { place: u32 },
    /// All have said goodbye.
    AllLeft,
}

/// [`squall_core::EndingKind`] as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "squall_core::EndingKind")]
enum EndingKindWord {
    Failed,
    TimedOut,
    Interrupted,
    Gone,
    Released,
}

/// A kind of ending, which is a word in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EndingWord(#[serde(with = "EndingKindWord")] pub(crate) squall_core::EndingKind);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_and_nonces_prove() {
        let (member, zero) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(member, zero);
        let proven = proof(b"secret", Side::Member, &member, &zero);
        assert!(is_proven(b"secret", Side::Member, &member, &zero, &proven));
        assert!(!is_proven(b"Secret", Side::Member, &member, &zero, &proven));
        assert!(!is_proven(b"", Side::Member, &member, &zero, &proven));
        assert!(!is_proven(b"secret", Side::RankZero, &member, &zero, &proven));
        assert!(!is_proven(b"secret", Side::Member, &zero, &member, &proven));
    }

    #[test]
    fn a_frame_comes_back_and_one_too_long_does_not() {
        let share = FromMember::Share { key: "k".into(), count: 2, place: 1, bytes: Bytes(vec![0, 255, 7]) };
        let bytes = frame(&share).unwrap();
        assert!(
            matches!(read(&mut &bytes[..], 1000).unwrap(), FromMember::Share { bytes: Bytes(b), .. } if b == [0, 255, 7])
        );
        let text = read::<FromMember>(&mut &bytes[..], 10).unwrap_err().to_string();
        assert!(text.ends_with("where 10 are the most"), "{text}");
        // A length of four gigabytes, and nothing behind it.
        assert!(read::<FromMember>(&mut &[0xff; 4][..], usize::MAX).is_err());
        assert!(read::<FromMember>(&mut &bytes[..bytes.len() - 1], 1000).is_err());
    }

    #[test]
    fn strangers_are_known_by_their_first_byte_that_is_wrong() {
        let greeting = |bytes: &[u8]| greeted(&mut &bytes[..]);
        let mut good = Vec::new();
        greet(&mut good, &[7; 32]).unwrap();
        assert!(matches!(greeting(&good), Ok(nonce) if nonce == [7; 32]));
        assert!(matches!(greeting(b"GET / HTTP/1.1"), Err(Ungreeted::Stranger)));
        assert!(matches!(greeting(b"squ"), Err(Ungreeted::Io(_))));
        good[7] = 9;
        assert!(matches!(greeting(&good), Err(Ungreeted::Protocol(9))));
    }
}
