//! The namespace of a manifest: buffers, params, communicators and tasks share it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use squall_core::{Diagnostic, Label, Span};
use toml::de::{DeTable, DeValue};

use crate::codes;
use crate::expr::RESERVED;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// An entry of `[params]`.
    Param,
    /// A `[communicator.NAME]`.
    Communicator,
    /// A `[buffer.NAME]`.
    Buffer,
    /// A task with a name.
    Task,
}

impl NameKind {
    /// In words, with its article.
    pub fn words(self) -> &'static str {
        match self {
            NameKind::Param => "a param",
            NameKind::Communicator => "a communicator",
            NameKind::Buffer => "a buffer",
            NameKind::Task => "a task",
        }
    }
}

/// Where and as what a name was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// As what.
    pub kind: NameKind,
    /// The name's place.
    pub span: Span,
}

/// Every declared name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    entries: BTreeMap<String, Declared>,
    /// The params that are written as lists.
    lists: BTreeSet<String>,
}

impl Names {
    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<Declared> {
        self.entries.get(name).copied()
    }

    /// Whether a name is that of a param that is written as a list.
    pub(crate) fn is_list(&self, name: &str) -> bool {
        self.lists.contains(name)
    }

    /// The names of one kind, sorted.
    pub fn of_kind(&self, kind: NameKind) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(move |(_, declared)| declared.kind == kind).map(|(name, _)| name.as_str())
    }

    /// Collects the names of a document before anything else is read, so that an error in a declaration does not
    /// make its name unknown. The declaration that comes first in the file keeps a name.
    pub(crate) fn collect(root: &DeTable<'_>, report: &mut dyn FnMut(Diagnostic)) -> Names {
        let mut found: Vec<(&str, NameKind, Span)> = Vec::new();
        let tables = [
            ("params", NameKind::Param),
            ("communicator", NameKind::Communicator),
            ("buffer", NameKind::Buffer),
        ];
        for (table, kind) in tables {
            if let Some(DeValue::Table(entries)) = root.get(table).map(|value| value.get_ref()) {
                found.extend(entries.keys().map(|key| (&**key.get_ref(), kind, Span::from(key.span()))));
            }
        }
        // An axis of the mesh is a communicator.
        if let Some(DeValue::Array(axes)) =
            root.get("world").and_then(|world| Some(world.get_ref().get("mesh")?.get_ref()))
        {
            let axes = axes.iter().filter_map(|axis| axis.get_ref().as_table());
            let keys = axes.flat_map(|axis| axis.keys());
            found.extend(keys.map(|key| (&**key.get_ref(), NameKind::Communicator, Span::from(key.span()))));
        }
        for section in ["setup", "task", "finish"] {
            let Some(DeValue::Array(tasks)) = root.get(section).map(|value| value.get_ref()) else {
                continue;
            };
            for task in tasks.iter() {
                let Some(name) = task.get_ref().get("name") else { continue };
                if let DeValue::String(text) = name.get_ref() {
                    found.push((text, NameKind::Task, Span::from(name.span())));
                }
            }
        }
        found.sort_by_key(|(_, _, span)| span.start);
        let mut names = Names::default();
        if let Some(params) = root.get("params").and_then(|params| params.get_ref().as_table()) {
            let lists = params.iter().filter(|(_, value)| matches!(value.get_ref(), DeValue::Array(_)));
            names.lists.extend(lists.map(|(key, _)| key.get_ref().as_ref().to_owned()));
        }
        for (name, kind, span) in found {
            if let Some(diagnostic) = check(name, kind, span) {
                report(diagnostic);
            }
            match names.entries.entry(name.to_owned()) {
                Entry::Vacant(entry) => {
                    entry.insert(Declared { kind, span });
                }
                Entry::Occupied(entry) => report(duplicate(name, kind.words(), span, *entry.get())),
            }
        }
        names
    }

    /// What is wrong with a loop variable's name, if anything; `around` are the variables of the loops that it is in.
    pub(crate) fn check_variable(&self, name: &str, span: Span, around: &[&str]) -> Option<Diagnostic> {
        if around.contains(&name) {
            let message = format!("`{name}` is the variable of a loop around this one");
            let label = Label::at(span, "the same name");
            return Some(
                Diagnostic::error(codes::DUPLICATE_NAME, message, label).with_help("rename one of them"),
            );
        }
        check_identifier(name, span)
            .or_else(|| self.get(name).map(|declared| duplicate(name, "a loop variable", span, declared)))
    }
}

fn duplicate(name: &str, as_what: &str, span: Span, first: Declared) -> Diagnostic {
    let message = if first.kind.words() == as_what {
        format!("two of the manifest's {}s are named `{name}`", as_what.trim_start_matches("a "))
    } else {
        format!("`{name}` names both {} and {as_what}", first.kind.words())
    };
    Diagnostic::error(codes::DUPLICATE_NAME, message, Label::at(span, as_what))
        .with_related(Label::at(first.span, format!("{}, the first of this name", first.kind.words())))
        .with_help("buffers, params, communicators, tasks and loop variables share their names; rename one")
}

fn check(name: &str, kind: NameKind, span: Span) -> Option<Diagnostic> {
    // No expression can name a task, so that its name may be a word of the language and hold a dash.
    if kind == NameKind::Task { check_task(name, span) } else { check_identifier(name, span) }
}

/// What is wrong with the name of a task, if anything.
pub(crate) fn check_task(name: &str, span: Span) -> Option<Diagnostic> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (name.is_empty() || !name.chars().all(allowed)).then(|| {
        Diagnostic::error(
            codes::BAD_NAME,
            format!("`{name}` cannot be the name of a task"),
            Label::at(span, "not of letters, digits, `_` and `-` alone"),
        )
    })
}

fn check_identifier(name: &str, span: Span) -> Option<Diagnostic> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let error = Diagnostic::error(
            codes::BAD_NAME,
            format!("`{name}` cannot be a name"),
            Label::at(span, "not a letter or `_`, followed by letters, digits and `_`"),
        );
        let plain = name.replace(['-', '.', ' '], "_");
        return Some(if plain != name && check_identifier(&plain, span).is_none() {
            error.with_help(format!("expressions could name `{plain}`"))
        } else {
            error
        });
    }
    RESERVED.contains(&name).then(|| {
        let message = format!("`{name}` is a word of the expression language and cannot be a name");
        Diagnostic::error(codes::BAD_NAME, message, Label::at(span, "reserved"))
    })
}
