//! `squall list`: what this build offers.

use std::fmt::Write as _;

use squall_core::{Backend, Cover, DType, KernelDef, ParamDef, ParamKind, Presence, Registry, Type};

use squall_runner::plugin::{self, Loaded, Wanted};
use squall_runner::run::devices::headline;

use crate::args::{ListArgs, Listing};
use crate::output;

const ALL: [(Listing, &str); 4] = [
    (Listing::Kernels, "kernels"),
    (Listing::Ops, "ops"),
    (Listing::Devices, "devices"),
    (Listing::Plugins, "plugins"),
];

pub(crate) fn list(registry: &Registry, args: &ListArgs) -> u8 {
    let wanted: Vec<Wanted> = args.plugins.plugin.iter().map(|path| Wanted::option(path)).collect();
    let loaded = match plugin::load(registry, &wanted) {
        Ok(loaded) => loaded,
        Err(problems) => {
            output::diagnostics("--plugin", "", &problems.0);
            return 2;
        }
    };
    let what = args.what;
    let listed: Vec<String> = ALL
        .iter()
        .filter(|(listing, _)| what.is_none_or(|what| what == *listing))
        .map(|(listing, name)| {
            let text = one(&loaded, *listing, what.is_some());
            // Alone, a listing needs no heading.
            if what.is_some() { text } else { format!("# {name}\n{text}") }
        })
        .collect();
    output::result(&listed.join("\n"))
}

/// One listing. The machine is asked for its devices only by who wants these `alone`: what a build offers is told without
/// opening any library.
fn one(loaded: &Loaded, listing: Listing, alone: bool) -> String {
    let registry = &loaded.registry;
    match listing {
        Listing::Kernels => registry.kernels().map(|(kernel, origin)| a_kernel(kernel, origin)).collect(),
        Listing::Ops => ops(registry),
        Listing::Devices => registry.backends().map(|backend| devices(backend, alone)).collect(),
        Listing::Plugins if loaded.origins.is_empty() => {
            "none: `--plugin PATH` names one, and a manifest names its own\n".to_string()
        }
        Listing::Plugins => loaded.origins.iter().map(|origin| inside(registry, origin)).collect(),
    }
}

/// What a plugin brings, in a few lines.
pub(crate) fn inside(registry: &Registry, origin: &str) -> String {
    let mut text = format!("{origin}\n");
    for (op, _) in registry.ops().filter(|(_, from)| *from == origin) {
        let _ = writeln!(
            text,
            "    op {} by {} on {} devices: {}",
            op.name(),
            op.library(),
            op.device(),
            op.summary()
        );
    }
    for (kernel, _) in registry.kernels().filter(|(_, from)| *from == origin) {
        let on: Vec<&str> = ["cuda", "host"].into_iter().filter(|kind| kernel.runs_on(kind)).collect();
        let _ =
            writeln!(text, "    kernel {} on {} devices: {}", kernel.name, on.join(" and "), kernel.summary);
    }
    text
}

fn a_kernel(kernel: &KernelDef, origin: &str) -> String {
    let mut text = format!("{}: {}\n", kernel.name, kernel.summary);
    text += &params(kernel.params);
    let axes: Vec<String> = kernel.covers.iter().map(|cover| covered(*cover)).collect();
    let grid = match kernel.covers.iter().all(|cover| *cover == Cover::Any) {
        true => "any".to_string(),
        false => format!("at least {}", axes.join(" by ")),
    };
    let _ = writeln!(text, "    grid: {grid}");
    let on: Vec<&str> = ["cuda", "host"].into_iter().filter(|kind| kernel.runs_on(kind)).collect();
    let _ = writeln!(text, "    on {} devices, from {origin}", on.join(" and "));
    text
}

fn ops(registry: &Registry) -> String {
    let mut text = String::new();
    for contract in registry.contracts() {
        let _ = writeln!(text, "{}: {}", contract.name(), contract.summary());
        text += &params(contract.params());
        let mut served = false;
        for (op, origin) in registry.ops().filter(|(op, _)| op.name() == contract.name()) {
            let _ = writeln!(text, "    by {} on {} devices, from {origin}", op.library(), op.device());
            served = true;
        }
        if !served {
            text += "    no library of this build serves it\n";
        }
    }
    text
}

fn devices(backend: &dyn Backend, ask: bool) -> String {
    let kind = backend.kind();
    let mut text = match ask.then(|| backend.count()) {
        None => format!("{kind}: `squall list devices` asks this machine\n"),
        Some(Ok(None)) => format!("{kind}: any number\n"),
        Some(Ok(Some(count))) => {
            let line =
                |index| backend.describe(index).unwrap_or_else(|error| format!("{kind}:{index}: {error}"));
            (0..count)
                .fold(format!("{kind}: {count}\n"), |text, index| format!("{text}    {}\n", line(index)))
        }
        Some(Err(error)) => {
            format!("{kind}: none: {}; `squall doctor` tells more\n", headline(&error.to_string()))
        }
    };
    let shared = if backend.repeats() { "may be" } else { "is not" };
    let library = backend.default_library();
    let _ =
        writeln!(text, "    ops by {library} unless a task names another; a device {shared} shared by ranks");
    text
}

/// A line a parameter, in columns.
fn params(params: &[ParamDef]) -> String {
    let rows: Vec<[String; 3]> = params
        .iter()
        .map(|param| [param.name.to_string(), taken(param), format!("{}{}", param.doc, default(param))])
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, kind) = (width(0), width(1));
    let line = |row: &[String; 3]| {
        let line = format!("    {:name$}  {:kind$}  {}", row[0], row[1], row[2]);
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

fn taken(param: &ParamDef) -> String {
    match param.kind {
        ParamKind::Buffer(mode, ty) => format!("buffer, {}: {}", mode.name(), dtypes(ty)),
        ParamKind::Scalar(ty) => format!("number: {}", dtypes(ty)),
        ParamKind::Size => "size".to_string(),
        ParamKind::Word(words) => words.join(" | "),
        ParamKind::Flag => "true | false".to_string(),
        ParamKind::Rank => "rank".to_string(),
        ParamKind::List => "list".to_string(),
        ParamKind::Matrix => "list of lists".to_string(),
    }
}

fn dtypes(ty: Type) -> String {
    match ty {
        Type::In(all) if all == DType::ALL => "any dtype".to_string(),
        Type::In(all) if all == DType::FLOATS => "a float".to_string(),
        Type::In(some) => some.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" | "),
        Type::Is(dtype) => dtype.to_string(),
        Type::Same(param) => format!("as {param}"),
    }
}

fn default(param: &ParamDef) -> String {
    match param.presence {
        Presence::Required => String::new(),
        Presence::Optional => " (optional)".to_string(),
        Presence::Dim(of, axis) => format!(" (default: axis {axis} of {of})"),
        Presence::Len(of) => format!(" (default: elements of {of})"),
        Presence::ShapeOf(of) => format!(" (default: shape of {of})"),
        Presence::False => " (default: false)".to_string(),
    }
}

fn covered(cover: Cover) -> String {
    match cover {
        Cover::Len(param) => format!("the elements of {param}"),
        Cover::Size(param) => param.to_string(),
        Cover::Dim(param, axis) => format!("axis {axis} of {param}"),
        Cover::Any => "any number".to_string(),
    }
}
