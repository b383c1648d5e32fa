//! What buffers hold at first, and what feeds give them step by step.

mod check;
mod feed;
mod part;
mod schedule;
mod split;

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
use crate::files::{Array, ArrayFile, FileError, init, npy, printable, random, safetensors};
use crate::manifest::model::{self, DataFile, FeedEnd, Init, Part};
use crate::manifest::place::{At, Formula, FormulaError};
use crate::resolve::{Job, RankEnv, WithIndex};

use self::feed::{End, Rows};

pub(super) use check::check;
pub use schedule::Schedule;

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
    /// How the feeds divide the steps into epochs.
    pub(super) schedule: &'a Schedule,
    /// Asked now and then: whether to give up.
    pub(super) stopped: &'a dyn Fn() -> bool,
}

impl Contents<'_> {
    /// Gives every buffer of every rank its first contents, or its feed. Reports all that is wrong, not the first alone.
    pub(super) fn fill(&self, group: &mut PlanGroup) -> Result<(), RunError> {
        let mut problems: Vec<Diagnostic> = Vec::new();
        for graph in group.graphs().to_vec() {
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
            Init::Npy(file) => {
                let path = self.folder.join(file.name.for_rank(rank));
                let mut array = npy::open(&path, decl.dtype).map_err(|error| at.file(file, error))?;
                Ok(self.array(&at, env, file, &mut array, false)?.bytes)
            }
            Init::Safetensors { file, tensor } => {
                let path = self.folder.join(file.name.for_rank(rank));
                let tensor = tensor.for_rank(rank);
                let opened = safetensors::open(&path, &tensor);
                let at = Spot { tensor: Some(tensor), ..at };
                let mut array = opened.map_err(|error| at.file(file, error))?;
                Ok(self.array(&at, env, file, &mut array, false)?.bytes)
            }
        }
    }

    /// What a rank takes of a file's array, in the buffer's dtype and shape; for a feed with any number of rows.
    fn array(
        &self,
        at: &Spot<'_>,
        env: &RankEnv<'_>,
        file: &DataFile,
        array: &mut ArrayFile,
        feeds: bool,
    ) -> Made<Array> {
        let decl = at.decl;
        let ranges = part::ranges(at, env, self.job.world.size(), &file.part, array.shape())?;
        let check = |array: &ArrayFile| {
            if !file.convert {
                array.require_dtype(decl.dtype)?;
            }
            let found = array.sliced_shape(&ranges)?;
            let rows = found.first().copied().filter(|_| feeds);
            let expected = rows.map_or_else(|| decl.shape.to_vec(), |rows| with_rows(&decl.shape, rows));
            if found == expected {
                return Ok(());
            }
            let (path, whole, rank) =
                (self.folder.join(file.name.for_rank(at.rank)), array.shape().to_vec(), at.rank);
            Err(match &file.part {
                Part::Rows if !feeds => FileError::Share { file: path, expected, rank, found, whole },
                Part::Slice(_) => FileError::Part { file: path, expected, rank, found, whole },
                // The rows of a feed are any number: it is the other axes that do not fit.
                Part::Rows | Part::Whole => {
                    let all = whole.first().copied().filter(|_| feeds);
                    let expected = all.map_or(expected.clone(), |all| with_rows(&expected, all));
                    FileError::Shape { file: path, expected, found: whole }
                }
            })
        };
        check(array).map_err(|error| at.file(file, error))?;
        let read = array.read_slice(&ranges).map_err(|error| at.file(file, error))?;
        read.convert(decl.dtype).map_err(|error| {
            let name = self.folder.join(file.name.for_rank(at.rank));
            match error {
                InitError::Memory { .. } => RunError::Environment(at.message(&error)).into(),
                error => {
                    let problem = format!("`{}` cannot be converted: {error}", name.display());
                    at.refused(codes::DATA, file.name.place.span(), &problem)
                }
            }
        })
    }

    /// The feed of a buffer on a rank.
    fn feed(&self, rank: u32, place: usize, feed: &model::Feed) -> Made<Box<dyn Feed>> {
        let decl = &self.job.graphs[rank as usize].buffers()[place];
        let file = &feed.file;
        let span = Some(file.name.place.span());
        let at = Spot { rank, decl, span, code: codes::DATA, tensor: None };
        let env = self.job.env(rank);
        let path = self.folder.join(file.name.for_rank(rank));
        let mut opened = npy::open(&path, decl.dtype).map_err(|error| at.file(file, error))?;
        if decl.shape.is_empty() || opened.shape().is_empty() {
            let (expected, found) = (decl.shape.to_vec(), opened.shape().to_vec());
            return Err(match decl.shape.is_empty() {
                true => at.refused(
                    codes::DATA,
                    span,
                    &"a feed needs a first axis, the batch, and the shape has no axis",
                ),
                false => at.file(file, FileError::Shape { file: path, expected, found }),
            });
        }
        let array = self.array(&at, &env, file, &mut opened, true)?;
        let rows = array.shape.first().copied().unwrap_or(0);
        let end = match &feed.end {
            FeedEnd::Wrap => End::Wrap,
            FeedEnd::Stop => End::Epoch { batches: self.schedule.stop_epoch, pad: Vec::new() },
            FeedEnd::Pad(pad) => {
                End::Epoch { batches: self.schedule.pad_epoch, pad: check::pad(&at, &env, pad.as_ref())? }
            }
        };
        if rows == 0 && !decl.is_empty() && !matches!(feed.end, FeedEnd::Pad(_)) {
            let problem = format!("`{}` has no rows for rank {rank}", path.display());
            return Err(at.refused(codes::DATA, span, &problem));
        }
        // One order for all feeds that have as many rows, so that they stay together; ranks that share rows share it.
        let of_rank = if matches!(file.part, Part::Rows) { rank } else { 0 };
        let order = feed
            .shuffle
            .then(|| random::Stream::of_orders(self.job.manifest.pipeline.seed.value, of_rank.into()));
        let row = decl.shape.iter().skip(1).product::<u64>().saturating_mul(decl.dtype.size());
        let rows = Rows::new(array.bytes, rows, row, end, order);
        let rows =
            rows.ok_or_else(|| RunError::Environment(at.message(&"no memory for the order of its rows")))?;
        Ok(Box::new(rows))
    }
}

