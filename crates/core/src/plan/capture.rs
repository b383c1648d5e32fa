//! Recording a step, so that it can be replayed.

use crate::device::{Capture, DeviceError, Stream, Work};
use crate::plan::blame::TaskError;
use crate::plan::enqueue;

/// Records a step's works, as run `run`, which is not run by that. Nothing is queued on the stream: ending a capture may wait for the
/// device, which may be waiting for another rank.
pub(super) fn record(
    works: &mut [Box<dyn Work>],
    stream: &mut dyn Stream,
    run: u32,
    now: &mut Option<usize>,
) -> Result<Box<dyn Work>, TaskError> {
    let whole = |error| TaskError::at(None, run, error);
    let recording = Recording::begin(stream).map_err(whole)?;
    let recorded = enqueue(works, &mut *recording.stream, run, now, |_, _| Ok(()));
    let captured = recording.end();
    recorded.map_err(said)?;
    captured.map_err(whole)
}

/// A failure with when it was: what a library does in every step may be what no capture allows, and works without.
fn said(failure: TaskError) -> TaskError {
    let error = match failure.error {
        DeviceError::Failed(text) => DeviceError::Failed(format!("during capture: {text}")),
        other => other,
    };
    TaskError { error, ..failure }
}

/// A capture that is ended in any case, also by a panic of what is recorded: a stream that is left capturing cannot even be
/// waited for.
struct Recording<'a> {
    stream: &'a mut dyn Stream,
    ended: bool,
}

impl Recording<'_> {
    fn begin(stream: &mut dyn Stream) -> Result<Recording<'_>, DeviceError> {
        capture(stream)?.begin()?;
        Ok(Recording { stream, ended: false })
    }

    fn end(mut self) -> Result<Box<dyn Work>, DeviceError> {
        self.ended = true;
        capture(self.stream)?.end()
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = capture(self.stream).and_then(Capture::end);
        }
    }
}

fn capture(stream: &mut dyn Stream) -> Result<&mut dyn Capture, DeviceError> {
    stream.capture().ok_or_else(|| DeviceError::Unsupported("the stream does not capture".to_string()))
}
