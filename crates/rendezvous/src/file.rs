//! The file by which processes on one file system find rank 0.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::error::MeetError;
use crate::{host, wire};

/// The longest file that is read, in bytes.
const LONGEST: u64 = 1 << 16;

/// What rank 0 writes. Whoever can read the file can join the job; only its owner can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Says what the file is to who finds it.
    squall: String,
    host: String,
    /// What is equal on rank 0's machine.
    machine: String,
    address: Option<IpAddr>,
    port: u16,
    secret: String,
}

impl Note {
    pub(crate) fn new(port: u16) -> Result<Note, MeetError> {
        Ok(Note {
            squall: "where rank 0 of a job is met; stale once the job has begun".to_string(),
            host: host::name(),
            machine: host::identity(),
            address: host::address(),
            port,
            secret: STANDARD.encode(wire::nonce()?),
        })
    }

    /// The token of those who read this note and know the job's.
    pub(crate) fn token(&self, job: &[u8]) -> Vec<u8> {
        [job, b"\0", self.secret.as_bytes()].concat()
    }

    /// Where to look for rank 0.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        if self.machine == host::identity() {
            return vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port)];
        }
        let mut addresses: Vec<SocketAddr> =
            self.address.iter().map(|ip| SocketAddr::new(*ip, self.port)).collect();
        addresses.extend((self.host.as_str(), self.port).to_socket_addrs().into_iter().flatten());
        addresses.dedup();
        addresses
    }

    /// Puts it in place, whole, over one that an earlier job may have left.
    pub(crate) fn write(&self, path: &Path) -> Result<(), MeetError> {
        let failed = |error: io::Error| MeetError::File {
            path: path.display().to_string(),
            reason: format!("rank 0 cannot write it: {error}"),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Readable by its owner alone.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        serde_json::to_writer(&mut file, self).map_err(|error| failed(error.into()))?;
        file.flush().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Removes it where it is still this one.
    pub(crate) fn remove(&self, path: &Path) {
        if matches!(Note::read(path), Ok(Some(note)) if note == *self) {
            let _ = fs::remove_file(path);
        }
    }

    /// What is there; `None` where there is no file yet.
    pub(crate) fn read(path: &Path) -> Result<Option<Note>, MeetError> {
        let wrong = |reason: String| MeetError::File { path: path.display().to_string(), reason };
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let other = "it is there, and not what rank 0 of a job writes; name another, or remove it";
        if !found.is_file() || found.len() > LONGEST {
            return Err(wrong(other.to_string()));
        }
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|_| wrong(other.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_replaces_a_stale_one_and_is_removed_by_its_writer_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        assert_eq!(Note::read(&path), Ok(None));
        let (stale, fresh) = (Note::new(1).unwrap(), Note::new(2).unwrap());
        assert_ne!(stale.token(b"t"), fresh.token(b"t"));
        assert_ne!(fresh.token(b"t"), fresh.token(b"u"));
        stale.write(&path).unwrap();
        fresh.write(&path).unwrap();
        assert_eq!(Note::read(&path), Ok(Some(fresh.clone())));
        assert_eq!(fresh.addresses(), ["127.0.0.1:2".parse().unwrap()]);
        stale.remove(&path);
        assert!(path.exists());
        fresh.remove(&path);
        assert!(!path.exists());
        fs::write(&path, "hello").unwrap();
        let error = Note::read(&path).unwrap_err().to_string();
        assert!(error.contains("not what rank 0 of a job writes"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        Note::new(1).unwrap().write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