/// The shape with another number of rows.
fn with_rows(shape: &[u64], rows: u64) -> Vec<u64> {
    std::iter::once(rows).chain(shape.iter().skip(1).copied()).collect()
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
            Err(error) => Err(self.fault(&error)),
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

    /// A whole number.
    fn int(&self, env: &dyn Env, formula: &Formula) -> Made<i64> {
        formula.eval_int(env).map_err(|error| self.fault(&error))
    }

    /// A fault of an expression.
    fn fault(&self, error: &FormulaError) -> Fault {
        let mut problem = error
            .diagnostic()
            .unwrap_or_else(|| Diagnostic::error(self.code, error.to_string(), Label::at(error.span, "")));
        problem.primary.rank = Some(self.rank);
        Fault::Refused(Box::new(problem))
    }

    fn file(&self, file: &DataFile, error: FileError) -> Fault {
        let span = match (&error, &file.part) {
            (
                FileError::Axes { .. } | FileError::Slice { .. } | FileError::Part { .. },
                Part::Slice(slice),
            ) => slice.span,
            _ => Some(file.name.place.span()),
        };
        match error {
            FileError::Memory { .. } => RunError::Environment(self.message(&error)).into(),
            // A file of tensors is told apart from its one tensor that does not fit.
            error @ (FileError::Shape { .. }
            | FileError::Share { .. }
            | FileError::Part { .. }
            | FileError::DType { .. }) => {
                let tensor = self.tensor.as_ref().map(|name| format!("tensor `{}`: ", printable(name)));
                let problem = format!("{}{error}", tensor.unwrap_or_default());
                let fault = self.refused(codes::DATA, span, &problem);
                match (error, fault) {
                    (FileError::DType { .. }, Fault::Refused(problem)) => Fault::Refused(Box::new(
                        problem.with_help("`convert = true` beside it converts the elements"),
                    )),
                    (_, fault) => fault,
                }
            }
            error => self.refused(codes::DATA, span, &error),
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
