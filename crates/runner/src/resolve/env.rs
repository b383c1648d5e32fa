//! What expressions see on one rank.

use std::cell::{OnceCell, RefCell};

use squall_core::{CommId, Diagnostic, World};

use super::names::{Symbol, Symbols};
use crate::expr::{Env, Lookup, Member, Value};
use crate::manifest::place::{Formula, FormulaError};

/// One rank's surroundings. Params and lengths are worked out when they are first asked for, and once.
#[derive(Debug)]
pub struct RankEnv<'a> {
    symbols: &'a Symbols<'a>,
    /// With the communicators that are made so far.
    world: &'a World,
    rank: u32,
    params: Vec<OnceCell<Lookup<Value>>>,
    lengths: Vec<OnceCell<Lookup<i64>>>,
    problems: RefCell<Vec<Diagnostic>>,
}

impl<'a> RankEnv<'a> {
    /// The surroundings of a rank of `world`. A communicator that is not made yet is a fault where it is needed.
    pub fn new(symbols: &'a Symbols<'a>, world: &'a World, rank: u32) -> RankEnv<'a> {
        RankEnv {
            symbols,
            world,
            rank,
            params: vec![OnceCell::new(); symbols.manifest.params.len()],
            lengths: vec![OnceCell::new(); symbols.manifest.buffers.len()],
            problems: RefCell::default(),
        }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Faults found so far, each once; they are taken away.
    pub fn take_problems(&self) -> Vec<Diagnostic> {
        self.problems.take()
    }

    /// How many faults were kept so far.
    pub(super) fn problems(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Says more of the faults that were kept after the first `found`.
    pub(super) fn name_problems(&self, found: usize, say: impl FnMut(&mut Diagnostic)) {
        self.problems.borrow_mut().iter_mut().skip(found).for_each(say);
    }

    /// All communicators.
    pub(super) fn communicators(&self) -> Vec<CommId> {
        self.world.comms().collect()
    }

    /// Keeps a fault that an evaluation met.
    pub(super) fn report(&self, error: &FormulaError) {
        if let Some(mut problem) = error.diagnostic() {
            problem.primary.rank = Some(self.rank);
            self.problems.borrow_mut().push(problem);
        }
    }

    pub(super) fn kept<T>(&self, result: Result<T, FormulaError>) -> Option<T> {
        result.map_err(|error| self.report(&error)).ok()
    }

    /// The same of a task, which the report names.
    pub(super) fn kept_in<T>(&self, task: &str, result: Result<T, FormulaError>) -> Option<T> {
        let before = self.problems.borrow().len();
        let kept = self.kept(result);
        self.problems.borrow_mut().iter_mut().skip(before).for_each(|problem| {
            problem.primary.task = Some(task.to_owned());
        });
        kept
    }

    /// An integer; a fault is kept.
    pub fn int(&self, formula: &Formula) -> Option<i64> {
        self.kept(formula.eval_int(self))
    }

    /// Works a param out, or takes what it came to on another rank.
    fn param(&self, place: usize) -> Result<Value, FormulaError> {
        let Symbols { manifest, depends, shared, .. } = self.symbols;
        let eval = || manifest.params[place].value.eval(self);
        if depends.param(place) {
            return eval();
        }
        match shared[place].get() {
            Some(value) => Ok(value.clone()),
            None => eval().map(|value| shared[place].get_or_init(|| value).clone()),
        }
    }

    fn length(&self, place: usize) -> Lookup<i64> {
        let shape = &self.symbols.manifest.buffers[place].shape.value;
        let axes: Option<Vec<i64>> = shape.iter().map(|axis| self.int(axis)).collect();
        match axes.and_then(|axes| axes.iter().try_fold(1i64, |n, &axis| n.checked_mul(axis))) {
            Some(len) => Lookup::Found(len),
            None => Lookup::Failed, // reported here, or when the buffer is declared
        }
    }
}

impl Env for RankEnv<'_> {
    fn name(&self, name: &str) -> Lookup<Value> {
        match name {
            "rank" => return Lookup::Found(Value::Int(self.rank.into())),
            "world" => return Lookup::Found(Value::Int(self.world.size().into())),
            _ => {}
        }
        let Some(Symbol::Param(place)) = self.symbols.get(name) else { return Lookup::Unknown };
        let value = self.params[place].get_or_init(|| match self.param(place) {
            Ok(value) => Lookup::Found(value),
            Err(error) => {
                self.report(&error);
                Lookup::Failed
            }
        });
        value.clone()
    }

    fn communicator(&self, name: &str) -> Lookup<Member> {
        let Some(Symbol::Communicator(comm)) = self.symbols.get(name) else { return Lookup::Unknown };
        match self.world.part(comm, self.rank) {
            Some(part) => Lookup::Found(Member { rank: part.rank.into(), size: part.size().into() }),
            None => Lookup::NotYet,
        }
    }

    fn buffer_len(&self, name: &str) -> Lookup<i64> {
        match self.symbols.buffer(name) {
            Some(place) => self.lengths[place].get_or_init(|| self.length(place)).clone(),
            None => Lookup::Unknown,
        }
    }

    fn known(&self) -> Vec<&str> {
        let params = self.symbols.manifest.params.iter().map(|param| param.name.value.as_str());
        ["rank", "world"].into_iter().chain(params).collect()
    }
}

/// Surroundings with names more: `i`, or the variables of loops.
#[derive(Debug)]
pub struct WithIndex<'e> {
    outer: &'e RankEnv<'e>,
    indices: &'e [(&'e str, i64)],
}

impl<'e> WithIndex<'e> {
    /// Each name has its value; no two are the same.
    pub fn new(outer: &'e RankEnv<'e>, indices: &'e [(&'e str, i64)]) -> WithIndex<'e> {
        WithIndex { outer, indices }
    }
}

impl Env for WithIndex<'_> {
    fn name(&self, name: &str) -> Lookup<Value> {
        match self.indices.iter().find(|(index, _)| *index == name) {
            Some((_, value)) => Lookup::Found(Value::Int(*value)),
            None => self.outer.name(name),
        }
    }

    fn communicator(&self, name: &str) -> Lookup<Member> {
        self.outer.communicator(name)
    }

    fn buffer_len(&self, name: &str) -> Lookup<i64> {
        self.outer.buffer_len(name)
    }

    fn known(&self) -> Vec<&str> {
        let mut known = self.outer.known();
        known.extend(self.indices.iter().map(|(name, _)| *name));
        known
    }
}
