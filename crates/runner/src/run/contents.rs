//! What buffers hold at first, and what feeds give them step by step.

mod check;

use std::fmt::Display;
use std::path::Path;

use squall_core::{
    BufferDecl, BufferId, Code, Diagnostic, Feed, GroupError, Label, PlanGroup, Problems, Scalar, Span,
    Upload,
};

use super::RunError;
use crate::codes;
use crate::expr::{Env, Mention, Value};
use crate::files::init::InitError;
use crate::files::{Array, ArrayFile, FileError, init, npy, printable, random, safetensors, shard};
use crate::manifest::model::{self, Init, Shard};
use crate::manifest::place::{At, Formula};
use crate::manifest::template::Template;
use crate::resolve::{Job, RankEnv, WithIndex};

pub(super) use check::check;

type Made<T> = Result<T, Fault>;

/// Why a buffer's contents could not be made.
enum Fault {
    /// The manifest or a file is wrong; others may be too.
    Refused(Box<Diagnostic>),
    /// The run ends here.
    Ended(Box<RunError>),
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Fault {
        Fault::Ended(Box::new(error))
    }
}

impl From<GroupError> for Fault {
    fn from(error: GroupError) -> Fault {
        RunError::from(error).into()
    }
}

/// Makes the contents of all ranks' buffers, one buffer of one rank at a time.
pub(super) struct Contents<'a> {
    pub(super) job: &'a Job<'a>,
    /// Where the manifest's file names begin.
    pub(super) folder: &'a Path,
    /// Asked now and then: whether to give up.
    pub(super) stopped: &'a dyn Fn() -> bool,
}

