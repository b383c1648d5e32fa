//! Which task can have felt the result of which: their depths, over all ranks.

use crate::graph::{Phase, TaskGraph};
use crate::verify::deadlock::Components;
use crate::verify::matching::{self, Units, meets};

/// See [`crate::Verified::depths`].
pub(super) fn depths(graphs: &[TaskGraph], phase: Phase) -> Vec<Vec<u32>> {
    let units = Units::collect(graphs, phase, &[]);
    // Nothing stands against a verified job.
    let matched = matching::check(&units, &mut Vec::new());
    let mut completed: Vec<(u32, u32)> = Vec::with_capacity(units.list.len());
    Components::of(&units, &matched).run(&units, |component, unit| completed.push((component, unit)));

    let mut depths: Vec<Vec<u32>> = graphs.iter().map(|_| Vec::new()).collect();
    for component in completed.chunk_by(|a, b| a.0 == b.0) {
        let ranks = component.iter().map(|&(_, unit)| units.list[unit as usize].rank as usize);
        let before = ranks.clone().map(|rank| alone(&graphs[rank], phase, &mut depths[rank])).max();
        ranks.for_each(|rank| depths[rank].push(before.unwrap_or(0) + 1));
    }
    for (graph, depths) in graphs.iter().zip(&mut depths) {
        alone(graph, phase, depths);
    }
    depths
}

/// Adds the tasks up to a rank's next unit, which wait for nobody; returns the depth of the last.
fn alone(graph: &TaskGraph, phase: Phase, depths: &mut Vec<u32>) -> u32 {
    let mut depth = depths.last().copied().unwrap_or(0);
    for _ in graph.tasks(phase).iter().skip(depths.len()).take_while(|node| !meets(node)) {
        depth += 1;
        depths.push(depth);
    }
    depth
}
