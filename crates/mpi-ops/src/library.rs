//! The library `mpi` as plan groups see it.

use std::sync::Arc;

use squall_core::{Connect, DeviceError, Library, Session, register_library};

use crate::connection::{Connection, RankSession};
use crate::process::Process;
use crate::{DEVICE, NAME};

register_library!(&MpiLibrary);

/// The library `mpi` on host devices, one rank a process. Starts MPI when it connects, if nobody has.
#[derive(Debug)]
pub struct MpiLibrary;

impl Library for MpiLibrary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> &'static str {
        DEVICE
    }

    /// Makes a communicator of MPI for each that is used. All ranks of MPI call it; one that does not fit is told to all.
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        let process = Process::start()?;
        let fits = fits(process, cx);
        // Whoever does not fit comes here and no further, so that the others need not wait for it until the deadline.
        let told = fits.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = process.all_gather(told.as_bytes(), cx.deadline)?;
        fits?;
        if let Some((rank, why)) = all.iter().enumerate().find(|(_, why)| !why.is_empty()) {
            let why = String::from_utf8_lossy(why);
            return Err(DeviceError::Failed(format!("rank {rank} of MPI cannot connect: {why}")));
        }
        let connection = Arc::new(Connection::new(process, cx.world, cx.comms, cx.deadline)?);
        Ok(vec![Session { abort: connection.stop().clone(), state: Box::new(RankSession(connection)) }])
    }

    fn in_use(&self) -> Vec<String> {
        crate::findings::in_use()
    }

    fn findings(&self) -> Vec<String> {
        crate::findings::findings()
    }
}

/// Whether this process can be its rank of the job.
fn fits(process: &Process, cx: &Connect<'_>) -> Result<(), DeviceError> {
    let refused = |text: String| Err(DeviceError::Unsupported(text));
    let (size, world) = (process.size(), cx.world.size());
    if size != world {
        let (mpi, job) = (squall_core::count(size, "rank"), squall_core::count(world, "rank"));
        return refused(format!(
            "MPI has {mpi}, but the job has {job}: start a process for each rank of the job"
        ));
    }
    let [(rank, _)] = cx.local else {
        let ranks = squall_core::count(cx.local.len() as u64, "rank");
        return refused(format!(
            "this process has {ranks} of the job, but the library `{NAME}` joins processes that have 1 each"
        ));
    };
    if *rank != process.rank() {
        return refused(format!(
            "this process is rank {rank} of the job, but rank {} of MPI; they must be equal",
            process.rank()
        ));
    }
    process.may_connect()
}
