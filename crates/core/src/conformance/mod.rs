//! What every backend must do, as cases that a backend's tests run against it.
//!
//! A backend, or a library of ops on one, instantiates the suite in a few lines:
//!
//! ```no_run
//! # use squall_core::{Registry, conformance::{CASES, Target}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::linked()?;
//! let target = Target::new(&registry, "host", "host")?;
//! for case in CASES.iter().filter(|case| case.missing(&target).is_none()) {
//!     case.check(&target)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All values travel through staging memory and the stream, so that nothing is assumed of where a device's memory is.
//! What an op says that it needs ([`crate::Needs`]) is respected: a library that takes `f32` alone is tried with that.
//! [`Ranks`] and [`Rank`] are the harness, for a backend's own tests too; [`Level`] shows that these leave nothing behind.

mod abort;
mod collectives;
mod found;
mod groups;
mod inside;
mod level;
mod memory;
mod messages;
mod ranks;
mod unequal;
mod values;

pub use found::Found;
pub use level::{Free, Level};
pub use ranks::{Buffer, Op, Rank, Ranks};
pub use values::Random;

use crate::device::Backend;
use crate::dtype::DType;
use crate::library_op::LibraryOp;
use crate::reduce::ReduceOp;
use crate::registry::Registry;

/// What a case says: nothing, or what went wrong.
pub type Outcome = Result<(), String>;

/// The backend and the library under test.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    registry: &'a Registry,
    backend: &'a dyn Backend,
    library: &'a str,
    ranks: u32,
}

/// The most ranks that a case uses.
const MAX_RANKS: u32 = 7;

impl<'a> Target<'a> {
    /// The library `library` on devices of the kind `backend`. Returns an error when this program has no such
    /// backend, or when the backend finds no device.
    pub fn new(registry: &'a Registry, backend: &str, library: &'a str) -> Result<Target<'a>, String> {
        let backend = registry.backend(backend).ok_or_else(|| format!("there is no backend `{backend}`"))?;
        let ranks = match backend.count().map_err(|error| error.to_string())? {
            Some(0) => return Err(format!("there is no {} device", backend.kind())),
            Some(devices) if !backend.repeats() => devices.min(MAX_RANKS),
            _ => MAX_RANKS,
        };
        Ok(Target { registry, backend, library, ranks })
    }

    fn op(&self, name: &str) -> Result<&'static dyn LibraryOp, String> {
        self.registry.op(name, self.backend.kind(), Some(self.library)).map_err(|error| error.to_string())
    }

    /// Whether an op can be called so.
    fn takes(&self, op: &str, dtype: DType, reduce: ReduceOp, count: u64) -> bool {
        self.op(op).is_ok_and(|op| {
            let needs = op.needs();
            let reduces = op.params().iter().any(|param| param.name == "reduce");
            needs.dtypes.contains(&dtype)
                && (!reduces || needs.reductions.contains(&reduce))
                && count.is_multiple_of(needs.multiple)
        })
    }

    /// Why some device does not reach the memory of another.
    fn unreached(&self) -> Option<String> {
        let reach = || {
            let devices =
                (0..self.ranks).map(|index| self.backend.open(index)).collect::<Result<Vec<_>, _>>()?;
            devices.iter().try_for_each(|a| devices.iter().try_for_each(|b| a.reach(b.id())))
        };
        reach().err().map(|error| error.to_string())
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
    ranks: u32,
    /// The ops it takes, and whether in groups.
    ops: &'static [&'static str],
    grouped: bool,
    /// Whether devices must reach each other's memory.
    peers: bool,
    run: fn(&Target<'_>) -> Outcome,
}

impl Case {
    /// What the target lacks for this case: the reason to give when it is left out.
    pub fn missing(&self, target: &Target<'_>) -> Option<String> {
        if self.ranks > target.ranks {
            return Some(format!(
                "needs {}, and there can be {}",
                crate::count(self.ranks as u64, "rank"),
                target.ranks
            ));
        }
        let op = self.ops.iter().find_map(|name| match target.op(name) {
            Err(reason) => Some(reason),
            Ok(op) if self.grouped && !op.needs().groups => {
                Some(format!("`{name}` does not stand in groups"))
            }
            Ok(_) => None,
        });
        op.or_else(|| self.peers.then(|| target.unreached()).flatten())
    }

