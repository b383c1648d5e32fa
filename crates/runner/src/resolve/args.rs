//! Arguments: what the manifest wrote, read by the kind of parameter it stands for.

use squall_core::graph::ArgValue as Given;
use squall_core::{BufferDecl, BufferId, Diagnostic, Label, ParamDef, ParamKind, Span};

use super::env::RankEnv;
use super::matrix::Rows;
use super::names::Symbols;
use super::range;
use crate::codes;
use crate::expr::{AxisIndex, BufferRef, Env, Expr, Mention, Value};
use crate::manifest::model::{Arg, ArgValue};
use crate::manifest::names::NameKind;
use crate::manifest::place::{Formula, FormulaError, Text};
use crate::manifest::{Scope, TASK_KEYS};
use crate::suggest::nearest;

/// A fault is large, and rare.
pub(super) type Read<T> = Result<T, Box<Diagnostic>>;

/// An argument, read as far as that needs no rank.
#[derive(Debug)]
pub(super) struct Argument<'m> {
    name: &'static str,
    form: Form<'m>,
}

#[derive(Debug)]
enum Form<'m> {
    /// The same on every rank.
    Fixed(Given),
    /// A number or a condition.
    Formula(Formula),
    /// A buffer or a range of one.
    Buffer(&'m Text, BufferRef, usize),
    /// Whole numbers.
    List(Vec<Formula>),
    /// Rows of whole numbers.
    Matrix(Rows),
}

impl<'m> Argument<'m> {
    /// Reads what was written for a parameter. `what` is the task's descriptor, for messages;
    /// `has_comm`, whether `comm` could stand beside it; `variables` are those of the loops around.
    pub(super) fn read(
        symbols: &Symbols<'m>,
        variables: &[&str],
        what: &str,
        params: &'static [ParamDef],
        has_comm: bool,
        arg: &'m Arg,
    ) -> Read<Argument<'m>> {
        let given = arg.name.value.as_str();
        let Some(param) = params.iter().find(|param| param.name == given) else {
            return Err(unknown(what, params, has_comm, arg).into());
        };
        let form = match (param.kind, &arg.value) {
            (ParamKind::Word(_), ArgValue::Text(text)) => Form::Fixed(Given::Word(text.value.clone().into())),
            (ParamKind::List, ArgValue::List(items, _)) => {
                Form::List(items.iter().map(|item| formula(param, item)).collect::<Result<_, _>>()?)
            }
            (ParamKind::Matrix, value) => Form::Matrix(Rows::read(param, value)?),
            (ParamKind::Buffer(..), ArgValue::Text(text)) => {
                let reference = text.buffer().map_err(|error| match text.formula() {
                    Ok(_) => wrong(param, takes(param.kind), &arg.value),
                    Err(_) => reported(&error),
                })?;
                let place = buffer(symbols, variables, param, text, &reference)?;
                Form::Buffer(text, reference, place)
            }
            (ParamKind::Scalar(_), ArgValue::Text(text)) => match text.buffer() {
                // An expression and a buffer can read alike: the name decides.
                Ok(reference) if symbols.buffer(&reference.name).is_some() => {
                    let place = buffer(symbols, variables, param, text, &reference)?;
                    Form::Buffer(text, reference, place)
                }
                _ => Form::Formula(formula(param, &arg.value)?),
            },
            (ParamKind::Scalar(_) | ParamKind::Size | ParamKind::Rank | ParamKind::Flag, value) => {
                Form::Formula(formula(param, value)?)
            }
            (kind, value) => return Err(wrong(param, takes(kind), value).into()),
        };
        let formulas = match &form {
            Form::Formula(formula) => std::slice::from_ref(formula),
            Form::List(items) => items,
            Form::Matrix(rows) => rows.formulas(),
            Form::Fixed(_) | Form::Buffer(..) => &[],
        };
        for formula in formulas {
            check_names(symbols, variables, &formula.expr, &|range| formula.place.part(range))?;
        }
        Ok(Argument { name: param.name, form })
    }

    /// The buffer it names, by place.
    pub(super) fn buffer(&self) -> Option<usize> {
        match &self.form {
            Form::Buffer(_, _, place) => Some(*place),
            _ => None,
        }
    }

    /// Whether its value, or what it names, depends on the rank.
    pub(super) fn depends(&self, symbols: &Symbols<'_>) -> bool {
        let depends = &symbols.depends;
        match &self.form {
            Form::Fixed(_) => false,
            Form::Formula(formula) => depends.formula(symbols, formula),
            Form::List(items) => items.iter().any(|item| depends.formula(symbols, item)),
            Form::Matrix(rows) => rows.formulas().iter().any(|formula| depends.formula(symbols, formula)),
            Form::Buffer(_, reference, place) => {
                let mut any = depends.buffer(*place);
                indices(reference, &mut |expr| any |= depends.expr(symbols, expr));
                any
            }
        }
    }

    /// The argument on one rank; `None` when a fault was kept.
    pub(super) fn value(
        &self,
        buffers: &[BufferDecl],
        rank: &RankEnv<'_>,
        env: &dyn Env,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<(&'static str, Given)> {
        let value = match &self.form {
            Form::Fixed(given) => given.clone(),
            Form::Formula(formula) => match rank.kept(formula.eval(env))? {
                Value::Int(int) => Given::Int(int),
                Value::Float(float) => Given::Float(float),
                Value::Bool(bool) => Given::Bool(bool),
                Value::List(_) => {
                    let message = format!("`{}` takes one number, not a list", self.name);
                    let label = Label::at(formula.place.span(), "").on_rank(rank.rank());
                    problems.push(Diagnostic::error(codes::ARGUMENT, message, label));
                    return None;
                }
            },
            Form::List(items) => {
                let items: Option<Vec<i64>> =
                    items.iter().map(|item| rank.kept(item.eval_int(env))).collect();
                Given::List(items?)
            }
            Form::Matrix(rows) => match rows.value(self.name, rank, env)? {
                Ok(matrix) => Given::Matrix(matrix),
                Err(problem) => {
                    problems.push(*problem);
                    return None;
                }
            },
            Form::Buffer(text, reference, place) => {
                let decl = buffers.get(*place)?;
                match range::range(text, reference, *place, decl, rank, env, problems)? {
                    range if reference.index.is_empty() => Given::Buffer(BufferId(range.buffer.0)),
                    range => Given::Range(range),
                }
            }
        };
        Some((self.name, value))
    }
}

