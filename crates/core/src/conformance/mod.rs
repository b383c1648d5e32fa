//! What every backend must do, as cases that a backend's tests run against it.
//!
//! A backend instantiates the suite in a few lines:
//!
//! ```ignore
//! let registry = Registry::linked()?;
//! let target = Target::new(&registry, "host", "host")?;
//! for case in CASES.iter().filter(|case| case.ranks <= target.ranks()) {
//!     case.check(&target)?;
//! }
//! ```
//!
//! All values travel through staging memory and the stream, so that nothing is assumed of where a device's memory is.
//! [`Ranks`] and [`Rank`] are the harness, for a backend's own tests too.

mod abort;
mod collectives;
mod groups;
mod memory;
mod messages;
mod ranks;
mod values;

pub use ranks::{Buffer, Op, Rank, Ranks};
pub use values::Random;

use crate::device::Backend;
use crate::library_op::Library;
use crate::registry::Registry;

/// What a case says: nothing, or what went wrong.
pub type Outcome = Result<(), String>;

/// The backend and the library under test.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    registry: &'a Registry,
    backend: &'a dyn Backend,
    library: &'static dyn Library,
    ranks: u32,
}

/// The most ranks that a case uses.
const MAX_RANKS: u32 = 7;

impl<'a> Target<'a> {
    /// The library `library` on devices of the kind `backend`. Errs when there is no such thing in this program, or
    /// when the backend finds no device.
    pub fn new(registry: &'a Registry, backend: &str, library: &str) -> Result<Target<'a>, String> {
        let found = registry.backend(backend).ok_or_else(|| format!("there is no backend `{backend}`"))?;
        let library = registry
            .library(library, backend)
            .ok_or_else(|| format!("there is no library `{library}` on {backend} devices"))?;
        let ranks = match found.count().map_err(|error| error.to_string())? {
            Some(0) => return Err(format!("there is no {backend} device")),
            Some(devices) if !found.repeats() => devices.min(MAX_RANKS),
            _ => MAX_RANKS,
        };
        Ok(Target { registry, backend: found, library, ranks })
    }

    /// The most ranks there can be: cases that need more cannot run here.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The worlds that cases run in.
    fn worlds(&self, least: u32) -> impl Iterator<Item = u32> {
        [1, 2, 3, 4, 7].into_iter().filter(move |&world| world >= least && world <= self.ranks)
    }
}

/// One thing that a backend must do.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it must do.
    pub name: &'static str,
    /// The fewest ranks that show it.
    pub ranks: u32,
    run: fn(&Target<'_>) -> Outcome,
}

impl Case {
    /// Runs the case. Errs with its name and what went wrong.
    pub fn check(&self, target: &Target<'_>) -> Outcome {
        (self.run)(target).map_err(|error| format!("{}: {error}", self.name))
    }
}

const fn case(name: &'static str, ranks: u32, run: fn(&Target<'_>) -> Outcome) -> Case {
    Case { name, ranks, run }
}

/// All cases.
pub static CASES: &[Case] = &[
    case("memory is zeroed and aligned", 1, memory::zeroed_and_aligned),
    case("copies go both ways", 1, memory::copies),
    case("progress is told", 1, memory::progress),
    case("all_reduce matches the reference", 1, collectives::all_reduce),
    case("broadcast matches the reference", 1, collectives::broadcast),
    case("reduce matches the reference", 1, collectives::reduce),
    case("all_gather matches the reference", 1, collectives::all_gather),
    case("reduce_scatter matches the reference", 1, collectives::reduce_scatter),
    case("all_to_all matches the reference", 1, collectives::all_to_all),
    case("gather matches the reference", 1, collectives::gather),
    case("scatter matches the reference", 1, collectives::scatter),
    case("ten million and some elements are summed and sent", 2, collectives::large_and_odd),
    case("an integer average divides the wrapped sum toward zero", 2, collectives::integer_average),
    case("a number wins over a NaN in min and max, not in sum", 2, collectives::not_a_number),
    case("all ranks get the same bits", 2, collectives::same_bits),
    case("send_recv shifts around a ring", 1, messages::ring),
    case("the k-th send meets the k-th receive", 2, messages::in_order),
    case("a group exchanges between all pairs", 1, messages::all_pairs),
    case("messages go to one rank and come from another", 2, messages::lone),
    case("a group of collectives and messages completes", 2, groups::mixed),
    case("a step can be run again and again", 1, groups::steps),
    case("parts of a split communicator work apart", 2, groups::split),
    case("one group meets in two communicators", 2, groups::two_communicators),
    case("an abort releases a receive, and a new connection works", 2, abort::receive),
    case("an abort at any moment releases all ranks", 2, abort::any_moment),
];
