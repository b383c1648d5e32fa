//! Reads TOML values key by key and collects what is wrong with them. Nothing here stops at an error: a value
//! that cannot be read is reported and becomes `None`, and the reading goes on with the next.

use std::collections::BTreeSet;

use squall_core::{Code, Diagnostic, Label, Span};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::collect::Diagnostics;
use super::levels::Level;
use super::names::Names;
use super::place::{At, Formula, FormulaError, Place, Text, TextError};
use super::scope::Scope;
use super::template::Template;
use crate::codes;
use crate::expr::{NoEnv, Value};
use crate::suggest::nearest;

/// A value of the document with its place.
pub(crate) type Node<'s> = Spanned<DeValue<'s>>;

/// The state of reading one manifest.
pub(crate) struct Reader<'s> {
    source: &'s str,
    /// Every declared name.
    pub(crate) names: Names,
    /// Every name that an expression or an argument mentions.
    pub(crate) used: BTreeSet<String>,
    diagnostics: Diagnostics,
}

/// A value together with the key that it stands under.
#[derive(Clone, Copy)]
pub(crate) struct Field<'t, 's> {
    pub(crate) key: &'t str,
    pub(crate) key_span: Span,
    pub(crate) node: &'t Node<'s>,
}

impl<'t, 's> Field<'t, 's> {
    pub(crate) fn span(self) -> Span {
        self.node.span().into()
    }

    /// The same key with a part of its value.
    pub(crate) fn part(self, node: &'t Node<'s>) -> Field<'t, 's> {
        Field { node, ..self }
    }
}

/// A table whose keys were checked.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'t, 's> {
    table: &'t DeTable<'s>,
    level: &'static Level,
    pub(crate) span: Span,
}

impl<'t, 's> Fields<'t, 's> {
    pub(crate) fn get(&self, key: &str) -> Option<Field<'t, 's>> {
        let (key, node) = self.table.get_key_value(key)?;
        Some(Field { key: key.get_ref(), key_span: key.span().into(), node })
    }

    /// Whether the table has an unknown key, reported already, that was to be one of these.
    pub(crate) fn misspells(&self, keys: &[&str]) -> bool {
        let unknown =
            self.table.keys().map(|key| &**key.get_ref()).filter(|key| !self.level.keys.contains(key));
        unknown.into_iter().any(|unknown| keys.iter().any(|key| self.level.suggests(unknown, key)))
    }

    /// The value of a key that the table must have. A misspelt one is reported as that alone.
    pub(crate) fn need(&self, reader: &mut Reader<'s>, key: &str) -> Option<Field<'t, 's>> {
        let field = self.get(key);
        if field.is_none() && !self.misspells(&[key]) {
            let message = format!("{} has no `{key}`", self.level.title);
            let label = Label::at(self.span, format!("`{key}` is missing here"));
            let report = Diagnostic::error(codes::MISSING_KEY, message, label);
            reader.report(match key {
                "grid" => report.with_help("write as many threads as there are elements, such as `grid = \"len(x)\"`; `squall list kernels` tells what each kernel's grid must cover"),
                "dtype" => report.with_help("write the type of its elements, such as `dtype = \"f32\"`"),
                "shape" => report.with_help("write the length of each axis, such as `shape = [\"n\", 4]`"),
                _ => report,
            });
        }
        field
    }
}

