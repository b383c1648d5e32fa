//! The library `nccl` as plan groups see it.

use std::thread;

use squall_core::{CommId, Connect, DeviceError, Library, Session, register_library};

use crate::api::Api;
use crate::communicators::{Communicators, Job, check_ranks};
use crate::detached::{self, Watch};
use crate::error::NcclError;
use crate::unique_id::UniqueId;
use crate::{DEVICE, NAME};

register_library!(&NcclLibrary);

/// The library `nccl` on CUDA devices. Opened when it connects, not before.
#[derive(Debug)]
pub struct NcclLibrary;

impl Library for NcclLibrary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> &'static str {
        DEVICE
    }

    /// Makes the world's communicator and those split from it. All sessions are one connection: aborting one rank's aborts all.
    fn connect(&self, cx: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        check_ranks(cx.world.size(), cx.local)?;
        Ok(connect(Api::get()?, cx)?.into_sessions())
    }

    fn in_use(&self) -> Vec<String> {
        crate::findings::in_use()
    }

    fn findings(&self) -> Vec<String> {
        crate::findings::findings()
    }
}

/// [`Library::connect`] with a given NCCL.
pub(crate) fn connect(api: &'static Api, cx: &Connect<'_>) -> Result<Communicators, DeviceError> {
    let (world, comms, local) = (cx.world.clone(), cx.comms.to_vec(), cx.local.to_vec());
    let aborted = cx.aborted.clone();
    let job = Job { api, world, comms, local, aborted, deadline: cx.deadline };
    if cx.local.len() == cx.world.size() as usize {
        return Ok(job.connect()?);
    }
    Ok(job.join(exchanged(api, cx)?)?)
}

/// The id that rank 0's process makes, given to all.
fn exchanged(api: &'static Api, cx: &Connect<'_>) -> Result<UniqueId, DeviceError> {
    let mut own = Vec::new();
    if cx.local.iter().any(|(rank, _)| *rank == 0) {
        let make = move |watch: &Watch| watch.inside("ncclGetUniqueId", || UniqueId::by(api));
        own = detached::run(cx.deadline, make)?.as_bytes().to_vec();
    }
    // Every rank must call, and each call waits for all.
    let gather = |rank: u32| {
        let mine: &[u8] = if rank == 0 { &own } else { &[] };
        cx.exchange.all_gather(CommId::WORLD, rank, mine, cx.deadline)
    };
    let gathered = thread::scope(|scope| {
        let gather = &gather;
        let spawn = |rank: u32| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || gather(rank));
            thread.map_err(|error| NcclError::Thread(error.to_string()))
        };
        let threads: Vec<_> = cx.local.iter().map(|(rank, _)| spawn(*rank)).collect::<Result<_, _>>()?;
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, DeviceError>>()
    })?;
    let id = gathered.first().and_then(|all| all.first()).and_then(|id| id.as_slice().try_into().ok());
    let id = id.ok_or_else(|| DeviceError::Failed("rank 0 gave no id to the other ranks".to_string()))?;
    Ok(UniqueId::from_bytes(id))
}

#[cfg(test)]
mod tests;