pub(super) fn formula(param: &ParamDef, value: &ArgValue) -> Read<Formula> {
    match value.formula() {
        Some(formula) => formula.map_err(|error| reported(&error).into()),
        None => Err(wrong(param, takes(param.kind), value).into()),
    }
}

/// A fault of the text itself always has a code.
fn reported(error: &FormulaError) -> Diagnostic {
    error.diagnostic().unwrap_or_else(|| {
        Diagnostic::error(codes::EXPR_SYNTAX, error.to_string(), Label::at(error.span, ""))
    })
}

pub(super) fn wrong(param: &ParamDef, takes: &str, value: &ArgValue) -> Diagnostic {
    let message = format!("`{}` takes {takes}", param.name);
    Diagnostic::error(codes::ARGUMENT, message, Label::at(value.span(), param.doc))
}

pub(super) fn takes(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Buffer(..) => "the name of a buffer, or a range of one",
        ParamKind::Scalar(_) => "a number, an expression or a buffer of one element",
        ParamKind::Size => "a whole number",
        ParamKind::Word(_) => "a word",
        ParamKind::Flag => "true or false",
        ParamKind::Rank => "a rank",
        ParamKind::List => "a list of whole numbers",
        ParamKind::Matrix => "a list of lists of whole numbers, or the name of one",
    }
}