impl<'s> Reader<'s> {
    pub(crate) fn new(source: &'s str, root: &DeTable<'s>) -> Reader<'s> {
        let mut diagnostics = Diagnostics::default();
        let names = Names::collect(root, &mut |diagnostic| diagnostics.push(diagnostic));
        Reader { source, names, used: BTreeSet::new(), diagnostics }
    }

    pub(crate) fn finish(self) -> (Names, BTreeSet<String>, Diagnostics) {
        (self.names, self.used, self.diagnostics)
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    pub(crate) fn error(
        &mut self,
        code: Code,
        message: impl Into<String>,
        span: Span,
        label: impl Into<String>,
    ) {
        self.report(Diagnostic::error(code, message, Label::at(span, label)));
    }

    /// Checks the keys of a table.
    pub(crate) fn fields<'t>(
        &mut self,
        table: &'t DeTable<'s>,
        span: Span,
        level: &'static Level,
    ) -> Fields<'t, 's> {
        for key in table.keys() {
            if !level.keys.contains(&&**key.get_ref()) {
                self.report(level.unknown_key(key.get_ref(), key.span().into()));
            }
        }
        Fields { table, level, span }
    }

    pub(crate) fn table<'t>(
        &mut self,
        field: Field<'t, 's>,
        level: &'static Level,
    ) -> Option<Fields<'t, 's>> {
        match field.node.get_ref() {
            DeValue::Table(table) => Some(self.fields(table, field.span(), level)),
            _ => self.wrong_type(field, "a table"),
        }
    }

    /// The entries of a table whose keys are names, in file order.
    pub(crate) fn entries<'t>(&mut self, field: Field<'t, 's>, form: &str) -> Vec<Field<'t, 's>> {
        let DeValue::Table(table) = field.node.get_ref() else {
            self.wrong_type::<()>(field, &format!("a table, written `{form}`"));
            return Vec::new();
        };
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, node)| Field { key: key.get_ref(), key_span: key.span().into(), node })
            .collect();
        entries.sort_by_key(|entry| entry.key_span.start);
        entries
    }

    /// The tables of an array of tables.
    pub(crate) fn tables<'t>(&mut self, field: Field<'t, 's>, level: &'static Level) -> Vec<Fields<'t, 's>> {
        let DeValue::Array(items) = field.node.get_ref() else {
            self.wrong_type::<()>(field, &format!("several tables, each written `[[{}]]`", field.key));
            return Vec::new();
        };
        items.iter().filter_map(|item| self.table(field.part(item), level)).collect()
    }

    /// Reports that a value has the wrong type; always `None`.
    pub(crate) fn wrong_type<T>(&mut self, field: Field<'_, 's>, wanted: &str) -> Option<T> {
        self.wrong_type_with_help(field, wanted, None)
    }

    pub(crate) fn wrong_type_with_help<T>(
        &mut self,
        field: Field<'_, 's>,
        wanted: &str,
        help: Option<String>,
    ) -> Option<T> {
        let found = match field.node.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or a time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let message = format!("`{}` takes {wanted}, and this is {found}", field.key);
        let label = Label::at(field.span(), format!("expected {wanted}"));
        let mut diagnostic = Diagnostic::error(codes::WRONG_TYPE, message, label);
        diagnostic.help = help;
        self.report(diagnostic);
        None
    }

    /// Reports that a value is not one of those allowed; always `None`.
    pub(crate) fn bad_value<T>(&mut self, field: Field<'_, 's>, message: String, help: String) -> Option<T> {
        let diagnostic =
            Diagnostic::error(codes::BAD_VALUE, message, Label::at(field.span(), "")).with_help(help);
        self.report(diagnostic);
        None
    }

    /// Reports a fault of an expression.
    pub(crate) fn formula_error(&mut self, error: &FormulaError) {
        error.diagnostic().into_iter().for_each(|diagnostic| self.report(diagnostic));
    }

    /// Reports two keys that exclude each other.
    pub(crate) fn conflict(&mut self, first: Field<'_, 's>, second: Field<'_, 's>) {
        let (first, second) =
            if first.key_span.start <= second.key_span.start { (first, second) } else { (second, first) };
        let message = format!("`{}` and `{}` exclude each other", first.key, second.key);
        let diagnostic =
            Diagnostic::error(codes::CONFLICTING_KEYS, message, Label::at(second.key_span, "the second"))
                .with_related(Label::at(first.key_span, "the first"))
                .with_help("keep one of them");
        self.report(diagnostic);
    }

    /// Reports a fault inside a string; always `None`.
    pub(crate) fn text_error<T>(&mut self, error: TextError, place: &Place) -> Option<T> {
        let span = place.part(&error.range);
        let mut diagnostic = Diagnostic::error(codes::BAD_VALUE, error.message, Label::at(span, ""));
        diagnostic.help = error.help;
        self.report(diagnostic);
        None
    }

    pub(crate) fn text(&mut self, field: Field<'_, 's>) -> Option<Text> {
        self.text_or(field, "a string")
    }

    /// A string, where `wanted` are the types that the key takes.
    pub(crate) fn text_or(&mut self, field: Field<'_, 's>, wanted: &str) -> Option<Text> {
        let DeValue::String(value) = field.node.get_ref() else { return self.wrong_type(field, wanted) };
        let range = field.node.span();
        let raw = self.source.get(range.clone()).unwrap_or("");
        Some(Text { value: value.as_ref().to_owned(), place: Place::of_string(raw, range.start) })
    }

    /// A string that is a name or a word and not empty.
    pub(crate) fn word(&mut self, field: Field<'_, 's>) -> Option<At<String>> {
        let text = self.text(field)?;
        if text.value.trim().is_empty() {
            let message = format!("`{}` is empty", field.key);
            self.error(codes::BAD_VALUE, message, field.span(), "");
            return None;
        }
        Some(At::new(text.value, field.span()))
    }

    pub(crate) fn boolean(&mut self, field: Field<'_, 's>) -> Option<At<bool>> {
        match field.node.get_ref() {
            DeValue::Boolean(value) => Some(At::new(*value, field.span())),
            _ => self.wrong_type(field, "`true` or `false`"),
        }
    }

    /// A key that is either `true` or left out.
    pub(crate) fn flag(&mut self, field: Field<'_, 's>) -> Option<()> {
        if self.boolean(field)?.value {
            return Some(());
        }
        let message = format!("`{}` is `true` or left out", field.key);
        self.bad_value(field, message, "leave the key out".to_owned())
    }

    /// An integer of at least `least`.
    pub(crate) fn integer(&mut self, field: Field<'_, 's>, least: u64) -> Option<At<u64>> {
        let value = match field.node.get_ref() {
            DeValue::Integer(_) => self.number(field)?,
            _ => return self.wrong_type(field, "an integer"),
        };
        let Value::Int(int) = value else { return None };
        match u64::try_from(int) {
            Ok(int) if int >= least => Some(At::new(int, field.span())),
            _ => {
                let message = format!("`{}` is {int}, and the least is {least}", field.key);
                self.error(codes::BAD_VALUE, message, field.span(), "");
                None
            }
        }
    }

    /// The value of a TOML number or boolean; `None`, with a report, where it is beyond 64 bits or not finite.
    pub(crate) fn number(&mut self, field: Field<'_, 's>) -> Option<Value> {
        match field.node.get_ref() {
            DeValue::Boolean(value) => Some(Value::Bool(*value)),
            DeValue::Integer(int) => match i64::from_str_radix(int.as_str(), int.radix()) {
                Ok(int) => Some(Value::Int(int)),
                Err(_) => {
                    let message = format!("`{}` does not fit in a 64-bit integer", int.as_str());
                    self.error(codes::OVERFLOW, message, field.span(), "");
                    None
                }
            },
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(float) if float.is_finite() => Some(Value::Float(float)),
                _ => {
                    let message = format!("`{}` is not a finite number", float.as_str());
                    self.error(codes::NOT_FINITE, message, field.span(), "");
                    None
                }
            },
            _ => self.wrong_type(field, "a number"),
        }
    }

    /// A number or an expression.
    pub(crate) fn formula(&mut self, field: Field<'_, 's>, scope: Scope<'_>) -> Option<Formula> {
        match field.node.get_ref() {
            DeValue::Boolean(_) => self.wrong_type(field, "a number or an expression"),
            _ => self.formula_or_boolean(field, scope),
        }
    }

    /// A number, a boolean or an expression.
    pub(crate) fn formula_or_boolean(&mut self, field: Field<'_, 's>, scope: Scope<'_>) -> Option<Formula> {
        match field.node.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                Some(Formula::literal(self.number(field)?, field.span()))
            }
            _ => {
                let text = self.text_or(field, "a number or an expression")?;
                match text.formula() {
                    Ok(formula) => self.checked(formula, scope),
                    Err(error) => {
                        self.formula_error(&error);
                        None
                    }
                }
            }
        }
    }

    /// A condition: an expression or `true` or `false`.
    pub(crate) fn condition(&mut self, field: Field<'_, 's>, scope: Scope<'_>) -> Option<Formula> {
        match field.node.get_ref() {
            DeValue::String(_) | DeValue::Boolean(_) => self.formula_or_boolean(field, scope),
            _ => self.wrong_type(field, "a condition, such as `\"rank == 0\"`"),
        }
    }

    /// Checks a parsed expression: its names, and its value where that is the same everywhere.
    pub(crate) fn checked(&mut self, formula: Formula, scope: Scope<'_>) -> Option<Formula> {
        let Reader { names, used, diagnostics, .. } = self;
        let mut is_right = true;
        formula.expr.mentions(&mut |mention, range| {
            if let Some(name) = mention.name().filter(|name| !used.contains(*name)) {
                used.insert(name.to_owned());
            }
            if !scope.allows(mention, names) {
                is_right = false;
                diagnostics.push_with(|| scope.describe(mention, formula.place.part(range), names));
            }
        });
        if formula.expr.is_constant()
            && let Err(error) = formula.eval(&NoEnv)
        {
            self.formula_error(&error);
            return None;
        }
        is_right.then_some(formula)
    }

    /// One to three numbers or expressions; a single one needs no brackets.
    pub(crate) fn dims(&mut self, field: Field<'_, 's>, scope: Scope<'_>) -> Option<At<Vec<Formula>>> {
        let DeValue::Array(items) = field.node.get_ref() else {
            return Some(At::new(vec![self.formula(field, scope)?], field.span()));
        };
        if !(1..=3).contains(&items.len()) {
            let message = format!("`{}` has {} dimensions", field.key, items.len());
            return self.bad_value(field, message, "a grid and a block have one to three".to_owned());
        }
        self.formulas(field, scope)
    }

    /// An array of numbers or expressions.
    pub(crate) fn formulas(&mut self, field: Field<'_, 's>, scope: Scope<'_>) -> Option<At<Vec<Formula>>> {
        let DeValue::Array(items) = field.node.get_ref() else {
            let one = self.source.get(field.node.span()).unwrap_or("…");
            let help = match field.node.get_ref() {
                DeValue::String(name) if self.names.is_list(name) => {
                    Some(format!("write the items one by one: `{} = [\"{name}[0]\", …]`", field.key))
                }
                DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) => {
                    Some(format!("write `{} = [{one}]`", field.key))
                }
                _ => None,
            };
            return self.wrong_type_with_help(field, "an array", help);
        };
        let is_array = |item: &&Node<'s>| matches!(item.get_ref(), DeValue::Array(_));
        // A matrix is one mistake, not one in each of its rows.
        if let Some(row) = items.iter().find(is_array) {
            let help = "the list is flat: write its numbers one after another".to_owned();
            self.wrong_type_with_help::<()>(field.part(row), "numbers and expressions", Some(help));
        }
        let others = items.iter().filter(|item| !is_array(item));
        let items = others.filter_map(|item| self.formula(field.part(item), scope)).collect();
        Some(At::new(items, field.span()))
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(&mut self, field: Field<'_, 's>, choices: &[(&str, T)]) -> Option<At<T>> {
        let text = self.text(field)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text.value) {
            return Some(At::new(*value, field.span()));
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let help = match nearest(&text.value, words.iter().copied()) {
            Some(near) => format!("did you mean `\"{near}\"`?"),
            None => format!(
                "allowed: {}",
                words.iter().map(|w| format!("`\"{w}\"`")).collect::<Vec<_>>().join(", ")
            ),
        };
        self.bad_value(field, format!("`{}` cannot be `\"{}\"`", field.key, text.value), help)
    }

    /// A file name.
    pub(crate) fn template(&mut self, field: Field<'_, 's>) -> Option<Template> {
        let text = self.text(field)?;
        let place = text.place.clone();
        match Template::parse(text) {
            Ok(template) => Some(template),
            Err(error) => self.text_error(error, &place),
        }
    }
}
