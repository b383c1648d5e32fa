//! Files that a job writes after its last step: which rank writes which, and that no two write one.

use std::cell::RefCell;
use std::collections::BTreeMap;

use squall_core::{Diagnostic, Label};

use super::Job;
use super::names::Symbols;
use crate::codes;
use crate::manifest::model::{SaveFormat, SaveRanks};
use crate::render::count;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, as the manifest gives it for the rank.
    pub file: String,
    /// Its format.
    pub format: SaveFormat,
    /// The buffer, by place.
    pub buffer: usize,
    /// Whose contents.
    pub writers: Writers,
}

/// Whose contents a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writers {
    /// One rank's.
    One(u32),
    /// These ranks', one after another along the first axis.
    All(Vec<u32>),
}

/// What needs no world: two buffers with one file.
pub(super) fn check(symbols: &Symbols<'_>, problems: &RefCell<Vec<Diagnostic>>) {
    let mut files: BTreeMap<String, &crate::manifest::place::Place> = BTreeMap::new();
    for buffer in &symbols.manifest.buffers {
        let Some(save) = &buffer.save else { continue };
        if let SaveRanks::One(rank) = &save.value.ranks
            && symbols.depends.formula(symbols, rank)
        {
            let message = format!("`{}` is saved by one rank, the same for all", buffer.name.value);
            let label = Label::at(rank.place.span(), "depends on the rank that asks");
            problems.borrow_mut().push(Diagnostic::error(codes::SAVE, message, label));
        }
        // Two templates are the same file on every rank, or on none.
        let place = &save.value.file.place;
        if let Some(other) = files.insert(save.value.file.for_rank(0), place) {
            let message = format!("two buffers are saved to `{}`", save.value.file.for_rank(0));
            let report = Diagnostic::error(codes::SAVE, message, Label::at(place.span(), ""));
            let report = report.with_related(Label::at(other.span(), "the other"));
            problems.borrow_mut().push(report.with_help("give each buffer a file of its own"));
        }
    }
}

impl Job<'_> {
    /// Every file to be written, in the order of the buffers and of the ranks.
    ///
    /// # Errors
    /// Two ranks that would write one file; a rank that does not exist or lacks the buffer.
    pub fn targets(&self) -> Result<Vec<Target>, Vec<Diagnostic>> {
        let (mut targets, mut problems) = (Vec::new(), Vec::new());
        if self.manifest.buffers.iter().all(|buffer| buffer.save.is_none()) {
            return Ok(targets);
        }
        let uses: Vec<Vec<bool>> = self.graphs.iter().map(squall_core::TaskGraph::uses).collect();
        for (buffer, declared) in self.manifest.buffers.iter().enumerate() {
            let Some(save) = &declared.save else { continue };
            let file = &save.value.file;
            let holders: Vec<u32> =
                (0..self.world.size()).filter(|&rank| uses[rank as usize][buffer]).collect();
            let error =
                |message: String| Diagnostic::error(codes::SAVE, message, Label::at(file.place.span(), ""));
            let format = save.value.format;
            let mut target = |file: String, writers| targets.push(Target { file, format, buffer, writers });
            let name = &declared.name.value;
            match &save.value.ranks {
                SaveRanks::Each | SaveRanks::Gather if holders.is_empty() => problems.push(
                    error(format!("`{name}` is to be saved, and no rank has it"))
                        .with_help(format!("a rank has the buffers that its tasks name; here no task names `{name}`")),
                ),
                SaveRanks::Each if holders.len() > 1 && !file.depends_on_rank() => problems.push(
                    error(format!("ranks {} and {} would both write `{}`", holders[0], holders[1], file.for_rank(0)))
                        .with_help(format!(
                            "put `{{rank}}` into the name; or write one rank's alone, `save = {{ npy = \"{0}\", rank = 0 }}`, or all in one file, `save = {{ npy = \"{0}\", gather = true }}`",
                            file.for_rank(0)
                        )),
                ),
                SaveRanks::Each => holders.iter().for_each(|&rank| target(file.for_rank(rank), Writers::One(rank))),
                SaveRanks::Gather => match (0..self.world.size()).find(|rank| !holders.contains(rank)) {
                    None => target(file.for_rank(0), Writers::All(holders)),
                    Some(rank) => problems.push(
                        error(format!("all ranks' `{name}` are to be gathered, and rank {rank} has none"))
                            .with_help(format!("a rank has the buffers that its tasks name; no task of rank {rank} names `{name}`")),
                    ),
                },
                SaveRanks::One(formula) => {
                    let env = self.env(0);
                    let rank = env.int(formula);
                    problems.append(&mut env.take_problems());
                    match rank.map(|rank| (rank, u32::try_from(rank).ok().filter(|rank| holders.contains(rank)))) {
                        Some((_, Some(rank))) => target(file.for_rank(rank), Writers::One(rank)),
                        Some((rank, None)) if !(0..i64::from(self.world.size())).contains(&rank) => {
                            let world = count(self.world.size(), "rank");
                            problems.push(error(format!("rank {rank} is to save `{name}`, and the world has {world}")));
                        }
                        Some((rank, None)) => {
                            problems.push(error(format!("rank {rank} is to save `{name}`, and has no such buffer")));
                        }
                        None => {}
                    }
                }
            }
        }
        if problems.is_empty() { Ok(targets) } else { Err(problems) }
    }
}
