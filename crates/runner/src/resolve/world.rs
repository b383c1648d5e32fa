//! The ranks of a job: what must hold for them, the mesh that they make, and their communicators.

use std::fmt::{self, Write as _};

use squall_core::{Diagnostic, Label, Problems, World};

use super::env::RankEnv;
use super::names::Symbols;
use crate::codes;
use crate::expr::{Env, Lookup, Mention, Value};
use crate::manifest::model::{Axis, Communicator, Mesh, Requirement};
use crate::manifest::place::Formula;
use crate::render::count;

/// Makes the world of `size` ranks with all its communicators: first the mesh, then the others in file order.
///
/// What is required is looked at before all else, and what is required of communicators as soon as they are made.
pub(super) fn make(symbols: &Symbols<'_>, size: u64) -> Result<World, Problems> {
    let manifest = symbols.manifest;
    let mut world = World::new(size).map_err(|error| {
        let label = Label::at(manifest.world.devices.span, "");
        Problems(vec![Diagnostic::error(codes::WORLD, error.to_string(), label)])
    })?;
    let mut problems = Vec::new();
    let mut of_communicators: Vec<&Requirement> = Vec::new();
    for requirement in &manifest.world.require {
        match check(symbols, &world, requirement) {
            Checked::Holds => {}
            Checked::NotYet(_) => of_communicators.push(requirement),
            Checked::Fails(mut found) => problems.append(&mut found),
        }
    }
    refused(&mut problems)?;
    if let Some(mesh) = &manifest.world.mesh {
        split_mesh(symbols, &mut world, mesh, &mut problems);
        // Without its axes all that names them would fail too.
        refused(&mut problems)?;
    }
    for communicator in &manifest.communicators {
        split(symbols, &mut world, communicator, &mut problems);
    }
    refused(&mut problems)?;
    for requirement in of_communicators {
        match check(symbols, &world, requirement) {
            Checked::Holds => {}
            Checked::NotYet(mut found) | Checked::Fails(mut found) => problems.append(&mut found),
        }
    }
    refused(&mut problems)?;
    Ok(world)
}

fn refused(problems: &mut Vec<Diagnostic>) -> Result<(), Problems> {
    if problems.is_empty() { Ok(()) } else { Err(Problems(std::mem::take(problems)).folded()) }
}

/// The ranks on which a formula is to be worked out: one, where all come to the same.
fn ranks(symbols: &Symbols<'_>, world: &World, formula: &Formula) -> std::ops::Range<u32> {
    0..if symbols.depends_on_rank(formula) { world.size() } else { 1 }
}

/// The faults that working out a formula met on a rank.
fn faults(symbols: &Symbols<'_>, env: &RankEnv<'_>, formula: &Formula) -> Vec<Diagnostic> {
    let mut faults = env.take_problems();
    if !symbols.depends_on_rank(formula) {
        faults.iter_mut().for_each(|fault| fault.primary.rank = None);
    }
    faults
}

enum Checked {
    Holds,
    /// It asks for communicators that are not made, as these say.
    NotYet(Vec<Diagnostic>),
    Fails(Vec<Diagnostic>),
}

fn check(symbols: &Symbols<'_>, world: &World, requirement: &Requirement) -> Checked {
    let condition = &requirement.condition;
    let (mut first, mut failing) = (None, 0_u32);
    for rank in ranks(symbols, world, condition) {
        let env = RankEnv::new(symbols, world, rank);
        match env.kept(condition.eval_bool(&env)) {
            Some(true) => {}
            Some(false) => {
                first.get_or_insert(rank);
                failing += 1;
            }
            None => {
                let faults = faults(symbols, &env, condition);
                let not_yet = faults.iter().any(|fault| fault.code == codes::COMMUNICATOR_NOT_YET);
                return if not_yet { Checked::NotYet(faults) } else { Checked::Fails(faults) };
            }
        }
    }
    let Some(rank) = first else { return Checked::Holds };
    let text = requirement.text.trim();
    let mut message = format!("the manifest requires `{text}`, which does not hold");
    let mut label = Label::at(condition.place.span(), "");
    if symbols.depends_on_rank(condition) {
        let _ = write!(message, " on rank {rank}");
        if failing > 1 {
            let _ = write!(message, " and {}", count(failing - 1, "more rank"));
        }
        label = label.on_rank(rank);
    }
    let values = values(symbols, world, rank, condition);
    if !values.is_empty() {
        let _ = write!(message, ": {}", values.join(", "));
    }
    let help = "`--set` changes a param, and `--devices` the world";
    Checked::Fails(vec![Diagnostic::error(codes::REQUIRE, message, label).with_help(help)])
}

