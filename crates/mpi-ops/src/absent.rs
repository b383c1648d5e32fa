//! What there is in a build without MPI: the same names, and the reason.

use std::convert::Infallible;
use std::time::Instant;

use squall_core::DeviceError;

const HOW: &str = "libopenmpi-dev, openmpi-bin and libclang-dev, and build with `--features mpi`";

/// This process as a rank of MPI. There is none in a build without the feature `mpi`.
#[derive(Debug)]
pub struct Process(Infallible);

impl Process {
    /// Errs: this build has no MPI.
    pub fn start() -> Result<&'static Process, DeviceError> {
        Err(DeviceError::Unsupported(format!("this build of squall does not speak MPI\ninstall {HOW}")))
    }

    /// `None`: nothing was started.
    pub fn started() -> Option<&'static Process> {
        None
    }

    /// This process's rank among all of the job.
    pub fn rank(&self) -> u32 {
        match self.0 {}
    }

    /// Processes of the job.
    pub fn size(&self) -> u32 {
        match self.0 {}
    }

    /// This process's rank among those of its host.
    pub fn host_rank(&self) -> u32 {
        match self.0 {}
    }

    /// Processes of the job on this host.
    pub fn host_size(&self) -> u32 {
        match self.0 {}
    }

    /// Whether all processes of the job are on one host.
    pub fn is_one_host(&self) -> bool {
        match self.0 {}
    }

    /// What MPI says that it is.
    pub fn library(&self) -> &str {
        match self.0 {}
    }

    /// Gives rank 0's bytes to all.
    pub fn broadcast(&self, _bytes: &[u8], _deadline: Instant) -> Result<Vec<u8>, DeviceError> {
        match self.0 {}
    }

    /// Gathers all ranks' bytes.
    pub fn all_gather(&self, _mine: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>, DeviceError> {
        match self.0 {}
    }

    /// Ends MPI in this process.
    pub fn finish(&self) -> Result<(), DeviceError> {
        match self.0 {}
    }

    /// Ends this process.
    pub fn abort(status: i32) -> ! {
        std::process::exit(status)
    }
}

/// What of MPI is in this build, a line each, for `squall doctor`: nothing, and how to get it.
pub fn findings() -> Vec<String> {
    vec!["MPI is not in this build".to_string(), format!("install {HOW}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_mpi_says_how_to_get_it() {
        assert!(!crate::BUILT && Process::started().is_none());
        let error = Process::start().unwrap_err().to_string();
        assert!(error.contains("libopenmpi-dev") && error.contains("--features mpi"), "{error}");
        assert_eq!(findings().len(), 2);
        let registry = squall_core::Registry::linked().unwrap();
        assert!(registry.library("mpi", "host").is_none());
    }
}
