//! What a test program finds to test with.

use crate::registry::Registry;

/// The devices of a kind that a test program finds, or why it has none to test with. Tests that need more are left out with the
/// reason; where the environment promises devices ([`Found::PROMISE`]), their absence is a failure instead.
#[derive(Clone, Debug)]
pub struct Found(Result<u32, String>);

impl Found {
    /// The variable by which a machine promises that there are so many GPUs, and all that their tests need.
    pub const PROMISE: &str = "SQUALL_TEST_GPUS";

    /// Asks the backend of that kind.
    pub fn devices(registry: &Registry, kind: &str) -> Found {
        let Some(backend) = registry.backend(kind) else {
            return Found::nothing(format!("this program has no backend `{kind}`"));
        };
        Found(match backend.count() {
            Ok(Some(0)) => Err(format!("there is no {kind} device")),
            Ok(count) => Ok(count.unwrap_or(super::MAX_RANKS)),
            Err(error) => Err(error.to_string()),
        })
    }

    /// There is nothing to test with, for that reason.
    pub fn nothing(reason: impl Into<String>) -> Found {
        Found(Err(reason.into()))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.as_ref().map_or(0, |count| *count)
    }

    /// Why there is nothing at all to test with.
    pub fn missing(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Why a test that needs so many devices is left out: one line, since every such test repeats it.
    pub fn lacks(&self, needs: u32) -> Option<String> {
        match &self.0 {
            Ok(count) if *count >= needs => None,
            Ok(count) => Some(format!("needs {}, and finds {count}", crate::count(needs, "GPU"))),
            Err(reason) => Some(reason.lines().next().unwrap_or_default().trim_end_matches(':').to_string()),
        }
    }

    /// Whether there is what the environment promises.
    ///
    /// # Errors
    /// What was promised, and what there is.
    pub fn as_promised(&self) -> Result<(), String> {
        match std::env::var(Found::PROMISE) {
            Ok(promised) => self.at_least(&promised),
            Err(_) => Ok(()),
        }
    }

    fn at_least(&self, promised: &str) -> Result<(), String> {
        let variable = Found::PROMISE;
        let least: u32 =
            promised.parse().map_err(|_| format!("{variable} is `{promised}`, which is no number"))?;
        match &self.0 {
            _ if least == 0 => Ok(()),
            Ok(count) if *count >= least => Ok(()),
            Ok(count) => {
                Err(format!("{variable} promises {}, and {count} are found", crate::count(least, "GPU")))
            }
            Err(reason) => Err(format!("{variable} promises {}, but {reason}", crate::count(least, "GPU"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_left_out_for_a_reason_and_a_promise_is_kept() {
        let two = Found(Ok(2));
        assert_eq!((two.lacks(2), two.count(), two.missing()), (None, 2, None));
        assert_eq!(two.lacks(3).as_deref(), Some("needs 3 GPUs, and finds 2"));
        assert!(two.at_least("2").is_ok() && two.at_least("0").is_ok());
        assert!(two.at_least("3").unwrap_err().contains("promises 3 GPUs, and 2 are found"));
        assert!(two.at_least("two").unwrap_err().contains("no number"));

        let none = Found::nothing("no library:\n  not here\n  not there");
        assert_eq!((none.lacks(0).as_deref(), none.count()), (Some("no library"), 0));
        assert!(none.at_least("1").unwrap_err().contains("not there") && none.at_least("0").is_ok());
        assert!(Found::devices(&Registry::default(), "cuda").missing().is_some());
    }
}