/// What stands for each name of a condition on a rank: `n is 100`.
fn values(symbols: &Symbols<'_>, world: &World, rank: u32, condition: &Formula) -> Vec<String> {
    let env = RankEnv::new(symbols, world, rank);
    let mut values: Vec<String> = Vec::new();
    let mut say = |name: String, value: Lookup<Value>| {
        if let Lookup::Found(value) = value {
            let text = format!("`{name}` is {}", short(&value));
            if !values.contains(&text) {
                values.push(text);
            }
        }
    };
    let int = |found: Lookup<i64>| match found {
        Lookup::Found(int) => Lookup::Found(Value::Int(int)),
        _ => Lookup::Unknown,
    };
    let place = |comm: &str| match env.communicator(comm) {
        Lookup::Found(member) => (Lookup::Found(member.rank), Lookup::Found(member.size)),
        _ => (Lookup::Unknown, Lookup::Unknown),
    };
    condition.expr.mentions(&mut |mention, _| match mention {
        Mention::Name(name) => say(name.to_owned(), env.name(name)),
        Mention::CommRank(comm) => say(format!("{comm}.rank"), int(place(comm).0)),
        Mention::CommSize(comm) => say(format!("{comm}.size"), int(place(comm).1)),
        Mention::Len(name) => match env.name(name) {
            Lookup::Found(list) => say(name.to_owned(), Lookup::Found(list)),
            _ => say(format!("len({name})"), int(env.buffer_len(name))),
        },
        Mention::Place => ["rank", "world"].into_iter().for_each(|name| say(name.to_owned(), env.name(name))),
    });
    values
}

/// A value in few words: lists of lists can be without end.
fn short(value: &Value) -> String {
    struct Short(String);
    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            const LONGEST: usize = 80;
            if self.0.len() + text.len() > LONGEST {
                self.0.push('…');
                return Err(fmt::Error);
            }
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut short = Short(String::new());
    let _ = write!(short, "{value}"); // an error is the end of what is shown
    short.0
}

/// Splits the world along each axis of the mesh.
fn split_mesh(symbols: &Symbols<'_>, world: &mut World, mesh: &Mesh, problems: &mut Vec<Diagnostic>) {
    let mut sizes = Vec::with_capacity(mesh.axes.len());
    for axis in &mesh.axes {
        sizes.extend(length(symbols, world, axis, problems));
    }
    if sizes.len() < mesh.axes.len() {
        return; // reported
    }
    let product = sizes.iter().try_fold(1_i64, |product, size| product.checked_mul(*size));
    if product != Some(world.size().into()) {
        let lengths: Vec<String> = mesh
            .axes
            .iter()
            .zip(&sizes)
            .map(|(axis, size)| format!("`{}` is {size}", axis.name.value))
            .collect();
        let places = product
            .map_or("more places than can be counted".to_owned(), |places| count(places as u64, "place"));
        let message = format!(
            "the mesh has {places}, and the world has {}: {}",
            count(world.size(), "rank"),
            lengths.join(", ")
        );
        let help = "the product of all axes is the world; one of them can be what the others leave, as `world / tp_size`, \
                    where `require = [\"world % tp_size == 0\"]` holds";
        problems.push(Diagnostic::error(codes::MESH, message, Label::at(mesh.span, "")).with_help(help));
        return;
    }
    // Row-major, and every product fits the world.
    let mut stride: i64 = world.size().into();
    for (axis, size) in mesh.axes.iter().zip(sizes) {
        let outer = stride;
        stride /= size;
        let split = world.split(&axis.name.value, |rank| {
            let rank = i64::from(rank);
            (rank / outer * stride + rank % stride, rank % outer / stride)
        });
        if let Err(error) = split {
            problems.push(Diagnostic::error(codes::WORLD, error.to_string(), Label::at(axis.name.span, "")));
        }
    }
}

/// How long an axis is; `None` if it is not the same on all ranks, or less than 1.
fn length(symbols: &Symbols<'_>, world: &World, axis: &Axis, problems: &mut Vec<Diagnostic>) -> Option<i64> {
    let mut length: Option<i64> = None;
    for rank in ranks(symbols, world, &axis.size) {
        let env = RankEnv::new(symbols, world, rank);
        let Some(here) = env.int(&axis.size) else {
            problems.append(&mut faults(symbols, &env, &axis.size));
            return None;
        };
        let (name, first) = (&axis.name.value, *length.get_or_insert(here));
        let message = match here {
            _ if here != first => format!(
                "the axis `{name}` is {first} long on rank 0 and {here} on rank {rank}; a mesh is the same for all ranks"
            ),
            ..1 => format!("the axis `{name}` is {here} long, and the least is 1"),
            _ => continue,
        };
        problems.push(Diagnostic::error(codes::MESH, message, Label::at(axis.size.place.span(), "")));
        return None;
    }
    length
}

/// Splits the world as a `[communicator.NAME]` says.
fn split(
    symbols: &Symbols<'_>,
    world: &mut World,
    communicator: &Communicator,
    problems: &mut Vec<Diagnostic>,
) {
    let mut places = Vec::with_capacity(world.size() as usize);
    for rank in 0..world.size() {
        let env = RankEnv::new(symbols, world, rank);
        let color = env.int(&communicator.color);
        let key = communicator.key.as_ref().map_or(Some(i64::from(rank)), |key| env.int(key));
        problems.append(&mut env.take_problems());
        match color.zip(key) {
            Some(place) => places.push(place),
            None => return, // reported
        }
    }
    if let Err(error) = world.split(&communicator.name.value, |rank| places[rank as usize]) {
        let label = Label::at(communicator.color.place.span(), "");
        problems.push(Diagnostic::error(codes::WORLD, error.to_string(), label));
    }
}
