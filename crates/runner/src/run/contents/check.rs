//! What can be told of buffers' first contents without reading a file or making all elements.

use squall_core::{Diagnostic, Scalar, Upload};

use super::{Fault, Made, Spot, mentions_index};
use crate::codes;
use crate::files::init::InitError;
use crate::files::{init, random};
use crate::manifest::model::{FeedEnd, Init};
use crate::manifest::place::Formula;
use crate::resolve::{Job, RankEnv, WithIndex};

/// Faults gathered before further ranks are left alone.
const MAX_PROBLEMS: usize = 256;

/// What is wrong with the values that buffers are to begin with, on the ranks that have the buffers. Of a fill over `i`
/// the first and the last element are tried.
pub(crate) fn check(job: &Job<'_>) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    // Of each buffer, how long it was on the last rank it was looked at, if that is all its contents depend on.
    let mut seen: Vec<Option<u64>> = vec![None; job.manifest.buffers.len()];
    for graph in &job.graphs {
        let mut env = None;
        for (place, used) in graph.uses().into_iter().enumerate() {
            let (declared, decl) = (&job.manifest.buffers[place], &graph.buffers()[place]);
            if let Some(feed) = declared.feed.as_ref().filter(|_| used)
                && let FeedEnd::Pad(Some(formula)) = &feed.value.end
                && seen[place].is_none()
            {
                seen[place] = (!job.symbols.depends_on_rank(formula)).then_some(decl.len());
                let env = env.get_or_insert_with(|| job.env(graph.rank()));
                let at = Spot { rank: graph.rank(), decl, span: None, code: codes::FEED, tensor: None };
                match pad(&at, env, Some(formula)) {
                    Err(Fault::Refused(problem)) => {
                        problems.push(env.take_problems().pop().unwrap_or(*problem))
                    }
                    _ => problems.extend(env.take_problems()),
                }
                continue;
            }
            let Some(init) = declared.init.as_ref().filter(|_| used && decl.upload != Upload::Never) else {
                continue;
            };
            if seen[place] == Some(decl.len()) {
                continue;
            }
            seen[place] = (!depends(job, &init.value)).then_some(decl.len());
            let env = env.get_or_insert_with(|| job.env(graph.rank()));
            let at = Spot { rank: graph.rank(), decl, span: init.span, code: codes::CONTENTS, tensor: None };
            let tried = try_values(&at, env, &init.value);
            let causes = env.take_problems();
            match tried {
                Err(Fault::Refused(problem)) if causes.is_empty() => problems.push(*problem),
                // A param in it failed, which is the fault to tell. Memory is a matter of the run.
                _ => problems.extend(causes),
            }
        }
        if problems.len() > MAX_PROBLEMS {
            break;
        }
    }
    problems
}

/// The element that a feed is padded with: 0 unless it says otherwise.
pub(super) fn pad(at: &Spot<'_>, env: &RankEnv<'_>, formula: Option<&Formula>) -> Made<Vec<u8>> {
    let Some(formula) = formula else { return Ok(vec![0; at.decl.dtype.size() as usize]) };
    let at = Spot { code: codes::FEED, span: None, tensor: None, ..*at };
    init::fill(at.decl.dtype, 1, at.number(env, formula)?).map_err(|error| at.init(formula, error))
}

/// Whether contents differ between ranks that have as many elements.
fn depends(job: &Job<'_>, init: &Init) -> bool {
    let depends = |formula: &Formula| job.symbols.depends_on_rank(formula);
    match init {
        Init::Fill(formula) => depends(formula),
        Init::Values(formulas) => formulas.iter().any(depends),
        Init::Uniform { low: a, high: b } | Init::Normal { mean: a, std: b } => depends(a) || depends(b),
        Init::Iota | Init::Npy(_) | Init::Safetensors { .. } => false,
    }
}

/// Makes what [`super::Contents`] makes, of no elements where it need not be made of all.
fn try_values(at: &Spot<'_>, env: &RankEnv<'_>, init: &Init) -> Made<()> {
    let (dtype, len) = (at.decl.dtype, at.decl.len());
    let stream = random::Stream::new(0, &at.decl.name, 0);
    let number = |formula: &Formula| at.number(env, formula);
    let one = |index: u64, value: Scalar| {
        init::fill(dtype, 0, value).map_err(|error| match error {
            InitError::Value(error) => InitError::Element { index, error },
            other => other,
        })
    };
    let made = match init {
        Init::Fill(formula) if !mentions_index(formula) => {
            init::fill(dtype, 0, number(formula)?).map_err(|error| at.init(formula, error))
        }
        Init::Fill(formula) => {
            for index in [0, len.saturating_sub(1)].into_iter().filter(|&index| index < len) {
                let value = at.number(&WithIndex::new(env, &[("i", index as i64)]), formula)?;
                one(index, value).map_err(|error| at.init(formula, error))?;
            }
            return Ok(());
        }
        Init::Values(formulas) => {
            let values = formulas.iter().map(number).collect::<Made<Vec<Scalar>>>()?;
            init::values(dtype, len, &values).map_err(|error| at.whole(error))
        }
        Init::Iota => match len.checked_sub(1).map(|last| (last, i64::try_from(last))) {
            Some((last, Ok(value))) => one(last, Scalar::Int(value)).map_err(|error| at.whole(error)),
            _ => return Ok(()),
        },
        Init::Uniform { low, high } => random::uniform(dtype, 0, number(low)?, number(high)?, &stream)
            .map_err(|error| at.init(low, error)),
        Init::Normal { mean, std } => {
            random::normal(dtype, 0, number(mean)?.as_f64(), number(std)?.as_f64(), &stream)
                .map_err(|error| at.init(std, error))
        }
        Init::Npy(_) | Init::Safetensors { .. } => return Ok(()),
    };
    made.map(drop)
}
