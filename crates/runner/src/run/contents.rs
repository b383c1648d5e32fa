//! What buffers hold at first, and what feeds give them step by step.

use std::path::Path;

use squall_core::{BufferDecl, Code, Diagnostic, Feed, Label, Scalar};

use crate::codes;
use crate::expr::{Env, Mention, Value};
use crate::files::{Array, ArrayFile, FileError, init, npy, random, safetensors, shard};
use crate::manifest::model::{self, Init, Shard};
use crate::manifest::place::Formula;
use crate::manifest::template::Template;
use crate::resolve::{Job, WithIndex};

type Made<T> = Result<T, Box<Diagnostic>>;

/// Makes the contents of one rank's buffers.
pub(super) struct Contents<'a> {
    pub(super) job: &'a Job<'a>,
    /// Where the manifest's file names begin.
    pub(super) folder: &'a Path,
}

impl Contents<'_> {
    /// The first contents of a buffer that has an `init`.
    pub(super) fn init(&self, rank: u32, place: usize, init: &Init) -> Made<Vec<u8>> {
        let decl = &self.job.graphs[rank as usize].buffers()[place];
        let env = self.job.env(rank);
        let at = Spot { rank, decl, code: codes::CONTENTS };
        let seed = self.job.manifest.pipeline.seed.value;
        let stream = || random::Stream::new(seed, &decl.name, rank.into());
        let number = |formula: &Formula| at.number(&env, formula);
        match init {
            Init::Fill(formula) if !mentions_index(formula) => {
                init::fill(decl.dtype, decl.len(), number(formula)?).map_err(|e| at.error(formula, &e))
            }
            Init::Fill(formula) => init::fill_with(decl.dtype, decl.len(), |index| {
                let env = WithIndex::new(&env, index);
                at.number(&env, formula).map_err(Fault::Made)
            })
            .map_err(|fault| match fault {
                Fault::Made(problem) => problem,
                Fault::Init(error) => at.error(formula, &error),
            }),
            Init::Values(formulas) => {
                let values = formulas.iter().map(number).collect::<Made<Vec<Scalar>>>()?;
                init::values(decl.dtype, decl.len(), &values).map_err(|e| at.whole(&e))
            }
            Init::Iota => init::iota(decl.dtype, decl.len()).map_err(|e| at.whole(&e)),
            Init::Uniform { low, high } => {
                random::uniform(decl.dtype, decl.len(), number(low)?, number(high)?, &stream())
                    .map_err(|e| at.error(low, &e))
            }
            Init::Normal { mean, std } => {
                let (mean_value, std_value) = (number(mean)?.as_f64(), number(std)?.as_f64());
                random::normal(decl.dtype, decl.len(), mean_value, std_value, &stream())
                    .map_err(|e| at.error(std, &e))
            }
            Init::Npy { file, shard } => {
                let path = self.folder.join(file.for_rank(rank));
                self.array(&at, file, *shard, npy::open(&path, decl.dtype))
            }
            Init::Safetensors { file, tensor, shard } => {
                let path = self.folder.join(file.for_rank(rank));
                self.array(&at, file, *shard, safetensors::open(&path, &tensor.for_rank(rank)))
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
                    if taken != *decl.shape || array.dtype() != decl.dtype {
                        // As a file of just these rows would be refused.
                        array.require(decl.dtype, array.shape())?;
                        return Err(FileError::Shape {
                            file: self.folder.join(file.for_rank(at.rank)),
                            expected: decl.shape.to_vec(),
                            found: taken,
                        });
                    }
                    array.read_rows(rows)
                }
            }
        });
        read.map(|array| array.bytes).map_err(|error| at.file(file, &error))
    }

    /// A rank's rows of an array of this shape.
    fn rows(&self, rank: u32, shape: &[u64]) -> std::ops::Range<u64> {
        let count = shape.first().copied().unwrap_or(1);
        shard::rows(count, rank.into(), self.job.world.size().into()).unwrap_or(0..0)
    }

    /// The feed of a buffer on a rank.
    pub(super) fn feed(&self, rank: u32, place: usize, feed: &model::Feed) -> Made<Box<dyn Feed>> {
        let decl = &self.job.graphs[rank as usize].buffers()[place];
        let at = Spot { rank, decl, code: codes::DATA };
        let path = self.folder.join(feed.file.for_rank(rank));
        let read = npy::open(&path, decl.dtype).and_then(|mut array| {
            let rows = match feed.shard {
                Shard::Whole => 0..array.shape().first().copied().unwrap_or(0),
                Shard::Rows => self.rows(rank, array.shape()),
            };
            // All but the first axis must be the buffer's.
            let batch = decl.shape.first().copied().unwrap_or(0);
            array.require(decl.dtype, array.shape())?;
            if array.shape().is_empty() || with_rows(array.shape(), batch) != *decl.shape {
                let expected =
                    std::iter::once(rows.end - rows.start).chain(decl.shape.iter().skip(1).copied());
                return Err(FileError::Shape {
                    file: path.clone(),
                    expected: expected.collect(),
                    found: array.shape().to_vec(),
                });
            }
            array.read_rows(rows)
        });
        let array = read.map_err(|error| at.file(&feed.file, &error))?;
        if array.bytes.is_empty() && !decl.is_empty() {
            let message = format!("the feed of `{}` has no rows for rank {rank}", decl.name);
            let label = Label::at(feed.file.place.span(), "").on_rank(rank);
            return Err(Box::new(Diagnostic::error(codes::DATA, message, label)));
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

enum Fault {
    Made(Box<Diagnostic>),
    Init(init::InitError),
}

impl From<init::InitError> for Fault {
    fn from(error: init::InitError) -> Fault {
        Fault::Init(error)
    }
}

/// Whose contents are made, for messages.
struct Spot<'a> {
    rank: u32,
    decl: &'a BufferDecl,
    code: Code,
}

impl Spot<'_> {
    fn number(&self, env: &dyn Env, formula: &Formula) -> Made<Scalar> {
        match formula.eval(env) {
            Ok(Value::Int(int)) => Ok(Scalar::Int(int)),
            Ok(Value::Float(float)) => Ok(Scalar::Float(float)),
            Ok(other) => {
                Err(self.error(formula, &format!("it is {}, and a number is needed", other.type_name())))
            }
            Err(error) => {
                let mut problem = error.diagnostic().unwrap_or_else(|| {
                    Diagnostic::error(self.code, error.to_string(), Label::at(error.span, ""))
                });
                problem.primary.rank = Some(self.rank);
                Err(Box::new(problem))
            }
        }
    }

    fn error(&self, formula: &Formula, error: &dyn std::fmt::Display) -> Box<Diagnostic> {
        let label = Label::at(formula.place.span(), "").on_rank(self.rank);
        Box::new(Diagnostic::error(self.code, self.message(error), label))
    }

    fn whole(&self, error: &dyn std::fmt::Display) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(
            self.code,
            self.message(error),
            Label::at(self.decl.span, "").on_rank(self.rank),
        ))
    }

    fn file(&self, file: &Template, error: &FileError) -> Box<Diagnostic> {
        let label = Label::at(file.place.span(), "").on_rank(self.rank);
        Box::new(Diagnostic::error(codes::DATA, self.message(error), label))
    }

    fn message(&self, error: &dyn std::fmt::Display) -> String {
        format!("buffer `{}`: {error}", self.decl.name)
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
