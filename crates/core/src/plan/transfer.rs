//! Getting contents into a rank's buffers and out of them: in every step, through staging that each such buffer has, and between steps,
//! through one piece of staging that all share. What moves in every step is never swapped; between steps a name gives what it stands for then.

use crate::buffer::{Download, Upload};
use crate::device::{Device, DeviceError, DevicePtr, Memory, Stream};
use crate::graph::TaskGraph;
use crate::plan::ExecutionPlan;

/// Gives a buffer's contents step by step. Called on the rank's thread at the start of every step.
pub trait Feed: Send {
    /// Writes the contents for step `step`, counted from 0, over the whole of `out`. Must not allocate.
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String>;
}

/// A buffer that is uploaded in every step.
pub(super) struct Input {
    buffer: usize,
    staging: Box<dyn Memory>,
    feed: Option<Box<dyn Feed>>,
}

/// A buffer that is downloaded in every step.
pub(super) struct Output {
    buffer: usize,
    staging: Box<dyn Memory>,
}

/// A buffer's contents as they were, in memory that the host sees.
pub(crate) struct Copied {
    pub(crate) buffer: usize,
    pub(crate) memory: Box<dyn Memory>,
}

/// The staging that transfers between steps share is no larger, in bytes: it is memory that the host cannot page out.
const PIECE: u64 = 16 << 20;

/// The memory of a rank: of each buffer that its tasks use, and the staging of those that move in every step.
pub(super) type Allocated = (Vec<Option<Box<dyn Memory>>>, Vec<Input>, Vec<Output>);