impl Contents<'_> {
    /// Gives every buffer of every rank its first contents, or its feed. Reports all that is wrong, not the first alone.
    pub(super) fn fill(&self, group: &mut PlanGroup) -> Result<(), RunError> {
        let mut problems: Vec<Diagnostic> = Vec::new();
        for graph in &self.job.graphs {
            for (place, used) in graph.uses().into_iter().enumerate() {
                if !used || graph.buffers()[place].upload == Upload::Never {
                    continue;
                }
                match self.give(graph.rank(), place, group, problems.is_empty()) {
                    Ok(()) => {}
                    Err(Fault::Refused(problem)) => problems.push(*problem),
                    Err(Fault::Ended(error)) => return Err(*error),
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).folded().into()) }
    }

    /// Makes one buffer's contents or feed, and hands them over if all went well so far.
    fn give(&self, rank: u32, place: usize, group: &mut PlanGroup, well: bool) -> Made<()> {
        if (self.stopped)() {
            return Err(RunError::Interrupted.into());
        }
        let (declared, buffer) = (&self.job.manifest.buffers[place], BufferId(place as u32));
        if let Some(feed) = &declared.feed {
            let feed = self.feed(rank, place, &feed.value)?;
            if well {
                group.feed(rank, buffer, feed)?;
            }
        } else if let Some(init) = &declared.init {
            let bytes = self.init(rank, place, init)?;
            if well {
                group.write_bytes(rank, buffer, &bytes)?;
            }
        }
        Ok(())
    }

    /// The first contents of a buffer that has an `init`.
    fn init(&self, rank: u32, place: usize, init: &At<Init>) -> Made<Vec<u8>> {
        let env = self.job.env(rank);
        let made = self.contents(&env, place, init);
        match (made, env.take_problems().into_iter().next()) {
            // An expression failed since a param in it did, which is the fault to tell.
            (Err(Fault::Refused(_)), Some(cause)) => Err(Fault::Refused(Box::new(cause))),
            (made, _) => made,
        }
    }

    fn contents(&self, env: &RankEnv<'_>, place: usize, init: &At<Init>) -> Made<Vec<u8>> {
        let rank = env.rank();
        let decl = &self.job.graphs[rank as usize].buffers()[place];
        let at = Spot { rank, decl, span: init.span, code: codes::CONTENTS, tensor: None };
        let seed = self.job.manifest.pipeline.seed.value;
        let stream = || random::Stream::new(seed, &decl.name, rank.into());
        let number = |formula: &Formula| at.number(env, formula);
        match &init.value {
            Init::Fill(formula) if !mentions_index(formula) => {
                init::fill(decl.dtype, decl.len(), number(formula)?).map_err(|error| at.init(formula, error))
            }
            Init::Fill(formula) => init::fill_with(decl.dtype, decl.len(), |index| {
                if index.is_multiple_of(1 << 14) && (self.stopped)() {
                    return Err(Filling::Fault(RunError::Interrupted.into()));
                }
                at.number(&WithIndex::new(env, &[("i", index as i64)]), formula).map_err(Filling::Fault)
            })
            .map_err(|error| match error {
                Filling::Fault(fault) => fault,
                Filling::Init(error) => at.init(formula, error),
            }),
            Init::Values(formulas) => {
                let values = formulas.iter().map(number).collect::<Made<Vec<Scalar>>>()?;
                init::values(decl.dtype, decl.len(), &values).map_err(|error| at.whole(error))
            }
            Init::Iota => init::iota(decl.dtype, decl.len()).map_err(|error| at.whole(error)),
            Init::Uniform { low, high } => {
                random::uniform(decl.dtype, decl.len(), number(low)?, number(high)?, &stream())
                    .map_err(|error| at.init(low, error))
            }
            Init::Normal { mean, std } => {
                let (mean_value, std_value) = (number(mean)?.as_f64(), number(std)?.as_f64());
                random::normal(decl.dtype, decl.len(), mean_value, std_value, &stream())
                    .map_err(|error| at.init(std, error))
            }
            Init::Npy { file, shard } => {
                let path = self.folder.join(file.for_rank(rank));
                self.array(&at, file, *shard, npy::open(&path, decl.dtype))
            }
            Init::Safetensors { file, tensor, shard } => {
                let path = self.folder.join(file.for_rank(rank));
                let tensor = tensor.for_rank(rank);
                let opened = safetensors::open(&path, &tensor);
                self.array(&Spot { tensor: Some(tensor), ..at }, file, *shard, opened)
            }
        }
    }

    /// A file's array, or this rank's rows of it, as a buffer's contents.
    fn array(
        &self,
        at: &Spot<'_>,
        file: &Template,
        shard: Shard,
        opened: Result<ArrayFile, FileError>,
    ) -> Made<Vec<u8>> {
        let read = opened.and_then(|mut array| {
            let decl = at.decl;
            match shard {
                Shard::Whole => {
                    array.require(decl.dtype, &decl.shape)?;
                    array.read()
                }
                Shard::Rows => {
                    let rows = self.rows(at.rank, array.shape());
                    let taken = with_rows(array.shape(), rows.end - rows.start);
                    array.require_dtype(decl.dtype)?;
                    if taken != *decl.shape {
                        return Err(FileError::Share {
                            file: self.folder.join(file.for_rank(at.rank)),
                            expected: decl.shape.to_vec(),
                            rank: at.rank,
                            found: taken,
                            whole: array.shape().to_vec(),
                        });
                    }
                    array.read_rows(rows)
                }
            }
        });
        read.map(|array| array.bytes).map_err(|error| at.file(file, error))
    }

    /// A rank's rows of an array of this shape.
    fn rows(&self, rank: u32, shape: &[u64]) -> std::ops::Range<u64> {
        let count = shape.first().copied().unwrap_or(1);
        shard::rows(count, rank.into(), self.job.world.size().into()).unwrap_or(0..0)
    }

    /// The feed of a buffer on a rank.
    fn feed(&self, rank: u32, place: usize, feed: &model::Feed) -> Made<Box<dyn Feed>> {
        let decl = &self.job.graphs[rank as usize].buffers()[place];
        let at = Spot { rank, decl, span: Some(feed.file.place.span()), code: codes::DATA, tensor: None };
        let path = self.folder.join(feed.file.for_rank(rank));
        let read = npy::open(&path, decl.dtype).and_then(|mut array| {
            let rows = match feed.shard {
                Shard::Whole => 0..array.shape().first().copied().unwrap_or(0),
                Shard::Rows => self.rows(rank, array.shape()),
            };
            // All but the first axis must be the buffer's.
            let batch = decl.shape.first().copied().unwrap_or(0);
            array.require_dtype(decl.dtype)?;
            if array.shape().is_empty() || with_rows(array.shape(), batch) != *decl.shape {
                let all = array.shape().first().copied().unwrap_or(batch);
                return Err(FileError::Shape {
                    file: path.clone(),
                    expected: with_rows(&decl.shape, all),
                    found: array.shape().to_vec(),
                });
            }
            array.read_rows(rows)
        });
        let array = read.map_err(|error| at.file(&feed.file, error))?;
        if array.bytes.is_empty() && !decl.is_empty() {
            let message = format!("buffer `{}`: `{}` has no rows for rank {rank}", decl.name, path.display());
            let label = Label::at(feed.file.place.span(), "").on_rank(rank);
            return Err(Fault::Refused(Box::new(Diagnostic::error(codes::DATA, message, label))));
        }
        Ok(Box::new(Rows { array }))
    }
}

