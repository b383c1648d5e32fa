//! A device that runs cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_core::{Device, DeviceError, Grid, KernelDef, Memory, Stream};

use crate::case::Case;
use crate::values::{Rule, difference};

/// A device with a stream, and memory for the image of a case there and here.
pub(crate) struct Bench {
    device: Arc<dyn Device>,
    stream: Box<dyn Stream>,
    memory: Box<dyn Memory>,
    staging: Box<dyn Memory>,
}

impl Bench {
    pub(crate) fn new(device: Arc<dyn Device>) -> Result<Bench, String> {
        let made = || {
            let (memory, staging) = (device.alloc(0)?, device.alloc_staging(0)?);
            Ok((device.stream()?, memory, staging))
        };
        let (stream, memory, staging) = made().map_err(|error: DeviceError| error.to_string())?;
        Ok(Bench { device, stream, memory, staging })
    }

    /// Runs the kernel so many times, each time on the case's image: nothing but what the work keeps to itself is left from
    /// one run to the next. The image after the last is then in `staging`. Returns what the kernel says that it could not do.
    fn run(
        &mut self,
        case: &Case,
        kernel: &'static KernelDef,
        grid: Grid,
        times: u32,
    ) -> Result<Option<String>, DeviceError> {
        let bytes = case.image.len() as u64;
        if self.memory.bytes() < bytes {
            let room = bytes.max(2 * self.memory.bytes()); // cases grow
            self.memory = self.device.alloc(room)?;
            self.staging = self.device.alloc_staging(room)?;
        }
        let unseen = || DeviceError::Failed("the host does not see staging memory".to_string());
        self.staging.host().ok_or_else(unseen)?[..case.image.len()].copy_from_slice(&case.image);
        let (memory, staging) = (self.memory.ptr(), self.staging.ptr());
        // SAFETY: the ranges lie in `memory`, which is kept until the stream has been waited for, below.
        let mut work = unsafe { self.device.kernel(kernel, case.bound(memory), grid) }?;
        let mut said = None;
        for _ in 0..times {
            // SAFETY: both hold so many bytes, and nothing else touches them until the wait.
            unsafe { self.stream.copy(memory, staging, bytes) }?;
            match work.enqueue(&mut *self.stream) {
                Err(DeviceError::Failed(message)) => said = said.or(Some(message)),
                other => other?,
            }
        }
        // SAFETY: as above.
        unsafe { self.stream.copy(staging, memory, bytes) }?;
        self.stream.wait(Some(Instant::now() + Duration::from_secs(60)))?;
        Ok(said.or_else(|| work.failure()))
    }

    /// The image after the last run.
    pub(crate) fn results(&mut self, case: &Case) -> Result<&[u8], String> {
        let host = self.staging.host().ok_or("the host does not see staging memory")?;
        Ok(&host[..case.image.len()])
    }
}

/// Runs two kernels, each on its bench, on one case: the first does right. The error says what the second did wrong.
pub(crate) fn compare(
    case: &Case,
    [(host, model), (device, kernel)]: [(&mut Bench, &'static KernelDef); 2],
    grid: Grid,
    times: u32,
) -> Result<(), String> {
    let told = |kernel: &KernelDef, error: DeviceError| format!("`{}`: {error}", kernel.name);
    let wanted = host.run(case, model, grid, times).map_err(|error| told(model, error))?;
    let said = device.run(case, kernel, grid, times).map_err(|error| told(kernel, error))?;
    same_words(model, wanted.as_deref(), said.as_deref())?;
    let (want, got) = (host.results(case)?, device.results(case)?);
    for (who, image) in [("host", want), ("device", got)] {
        for guard in case.guards() {
            if let Some(at) = guard.clone().find(|&at| image[at] != case.image[at]) {
                let after = case.buffers.iter().rfind(|buffer| buffer.at.end <= at);
                let before = case.buffers.iter().find(|buffer| buffer.at.start > at);
                let name = |buffer: Option<&crate::case::Placed>| {
                    buffer.map_or("nothing".to_string(), |buffer| format!("`{}`", buffer.name))
                };
                let (after, before) = (name(after), name(before));
                return Err(format!("{who}: a byte between {after} and {before} was written"));
            }
        }
    }
    for buffer in &case.buffers {
        let at = buffer.at.clone();
        let (rule, want) = match buffer.written {
            true => (buffer.rule, &want[at.clone()]),
            false => (Rule::Bits, &case.image[at.clone()]),
        };
        // A kernel that failed may have written some of its elements.
        if wanted.is_some() && buffer.written && !case.all_or_nothing {
            continue;
        }
        if let Some(difference) = difference(buffer.dtype, rule, &got[at], want) {
            let what = if buffer.written { "" } else { ", which is only read" };
            return Err(format!("`{}`{what}: {difference}", buffer.name));
        }
    }
    Ok(())
}

/// A failure on the device must be one on the host too, in the same words; the host may go on with more of them.
fn same_words(model: &KernelDef, wanted: Option<&str>, said: Option<&str>) -> Result<(), String> {
    let own = format!("the kernel `{}`: ", model.name);
    let strip = |words: &str| words.strip_prefix(&own).unwrap_or(words).to_string();
    match (wanted.map(strip), said.map(strip)) {
        (None, None) => Ok(()),
        (Some(wanted), Some(said)) if !said.is_empty() && wanted.starts_with(&said) => Ok(()),
        (wanted, said) => {
            let words =
                |words: Option<String>| words.map_or("nothing".to_string(), |words| format!("`{words}`"));
            Err(format!("the device said {}, the host {}", words(said), words(wanted)))
        }
    }
}
