//! The graphs of all ranks: one after the other, and of a large world by several threads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use squall_core::graph::Partial;
use squall_core::{BufferDecl, Diagnostic, Label, Registry, TaskGraph, World};

use super::env::RankEnv;
use super::names::Symbols;
use super::{buffers, tasks};

/// What ranks are made from.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a, 'm> {
    pub(super) symbols: &'a Symbols<'m>,
    pub(super) registry: &'a Registry,
    pub(super) world: &'a Arc<World>,
    pub(super) device: &'a str,
}

/// What was made of ranks.
pub(super) struct Made {
    pub(super) partials: Vec<Partial>,
    /// Whether all ranks were looked at, and have all their buffers.
    pub(super) every_rank: bool,
    /// Whether some ranks were not looked at.
    cut: bool,
    /// The names of tasks that were left out on some ranks, since others had told what is wrong with them.
    given_up: BTreeSet<String>,
}

impl Made {
    /// Whether what a report says may be so on other ranks that were not looked at for it.
    pub(super) fn tells_of_few(&self, report: &Diagnostic) -> bool {
        let is_of = |name: &String, task: &str| {
            task.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
        };
        let Label { rank: Some(_), task, .. } = &report.primary else { return false };
        self.cut || task.as_ref().is_some_and(|task| self.given_up.iter().any(|name| is_of(name, task)))
    }
}

/// Reports gathered before further ranks are left alone: what they share is folded, and they share nearly all.
const MAX_PROBLEMS: usize = 256;

/// The ranks that a thread is worth.
const WORTH: u32 = 256;

impl Ranks<'_, '_> {
    /// Makes the graphs of all ranks. What is wrong is told in the order of the ranks, whatever makes them.
    pub(super) fn make(self, problems: &RefCell<Vec<Diagnostic>>) -> Made {
        let threads =
            thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let threads = threads.min(self.world.size() / WORTH);
        // What is wrong before any rank is looked at is told once more by each thread.
        if threads > 1
            && problems.borrow().is_empty()
            && let Some(partials) = self.by(threads)
        {
            return Made { partials, every_rank: true, cut: false, given_up: BTreeSet::new() };
        }
        self.one_by_one(0..self.world.size(), problems, &|| problems.borrow().len() > MAX_PROBLEMS)
    }

    /// The same by several threads, each with a run of the ranks; `None` where anything is wrong.
    fn by(self, threads: u32) -> Option<Vec<Partial>> {
        let size = self.world.size();
        let share = size.div_ceil(threads);
        let wrong = AtomicBool::new(false);
        let run = |first: u32| {
            let problems = RefCell::new(Vec::new());
            let is_wrong = || {
                wrong.fetch_or(!problems.borrow().is_empty(), Ordering::Relaxed);
                wrong.load(Ordering::Relaxed)
            };
            let made = self.one_by_one(first..size.min(first + share), &problems, &is_wrong);
            (!is_wrong()).then_some(made.partials)
        };
        let runs: Vec<Option<Vec<Partial>>> = thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> =
                (0..size).step_by(share as usize).map(|first| scope.spawn(move || run(first))).collect();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
        });
        let mut partials = Vec::with_capacity(size as usize);
        for run in runs {
            partials.extend(run?);
        }
        Some(partials)
    }

    /// Makes a run of the ranks, until `enough` says that no more need be looked at.
    fn one_by_one(
        self,
        ranks: Range<u32>,
        problems: &RefCell<Vec<Diagnostic>>,
        enough: &dyn Fn() -> bool,
    ) -> Made {
        let Ranks { symbols, registry, world, device } = self;
        let plan = buffers::Plan::new(symbols, problems);
        let mut tasks = tasks::Tasks::read(symbols, registry, world, device, problems);
        let mut made = Made {
            partials: Vec::with_capacity(ranks.len()),
            every_rank: true,
            cut: false,
            given_up: BTreeSet::new(),
        };
        let mut declared: Option<Arc<Vec<BufferDecl>>> = None;
        let end = ranks.end;
        for rank in ranks {
            let env = RankEnv::new(symbols, world, rank);
            let mut builder = TaskGraph::builder(registry, world, rank, device);
            let found = problems.borrow().len();
            plan.declare(&env, &mut builder, declared.as_ref(), problems);
            declared = Some(builder.buffers().clone());
            // A buffer whose size is unknown would only make its tasks fail too.
            if problems.borrow().len() == found {
                tasks.make(&env, &mut builder, problems);
            } else {
                made.every_rank = false;
            }
            let (partial, mut more) = builder.partial();
            problems.borrow_mut().append(&mut env.take_problems());
            problems.borrow_mut().append(&mut more);
            made.partials.push(partial);
            if enough() {
                made.cut = rank + 1 != end;
                made.every_rank &= !made.cut;
                break;
            }
        }
        made.given_up = tasks.into_given_up();
        made
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    // What serves the ops.
    use squall_host_backend as _;

    use squall_core::verify;

    use super::*;
    use crate::manifest::parse;
    use crate::resolve::world;

    const RING: &str = r#"manifest = 1
        [buffer.x]
        dtype = "f32"
        shape = [2, "4 + rank / 1000"]
        init = { fill = "rank" }
        [[task]]
        op = "all_reduce"
        args = { buffer = "x[0, 0:4]", reduce = "sum" }
        [[task]]
        op = "send_recv"
        args = { send = "x[1, 0:4]", to = "(rank + 1) % world", recv = "x[0, 0:4]", from = "(rank - 1) % world" }
        [[task]]
        for = "row in 2"
        op = "broadcast"
        args = { buffer = "x[row, 0:4]", root = "row" }
    "#;

    /// Calls `look` with ranks of a world.
    #[allow(clippy::unwrap_used, reason = "a helper of tests panics as tests do")]
    fn ranks(text: &str, size: u64, look: impl FnOnce(Ranks<'_, '_>)) {
        let (manifest, _) = parse(text).unwrap();
        let (symbols, registry) = (Symbols::new(&manifest), Registry::linked().unwrap());
        let world = Arc::new(world::make(&symbols, size).unwrap());
        look(Ranks { symbols: &symbols, registry: &registry, world: &world, device: "host" });
    }

    #[test]
    fn threads_make_what_one_would() {
        ranks(RING, 1500, |ranks| {
            let hash = |partials: Vec<Partial>| {
                let graphs: Option<Vec<TaskGraph>> = partials.into_iter().map(Partial::whole).collect();
                verify(graphs.unwrap()).unwrap().plan_hash()
            };
            let none = RefCell::new(Vec::new());
            let one = hash(ranks.one_by_one(0..1500, &none, &|| false).partials);
            for threads in [2, 3, 7] {
                assert_eq!(hash(ranks.by(threads).unwrap()), one, "{threads} threads");
            }
            assert_eq!(hash(ranks.make(&none).partials), one);
            assert_eq!(none.take(), []);
        });
    }

    /// A fault on one rank of the last thread's: the ranks are made once more, one by one.
    #[test]
    fn faults_are_told_as_one_thread_tells_them() {
        let text = RING.replace("root = \"row\"", "root = \"row + 2000 * (rank / 1499)\"");
        ranks(&text, 1500, |ranks| {
            assert!(ranks.by(2).is_none());
            let (alone, told) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            ranks.one_by_one(0..1500, &alone, &|| false);
            assert!(ranks.make(&told).every_rank);
            assert!(!alone.borrow().is_empty());
            assert_eq!(told, alone);
        });
    }
}