/// The shape with another number of rows.
fn with_rows(shape: &[u64], rows: u64) -> Vec<u64> {
    std::iter::once(rows).chain(shape.iter().skip(1).copied()).collect()
}

/// A feed that goes round and round the rows of an array.
struct Rows {
    array: Array,
}

impl Feed for Rows {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        let data = &self.array.bytes;
        if data.is_empty() {
            return Ok(()); // checked: then `out` is empty too
        }
        // Both lengths are whole rows, so that this is a row's first byte; 128 bits, since a step may be any number.
        let mut at = (u128::from(step) * out.len() as u128 % data.len() as u128) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let count = rest.len().min(data.len() - at);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&data[at..at + count]);
            (rest, at) = (later, 0);
        }
        Ok(())
    }
}

/// A fault of the expression that fills a buffer, or of a value that it makes.
enum Filling {
    Fault(Fault),
    Init(InitError),
}

impl From<InitError> for Filling {
    fn from(error: InitError) -> Filling {
        Filling::Init(error)
    }
}

/// Whose contents are made, for messages.
struct Spot<'a> {
    rank: u32,
    decl: &'a BufferDecl,
    /// Where the contents are given.
    span: Option<Span>,
    code: Code,
    /// The tensor of the file that they are read from.
    tensor: Option<String>,
}

impl Spot<'_> {
    fn number(&self, env: &dyn Env, formula: &Formula) -> Made<Scalar> {
        match formula.eval(env) {
            Ok(Value::Int(int)) => Ok(Scalar::Int(int)),
            Ok(Value::Float(float)) => Ok(Scalar::Float(float)),
            Ok(other) => {
                let problem = format!("it is {}, and a number is needed", other.type_name());
                Err(self.refused(self.code, formula.place.span(), &problem))
            }
            Err(error) => {
                let mut problem = error.diagnostic().unwrap_or_else(|| {
                    Diagnostic::error(self.code, error.to_string(), Label::at(error.span, ""))
                });
                problem.primary.rank = Some(self.rank);
                Err(Fault::Refused(Box::new(problem)))
            }
        }
    }

    fn init(&self, formula: &Formula, error: InitError) -> Fault {
        self.made(Some(formula.place.span()), error)
    }

    fn whole(&self, error: InitError) -> Fault {
        self.made(self.span, error)
    }

    fn made(&self, span: Option<Span>, error: InitError) -> Fault {
        match error {
            InitError::Memory { .. } => RunError::Environment(self.message(&error)).into(),
            error => self.refused(self.code, span, &error),
        }
    }

    fn file(&self, file: &Template, error: FileError) -> Fault {
        match error {
            FileError::Memory { .. } => RunError::Environment(self.message(&error)).into(),
            // A file of tensors is told apart from its one tensor that does not fit.
            error @ (FileError::Shape { .. } | FileError::Share { .. } | FileError::DType { .. }) => {
                let tensor = self.tensor.as_ref().map(|name| format!("tensor `{}`: ", printable(name)));
                self.refused(
                    codes::DATA,
                    file.place.span(),
                    &format!("{}{error}", tensor.unwrap_or_default()),
                )
            }
            error => self.refused(codes::DATA, file.place.span(), &error),
        }
    }

    fn refused(&self, code: Code, span: impl Into<Option<Span>>, problem: &dyn Display) -> Fault {
        let label = Label::at(span, "").on_rank(self.rank);
        Fault::Refused(Box::new(Diagnostic::error(code, self.message(problem), label)))
    }

    fn message(&self, problem: &dyn Display) -> String {
        format!("buffer `{}`: {problem}", self.decl.name)
    }
}

fn mentions_index(formula: &Formula) -> bool {
    let mut mentions = false;
    formula.expr.mentions(&mut |mention, _| mentions |= mention == Mention::Name("i"));
    mentions
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::DType;

    #[test]
    fn rows_wrap_at_any_batch() {
        let array = Array { dtype: DType::U8, shape: vec![3, 1], bytes: vec![1, 2, 3] };
        let mut feed = Rows { array };
        let mut out = [0; 2];
        for (step, expected) in [(0, [1, 2]), (1, [3, 1]), (2, [2, 3]), (3, [1, 2]), (u64::MAX, [1, 2])] {
            feed.fill(step, &mut out).unwrap();
            assert_eq!(out, expected, "step {step}");
        }
        let mut long = [0; 7];
        feed.fill(1, &mut long).unwrap();
        assert_eq!(long, [2, 3, 1, 2, 3, 1, 2]);
    }
}
