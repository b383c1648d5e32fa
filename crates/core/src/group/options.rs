//! How a plan group runs.

use std::time::{Duration, Instant};

/// How a plan group runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// A step that takes longer is aborted. `None`: no limit.
    pub step_timeout: Option<Duration>,
    /// The limit of joining, compiling, setup tasks, and of a step that connects devices or is captured: on GPUs the first,
    /// and with [`Options::capture`] the second; where steps swap buffers, as many for each [turn](crate::Verified::turns). These have no less than `step_timeout`; the finish, which may connect devices, no
    /// less than this, if steps have a limit.
    pub init_timeout: Duration,
    /// Whether to capture the step once, or once for each [turn](crate::Verified::turns), and replay it. Every device must be able to, and every op of the step: see
    /// [`Verified::check_capture`](crate::Verified::check_capture).
    pub capture: bool,
}

impl Default for Options {
    fn default() -> Options {
        let minute = Duration::from_secs(60);
        Options { step_timeout: Some(minute), init_timeout: minute, capture: false }
    }
}

impl Options {
    /// Sets the limit of a step.
    pub fn step_timeout(mut self, limit: Option<Duration>) -> Options {
        self.step_timeout = limit;
        self
    }

    /// Sets the limit of everything before the first step.
    pub fn init_timeout(mut self, limit: Duration) -> Options {
        self.init_timeout = limit;
        self
    }

    /// Captures the step and replays it.
    pub fn capture(mut self, capture: bool) -> Options {
        self.capture = capture;
        self
    }
}

/// How long ranks have to return after an abort, where the step had a limit so long.
///
/// As long as the step's limit, but at most four seconds, since the caller waits; and at least a quarter of one, since a
/// rank that merely waits for a core would be given up for good.
pub(super) fn second_period(limit: Option<Duration>) -> Duration {
    const LONGEST: Duration = Duration::from_secs(4);
    const SHORTEST: Duration = Duration::from_millis(250);
    limit.unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

/// How often a caller that waits looks at the ranks, where a step has a limit so long.
///
/// A queued step's clock starts when the step before it is seen done, so that it may take so much longer than its limit.
/// Not longer than a second, and not so short that looking is all that the caller does.
pub(super) fn look_period(limit: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(1);
    (limit / 8).clamp(SHORTEST, LONGEST).min(limit)
}

/// When so long a time from now has passed. A limit beyond what the clock can count is never reached.
pub(super) fn from_now(limit: Duration) -> Instant {
    const A_CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + limit.min(A_CENTURY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_too_long_or_too_short() {
        assert!(from_now(Duration::MAX) > Instant::now());
        assert_eq!(second_period(None), Duration::from_secs(4));
        assert_eq!(second_period(Some(Duration::MAX)), Duration::from_secs(4));
        assert_eq!(second_period(Some(Duration::from_secs(1))), Duration::from_secs(1));
        assert_eq!(second_period(Some(Duration::from_micros(1))), Duration::from_millis(250));
        assert_eq!(look_period(Duration::MAX), Duration::from_secs(1));
        assert_eq!(look_period(Duration::from_millis(80)), Duration::from_millis(10));
        assert_eq!(look_period(Duration::from_micros(1)), Duration::from_micros(1));
    }
}