    /// Runs the case. The error has its name and what went wrong.
    pub fn check(&self, target: &Target<'_>) -> Outcome {
        (self.run)(target).map_err(|error| format!("{}: {error}", self.name))
    }

    const fn grouped(self) -> Case {
        Case { grouped: true, ..self }
    }

    const fn between_peers(self) -> Case {
        Case { peers: true, ..self }
    }
}

const fn case(
    name: &'static str,
    ranks: u32,
    ops: &'static [&'static str],
    run: fn(&Target<'_>) -> Outcome,
) -> Case {
    Case { name, ranks, ops, grouped: false, peers: false, run }
}

/// All cases.
pub static CASES: &[Case] = &[
    case("memory is zeroed and aligned", 1, &[], memory::zeroed_and_aligned),
    case("copies go both ways", 1, &[], memory::copies),
    case("progress is told", 1, &[], memory::progress),
    case("checkpoints are passed in order", 1, &[], memory::checkpoints),
    case("all_reduce matches the reference", 1, &["all_reduce"], collectives::all_reduce),
    case("broadcast matches the reference", 1, &["broadcast"], collectives::broadcast),
    case("reduce matches the reference", 1, &["reduce"], collectives::reduce),
    case("all_gather matches the reference", 1, &["all_gather"], collectives::all_gather),
    case("reduce_scatter matches the reference", 1, &["reduce_scatter"], collectives::reduce_scatter),
    case("all_to_all matches the reference", 1, &["all_to_all"], collectives::all_to_all),
    case("gather matches the reference", 1, &["gather"], collectives::gather),
    case("scatter matches the reference", 1, &["scatter"], collectives::scatter),
    case("unequal parts are gathered everywhere", 1, &["all_gather"], unequal::all_gather),
    case("a reduction is scattered in unequal parts", 1, &["reduce_scatter"], unequal::reduce_scatter),
    case("unequal parts are gathered", 1, &["gather"], unequal::gather),
    case("unequal parts are scattered", 1, &["scatter"], unequal::scatter),
    case("all_to_all goes by counts", 1, &["all_to_all"], unequal::all_to_all),
    case("ten million and some elements are summed", 2, &["all_reduce"], collectives::large_and_odd),
    case("an integer average divides the wrapped sum", 2, &["all_reduce"], collectives::integer_average),
    case("a number wins over a NaN in min and max", 2, &["all_reduce"], collectives::not_a_number),
    case("all ranks get the same bits", 2, &["all_reduce"], collectives::same_bits),
    case("send_recv shifts around a ring", 1, &["send_recv"], messages::ring),
    case("ten million and some elements are exchanged", 2, &["send_recv"], messages::large_and_odd),
    case("the k-th send meets the k-th receive", 2, &["send", "recv"], messages::in_order).grouped(),
    case("a group exchanges between all pairs", 1, &["send", "recv"], messages::all_pairs).grouped(),
    case("messages go down a line of ranks", 2, &["send", "recv"], messages::line),
    case(
        "a group of collectives and messages completes",
        2,
        &["all_reduce", "broadcast", "send", "recv"],
        groups::mixed,
    )
    .grouped(),
    case("a step can be run again and again", 1, &["all_reduce", "send_recv"], groups::steps),
    case("parts of a split communicator work apart", 2, &["all_reduce", "all_gather"], groups::split),
    case(
        "one group meets in two communicators",
        2,
        &["all_reduce", "send", "recv"],
        groups::two_communicators,
    )
    .grouped(),
    case("an op is made of other ops", 1, &["all_gather", "all_reduce"], inside::composed),
    case("a wrong call inside an op is refused", 2, &["all_gather", "all_reduce"], inside::wrong_calls),
    case("an op reads its peers' memory", 2, &[], inside::peers).between_peers(),
    case("an abort releases an op that waits by itself", 2, &[], inside::own_wait),
    case("an abort releases a receive", 2, &["recv", "all_reduce"], abort::receive),
    case("an abort at any moment releases all ranks", 2, &["send", "recv", "all_reduce"], abort::any_moment)
        .grouped(),
];