/// Allocates what the graph's tasks name.
pub(super) fn allocate(graph: &TaskGraph, device: &dyn Device) -> Result<Allocated, DeviceError> {
    let (mut memory, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (buffer, (decl, used)) in graph.buffers().iter().zip(graph.uses()).enumerate() {
        if !used {
            memory.push(None);
            continue;
        }
        memory.push(Some(device.alloc(decl.bytes())?));
        if decl.upload == Upload::Every {
            inputs.push(Input { buffer, staging: device.alloc_staging(decl.bytes())?, feed: None });
        }
        if decl.download == Download::Every {
            outputs.push(Output { buffer, staging: device.alloc_staging(decl.bytes())? });
        }
    }
    Ok((memory, inputs, outputs))
}

impl ExecutionPlan {
    /// Whether a feed gives contents in every step, into staging that the step before may still be reading.
    pub(super) fn is_fed(&self) -> bool {
        self.inputs.iter().any(|input| input.feed.is_some())
    }

    /// Lets the feeds give the contents for a step.
    pub(super) fn fill(&mut self, step: u64) -> Result<(), DeviceError> {
        for input in &mut self.inputs {
            if let (Some(feed), Some(out)) = (&mut input.feed, input.staging.host()) {
                feed.fill(step, out).map_err(DeviceError::Failed)?;
            }
        }
        Ok(())
    }

    /// Enqueues what is uploaded in every step.
    pub(super) fn upload(&mut self) -> Result<(), DeviceError> {
        for input in &self.inputs {
            if let Some(memory) = &self.memory[input.buffer] {
                // SAFETY: both are this plan's and equally long; the staging is written only by a feed, which waits for the
                // step before, and between runs.
                unsafe { self.stream.copy(memory.ptr(), input.staging.ptr(), memory.bytes()) }?;
            }
        }
        Ok(())
    }

    /// Enqueues what is downloaded in every step.
    pub(super) fn download(&mut self) -> Result<(), DeviceError> {
        for output in &self.outputs {
            if let Some(memory) = &self.memory[output.buffer] {
                // SAFETY: both are this plan's and equally long; the staging is read only after the stream has
                // finished.
                unsafe { self.stream.copy(output.staging.ptr(), memory.ptr(), memory.bytes()) }?;
            }
        }
        Ok(())
    }

    /// Gives a buffer its contents: at once, and for every step to come. After an error they are partly the new ones, and
    /// nothing is under way.
    pub(crate) fn write(&mut self, buffer: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.buffer == buffer) {
            let out = host(&mut *input.staging)?;
            check_len(bytes.len(), out.len())?;
            out.copy_from_slice(bytes);
            input.feed = None;
        }
        self.restore(buffer, bytes)
    }

    /// Gives a buffer its contents now, whatever the steps to come upload. After an error as for [`ExecutionPlan::write`].
    pub(crate) fn restore(&mut self, buffer: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(output) = self.outputs.iter_mut().find(|output| output.buffer == buffer) {
            // What is read before the next step's end.
            let out = host(&mut *output.staging)?;
            check_len(bytes.len(), out.len())?;
            out.copy_from_slice(bytes);
        }
        let Some((to, len)) = self.place(buffer) else { return Ok(()) };
        check_len(bytes.len(), usize::try_from(len).unwrap_or(usize::MAX))?;
        let (staging, stream) = self.between()?;
        let size = host(staging)?.len();
        let mut done = 0;
        for piece in bytes.chunks(size) {
            host(staging)?[..piece.len()].copy_from_slice(piece);
            // SAFETY: the pieces lie within the buffer, one after the other, and none is longer than the staging.
            unsafe { copy(stream, DevicePtr(to.0 + done), staging.ptr(), piece.len() as u64) }?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Sets where a buffer's contents come from in every step.
    pub(crate) fn feed(&mut self, buffer: usize, feed: Box<dyn Feed>) {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.buffer == buffer) {
            input.feed = Some(feed);
        }
    }

    /// A buffer's contents; of one that is downloaded in every step, as of the end of the last step or of the finish.
    pub(crate) fn read(&mut self, buffer: usize) -> Result<Vec<u8>, DeviceError> {
        if let Some(output) = self.outputs.iter_mut().find(|output| output.buffer == buffer) {
            return copied(host(&mut *output.staging)?);
        }
        let Some((from, len)) = self.place(buffer) else { return Ok(Vec::new()) };
        let mut contents = room(len)?;
        let (staging, stream) = self.between()?;
        let size = host(staging)?.len() as u64;
        let mut done = 0;
        while done < len {
            let piece = size.min(len - done);
            // SAFETY: as in `write`.
            unsafe { copy(stream, staging.ptr(), DevicePtr(from.0 + done), piece) }?;
            contents.extend_from_slice(&host(staging)?[..piece as usize]);
            done += piece;
        }
        Ok(contents)
    }

    /// Staging memory for the contents of some buffers, apart from the plan. Its pages are there when this returns. An error
    /// comes with its buffer.
    pub(crate) fn room_for(&self, buffers: &[usize]) -> Result<Vec<Copied>, (usize, DeviceError)> {
        let room = |&buffer: &usize| {
            let mut memory = self.device.alloc_staging(self.place(buffer).map_or(0, |(_, len)| len))?;
            host(&mut *memory)?.fill(0);
            Ok(Copied { buffer, memory })
        };
        buffers.iter().map(|buffer| room(buffer).map_err(|error| (*buffer, error))).collect()
    }

    /// Copies buffers as they are now into memory that was made for them, with one wait for all.
    pub(crate) fn copy_out(&mut self, copies: &mut [Copied]) -> Result<(), (usize, DeviceError)> {
        let (mut enqueued, mut last) = (Ok(()), 0);
        for Copied { buffer, memory } in copies {
            let Some((from, len)) = self.place(*buffer).filter(|(_, len)| *len == memory.bytes()) else {
                continue;
            };
            last = *buffer;
            // SAFETY: both are equally long; the staging is the caller's alone until this has waited.
            enqueued = unsafe { self.stream.copy(memory.ptr(), from, len) };
            if enqueued.is_err() {
                break;
            }
        }
        self.stream.wait(None).and(enqueued).map_err(|error| (last, error))
    }

    /// Where the memory is that a buffer's name stands for, and its size, if it has any.
    fn place(&self, buffer: usize) -> Option<(DevicePtr, u64)> {
        let memory = self.memory.get(self.names.place(buffer))?.as_ref()?;
        (memory.bytes() > 0).then(|| (memory.ptr(), memory.bytes()))
    }

    /// The staging for transfers between steps, which is not empty, and the stream. Made at the first one, since making it may take
    /// longer than the transfer, and wait for the device.
    fn between(&mut self) -> Result<(&mut dyn Memory, &mut dyn Stream), DeviceError> {
        let largest = self.memory.iter().flatten().map(|memory| memory.bytes()).max().unwrap_or(0);
        let staging = match &mut self.staging {
            Some(staging) => staging,
            none => none.insert(self.device.alloc_staging(largest.clamp(1, PIECE))?),
        };
        match host(&mut **staging)?.is_empty() {
            false => Ok((&mut **staging, &mut *self.stream)),
            true => Err(DeviceError::Failed("the staging memory is empty".to_string())),
        }
    }
}

/// Copies, and waits for it; where copying failed, too, so that nothing is under way when the staging is used again.
///
/// # Safety
/// As for [`Stream::copy`].
unsafe fn copy(
    stream: &mut dyn Stream,
    to: DevicePtr,
    from: DevicePtr,
    bytes: u64,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's.
    let enqueued = unsafe { stream.copy(to, from, bytes) };
    stream.wait(None).and(enqueued)
}

fn check_len(given: usize, wanted: usize) -> Result<(), DeviceError> {
    match given == wanted {
        true => Ok(()),
        false => Err(DeviceError::Failed(format!("{given} bytes for a buffer of {wanted}"))),
    }
}

/// Staging memory as the host sees it.
pub(super) fn host(staging: &mut dyn Memory) -> Result<&mut [u8], DeviceError> {
    let unseen = || DeviceError::Failed("the host cannot see the staging memory".to_string());
    staging.host().ok_or_else(unseen)
}

/// A copy of some bytes, if there is memory for it.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>, DeviceError> {
    let mut copy = room(bytes.len() as u64)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Room for so many bytes, if there is memory for it: buffers are as large as memory allows, and so may their copies be.
fn room(bytes: u64) -> Result<Vec<u8>, DeviceError> {
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX));
    reserved.map_err(|error| DeviceError::OutOfMemory {
        device: "the host".to_string(),
        bytes,
        message: error.to_string(),
    })?;
    Ok(room)
}