fn unknown(what: &str, params: &[ParamDef], has_comm: bool, arg: &Arg) -> Diagnostic {
    let name = arg.name.value.as_str();
    let message = format!("{what} has no argument `{name}`");
    let label = Label::at(arg.name.span, "unknown");
    let known: Vec<&'static str> =
        params.iter().map(|param| param.name).chain(has_comm.then_some("comm")).collect();
    let help = match habit(name, &known).or_else(|| nearest(name, known.iter().copied())) {
        Some(near) => format!("did you mean `{near}`?"),
        None if TASK_KEYS.contains(&name) => format!("`{name}` is a key of the task: write it beside `args`"),
        None => format!("it takes `{}`", known.join("`, `")),
    };
    Diagnostic::error(codes::UNKNOWN_ARGUMENT, message, label).with_help(help)
}

/// What other systems call a parameter.
fn habit(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let ours: &[&str] = match name {
        "dest" | "dst" | "src" | "source" | "target" | "remote" => &["peer", "to", "from"],
        "op" | "reduce_op" | "reduction" => &["reduce"],
        "data" | "x" | "tensor" | "buf" | "buff" | "sendrecv" => &["buffer"],
        "input" | "sendbuf" | "sendbuff" | "in" => &["send"],
        "output" | "recvbuf" | "recvbuff" | "out" => &["recv"],
        "communicator" | "group" => &["comm"],
        _ => return None,
    };
    ours.iter().copied().find(|ours| known.contains(ours))
}

fn buffer(
    symbols: &Symbols<'_>,
    variables: &[&str],
    param: &ParamDef,
    text: &Text,
    reference: &BufferRef,
) -> Read<usize> {
    let place = named(symbols, param.name, &reference.name, text.place.part(&reference.name_range))?;
    let mut fault = Ok(());
    indices(reference, &mut |expr| {
        if fault.is_ok() {
            fault = check_names(symbols, variables, expr, &|range| text.place.part(range));
        }
    });
    fault.map(|()| place)
}

/// The place of the buffer of that name, which `key` takes.
pub(super) fn named(symbols: &Symbols<'_>, key: &str, name: &str, span: Span) -> Read<usize> {
    if let Some(place) = symbols.buffer(name) {
        return Ok(place);
    }
    if let Some(declared) = symbols.manifest.names.get(name) {
        let message = format!("`{name}` is {}, and `{key}` takes a buffer", declared.kind.words());
        let label = Label::at(span, declared.kind.words());
        return Err(Diagnostic::error(codes::WRONG_NAME, message, label)
            .with_related(Label::at(declared.span, "declared here"))
            .into());
    }
    let message = format!("no buffer is named `{name}`");
    let report = Diagnostic::error(codes::UNKNOWN_NAME, message, Label::at(span, "unknown"));
    let buffers = symbols.manifest.buffers.iter().map(|buffer| buffer.name.value.as_str());
    let help = match nearest(name, buffers) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("declare it as `[buffer.{name}]`"),
    };
    Err(report.with_help(help).into())
}

/// A name that stands for nothing that is needed; a buffer's value is not known before the task runs.
fn check_names(
    symbols: &Symbols<'_>,
    variables: &[&str],
    expr: &Expr,
    place: &dyn Fn(&std::ops::Range<usize>) -> Span,
) -> Read<()> {
    let (scope, names) = (Scope { variables, ..Scope::default() }, &symbols.manifest.names);
    let mut fault = None;
    expr.mentions(&mut |mention, range| {
        if fault.is_some() || scope.allows(mention, names) {
            return;
        }
        let mut wrong = scope.describe(mention, place(range), names);
        if let Mention::Name(name) = mention
            && names.get(name).is_some_and(|declared| declared.kind == NameKind::Buffer)
        {
            wrong.message =
                format!("`{name}` is a buffer, and a number that is known before launch is needed here");
        }
        fault = Some(wrong);
    });
    fault.map_or(Ok(()), |fault: Diagnostic| Err(fault.into()))
}

fn indices(reference: &BufferRef, visit: &mut dyn FnMut(&Expr)) {
    for index in &reference.index {
        match index {
            AxisIndex::Single(at) => visit(at),
            AxisIndex::Range { start, end } => start.iter().chain(end).for_each(&mut *visit),
        }
    }
}
