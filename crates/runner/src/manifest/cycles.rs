//! Definitions that need each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use squall_core::{Diagnostic, Label, Span};

use super::model::Manifest;
use super::place::Formula;
use crate::codes;

/// A definition with the definitions that it mentions and where it does.
struct Definition<'m> {
    name: &'m str,
    span: Option<Span>,
    needs: Vec<(usize, Span)>,
    /// Of its deepest expression.
    levels: usize,
}

/// How many levels of expressions may stand in each other, counted through the names of definitions: what is worked out
/// by recursion must end before the stack does.
const MAX_LEVELS: usize = 512;

/// Finds each circle among params, the mesh, communicators and the shapes of buffers, whichever branch an expression
/// takes; and chains of definitions that are too long to be followed.
pub(crate) fn check(manifest: &Manifest) -> Vec<Diagnostic> {
    let Manifest { params, communicators, buffers, world, .. } = manifest;
    let mut formulas: Vec<(&str, Option<Span>, Vec<&Formula>)> = Vec::new();
    for param in params {
        let mut of_param = Vec::new();
        param.value.formulas(&mut |formula| of_param.push(formula));
        formulas.push((&param.name.value, param.name.span, of_param));
    }
    for comm in communicators {
        let of_comm = std::iter::once(&comm.color).chain(&comm.key).collect();
        formulas.push((&comm.name.value, comm.name.span, of_comm));
    }
    for buffer in buffers {
        formulas.push((&buffer.name.value, buffer.name.span, buffer.shape.value.iter().collect()));
    }
    if let Some(mesh) = &world.mesh {
        // Where a rank stands on one axis depends on the sizes of the others too.
        formulas.push(("mesh", Some(mesh.span), mesh.axes.iter().map(|axis| &axis.size).collect()));
    }
    formulas.sort_by_key(|(_, span, _)| *span);
    let mut index: BTreeMap<&str, usize> =
        formulas.iter().enumerate().map(|(at, (name, ..))| (*name, at)).collect();
    if let Some(mesh) = &world.mesh
        && let Some(at) = formulas.iter().position(|(_, span, _)| *span == Some(mesh.span))
    {
        index.extend(mesh.axes.iter().map(|axis| (axis.name.value.as_str(), at)));
    }
    let lists: BTreeMap<&str, usize> =
        params.iter().map(|param| (param.name.value.as_str(), param.value.lists())).collect();
    let definitions: Vec<Definition<'_>> = formulas
        .iter()
        .map(|(name, span, formulas)| {
            let (mut needs, mut known) = (Vec::new(), BTreeSet::new());
            for formula in formulas {
                formula.expr.mentions(&mut |mention, range| {
                    let needed = mention.name().and_then(|name| index.get(name));
                    // What is needed twice makes one circle.
                    let needed = needed.filter(|needed| known.insert(**needed));
                    needs.extend(needed.map(|needed| (*needed, formula.place.part(range))));
                });
            }
            let levels = formulas.iter().map(|formula| formula.expr.levels()).max().unwrap_or(0);
            let levels = levels + lists.get(name).copied().unwrap_or(0);
            Definition { name, span: *span, needs, levels }
        })
        .collect();
    let circles = circles(&definitions);
    if circles.is_empty() {
        return too_long(&definitions).into_iter().collect();
    }
    circles.iter().map(|circle| describe(&definitions, circle)).collect()
}

/// The first definition that more than so many levels hang on, if there is one. There are no circles.
fn too_long(definitions: &[Definition<'_>]) -> Option<Diagnostic> {
    let mut levels: Vec<Option<usize>> = vec![None; definitions.len()];
    for start in 0..definitions.len() {
        // The path from `start`: each definition with the number of its needs that are known.
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, known)) = path.last_mut() {
            let needs = &definitions[*at].needs;
            match needs.get(*known) {
                Some((needed, _)) if levels[*needed].is_none() => path.push((*needed, 0)),
                Some(_) => *known += 1,
                None => {
                    let below = needs.iter().filter_map(|(needed, _)| levels[*needed]).max().unwrap_or(0);
                    levels[*at] = Some(below + definitions[*at].levels);
                    path.pop();
                }
            }
        }
    }
    let at = levels.iter().position(|levels| levels.is_some_and(|levels| levels > MAX_LEVELS))?;
    let Definition { name, span, .. } = definitions[at];
    let message = format!("`{name}` hangs on other definitions more than {MAX_LEVELS} levels deep");
    Some(
        Diagnostic::error(codes::EXPR_LIMIT, message, Label::at(span, ""))
            .with_help("let definitions need fewer others in a row"),
    )
}

/// Each way back that a depth-first walk meets: the definitions of the circle, each with the place where it
/// mentions the next.
fn circles(definitions: &[Definition<'_>]) -> Vec<Vec<(usize, Span)>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        /// On the walk's path, at this depth.
        OnPath(usize),
        Done,
    }
    let mut seen = vec![Seen::Not; definitions.len()];
    let mut found = Vec::new();
    for start in 0..definitions.len() {
        // The path from `start`: each definition with the number of its needs that were followed.
        let mut path: Vec<(usize, usize)> = Vec::new();
        if seen[start] == Seen::Not {
            seen[start] = Seen::OnPath(0);
            path.push((start, 0));
        }
        while let Some((at, followed)) = path.last_mut() {
            let Some((needed, _)) = definitions[*at].needs.get(*followed).copied() else {
                seen[*at] = Seen::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match seen[needed] {
                Seen::Done => {}
                Seen::Not => {
                    seen[needed] = Seen::OnPath(path.len());
                    path.push((needed, 0));
                }
                Seen::OnPath(depth) => {
                    let step =
                        |(at, followed): &(usize, usize)| (*at, definitions[*at].needs[*followed - 1].1);
                    found.push(path[depth..].iter().map(step).collect());
                }
            }
        }
    }
    found
}

fn describe(definitions: &[Definition<'_>], circle: &[(usize, Span)]) -> Diagnostic {
    // Definitions are in file order; the walk may have entered the circle at another than the first.
    let first = circle.iter().enumerate().min_by_key(|(_, (at, _))| *at).map_or(0, |(place, _)| place);
    let (behind, ahead) = circle.split_at(first);
    let circle: Vec<(usize, Span)> = ahead.iter().chain(behind).copied().collect();
    let names: Vec<&str> = circle.iter().chain(circle.first()).map(|(at, _)| definitions[*at].name).collect();
    let message = format!("`{}` needs itself: {}", names[0], names.join(" -> "));
    let span = circle.first().and_then(|(at, _)| definitions[*at].span);
    let mut diagnostic = Diagnostic::error(codes::CYCLE, message, Label::at(span, ""));
    for ((_, mention), needed) in circle.iter().zip(&names[1..]) {
        diagnostic = diagnostic.with_related(Label::at(*mention, format!("needs `{needed}`")));
    }
    diagnostic
}
