//! Slices by which the ranks split a file, and what such a split leaves out.

use std::ops::Range;
use std::path::Path;

use squall_core::{Diagnostic, Label};

use super::{Spot, part};
use crate::codes;
use crate::files::{npy, safetensors};
use crate::manifest::model::{DataFile, Init, Part, SliceRange};
use crate::manifest::place::At;
use crate::render::count;
use crate::resolve::Job;

/// A warning for each slice that deals an axis to the ranks and leaves a remainder to nobody: they take it from its beginning,
/// all in different parts, and fewer places are left than there are ranks. Files that cannot be looked at are left to the run.
pub(super) fn dropped(job: &Job<'_>, folder: &Path) -> Vec<Diagnostic> {
    let buffers = job.manifest.buffers.iter().enumerate();
    buffers
        .filter_map(|(place, buffer)| {
            let (file, tensor) = match (&buffer.feed, buffer.init.as_ref().map(|init| &init.value)) {
                (Some(feed), _) => (&feed.value.file, None),
                (None, Some(Init::Npy(file))) => (file, None),
                (None, Some(Init::Safetensors { file, tensor })) => (file, Some(tensor)),
                _ => return None,
            };
            let Part::Slice(slice) = &file.part else { return None };
            let bounds = slice.value.iter().flat_map(|range| range.start.iter().chain(&range.end));
            if file.name.depends_on_rank()
                || !bounds.into_iter().any(|bound| job.symbols.depends_on_rank(bound))
            {
                return None;
            }
            let path = folder.join(file.name.for_rank(0));
            let opened = match tensor {
                None => npy::open(&path, buffer.dtype.value),
                Some(tensor) => safetensors::open(&path, &tensor.for_rank(0)),
            };
            axes(job, place, file, slice, opened.ok()?.shape())
        })
        .collect()
}

fn axes(
    job: &Job<'_>,
    place: usize,
    file: &DataFile,
    slice: &At<Vec<SliceRange>>,
    shape: &[u64],
) -> Option<Diagnostic> {
    let mut taken: Vec<Vec<Range<u64>>> = vec![Vec::new(); slice.value.len()];
    for graph in job.graphs.iter().filter(|graph| graph.uses()[place]) {
        let decl = &graph.buffers()[place];
        let at = Spot { rank: graph.rank(), decl, span: None, code: codes::DATA, tensor: None };
        // What is wrong with a range is told when the file is read.
        let ranges = part::ranges(&at, &job.env(graph.rank()), job.world.size(), &file.part, shape).ok()?;
        taken.iter_mut().zip(ranges).for_each(|(taken, range)| taken.push(range));
    }
    let dropped = taken.iter_mut().zip(shape).zip(&slice.value).find_map(|((taken, &length), range)| {
        let left = remainder(taken, length)?;
        Some((left, length, range))
    });
    let (left, length, range) = dropped?;
    let name = &job.manifest.buffers[place].name.value;
    let message = format!(
        "the slices of `{name}` leave out the last {} of {length}: no rank takes {}",
        if left == 1 { "place".to_owned() } else { format!("{left} places") },
        if left == 1 { "it" } else { "them" },
    );
    let label = Label::at(
        range.span,
        format!("dealt to {}", count(taken.first().map_or(0, Vec::len) as u64, "rank")),
    );
    let help = "`offset(n) : offset(n) + share(n)` deals all of them, the first ranks getting one more";
    Some(Diagnostic::warning(codes::DROPPED_ROWS, message, label).with_help(help))
}

/// How many places are left of an axis that ranks take in different parts side by side from 0: `None` if nothing, or so much that
/// it is no remainder.
fn remainder(taken: &mut [Range<u64>], length: u64) -> Option<u64> {
    taken.sort_by_key(|range| (range.start, range.end));
    let are_apart = taken.windows(2).all(|pair| pair[0].end == pair[1].start);
    let (first, last) = (taken.first()?, taken.last()?);
    let left = length.checked_sub(last.end)?;
    (taken.len() > 1 && are_apart && first.start == 0 && 0 < left && left < taken.len() as u64)
        .then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remainder_is_what_a_rounded_split_leaves() {
        let left = |mut taken: Vec<Range<u64>>, length| remainder(&mut taken, length);
        assert_eq!(left(vec![0..3, 6..9, 3..6], 11), Some(2));
        assert_eq!(left(vec![0..3, 3..6, 6..9], 9), None);
        assert_eq!(left(vec![0..3, 3..6, 6..9], 12), None); // another part of the file is for something else
        assert_eq!(left(vec![0..4, 3..7], 8), None); // with halos
        assert_eq!(left(vec![1..4, 4..7], 8), None);
        assert_eq!(left(vec![0..8, 0..8], 9), None); // all the same
        assert_eq!(left(std::iter::once(0..8).collect(), 9), None);
        assert_eq!(left(Vec::new(), 9), None);
    }
}
