//! Quotients of integers that are rounded down on their way to a floating-point argument: `factor = "1 / n"` is 0.

use squall_core::{Diagnostic, KernelDef, Label, ParamKind, Registry, Span, Task as _, Type};

use super::Job;
use super::env::RankEnv;
use super::names::{Symbol, Symbols};
use crate::codes;
use crate::expr::Value;
use crate::expr::ast::{Expr, Kind, Operator};
use crate::manifest::model::{Arg, ArgValue, Args, Body, ParamValue, Task};
use crate::manifest::place::{Formula, Place};

/// A warning for each such quotient, as rank 0 meets it.
pub(super) fn check(job: &Job<'_>, registry: &Registry) -> Vec<Diagnostic> {
    let manifest = job.manifest;
    let mut seen = Seen { symbols: &job.symbols, env: job.env(0), found: Vec::new() };
    for tasks in [&manifest.setup, &manifest.tasks, &manifest.finish] {
        seen.tasks(tasks, registry);
    }
    seen.found
}

/// Whether an argument becomes a floating-point number.
fn is_float(symbols: &Symbols<'_>, kernel: &KernelDef, args: &Args, arg: &Arg) -> bool {
    let param = kernel.params().iter().find(|param| param.name == arg.name.value);
    match param.map(|param| param.kind) {
        Some(ParamKind::Scalar(Type::Is(dtype))) => dtype.is_float(),
        Some(ParamKind::Scalar(Type::Same(of))) => {
            let Some(ArgValue::Text(text)) = args.get(of).map(|arg| &arg.value) else { return false };
            let place = text.buffer().ok().and_then(|buffer| symbols.buffer(&buffer.name));
            place.is_some_and(|place| symbols.manifest.buffers[place].dtype.value.is_float())
        }
        _ => false,
    }
}

struct Seen<'a> {
    symbols: &'a Symbols<'a>,
    env: RankEnv<'a>,
    found: Vec<Diagnostic>,
}

impl Seen<'_> {
    fn tasks(&mut self, tasks: &[Task], registry: &Registry) {
        for task in tasks {
            match &task.body {
                Body::Do(tasks) => self.tasks(tasks, registry),
                Body::Kernel(call) => {
                    let Some(kernel) = registry.kernel(&call.kernel.value) else { continue };
                    let floats = |arg: &&Arg| is_float(self.symbols, kernel, &call.args, arg);
                    let formulas =
                        call.args.items.iter().filter(floats).filter_map(|arg| arg.value.formula()?.ok());
                    for formula in formulas.collect::<Vec<_>>() {
                        self.look(&formula.expr, &formula.place);
                    }
                }
                _ => {}
            }
        }
    }

    /// Looks where a value is passed on as it is, negated or multiplied: there an integer quotient is hardly meant.
    fn look(&mut self, expr: &Expr, place: &Place) {
        match &expr.kind {
            Kind::Negate(inner) => self.look(inner, place),
            Kind::Name(name) => {
                if let Some(Symbol::Param(param)) = self.symbols.get(name)
                    && let ParamValue::Formula(Formula { expr, place }) =
                        &self.symbols.manifest.params[param].value
                {
                    self.look(expr, place);
                }
            }
            Kind::Arithmetic(first, rest) => {
                self.look(first, place);
                for (at, (operator, operand)) in rest.iter().enumerate() {
                    match operator {
                        Operator::Multiply => self.look(operand, place),
                        Operator::Divide => {
                            let before = Kind::Arithmetic(first.clone(), rest[..at].to_vec());
                            let left = Expr { kind: before, range: first.range.start..operand.range.start };
                            let range = first.range.start..operand.range.end;
                            self.quotient(&left, operand, place.part(&range));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn quotient(&mut self, left: &Expr, right: &Expr, span: Span) {
        let (Ok(Value::Int(a)), Ok(Value::Int(b))) = (left.eval(&self.env), right.eval(&self.env)) else {
            return;
        };
        if b == 0 || a.checked_rem(b).is_none_or(|rest| rest == 0) {
            return;
        }
        let message = format!(
            "a floating-point number is needed, and the quotient of the integers {a} and {b} is rounded down to {}",
            a.div_euclid(b) - i64::from(b < 0 && a.rem_euclid(b) != 0)
        );
        let help = match left.kind {
            Kind::Arithmetic(ref only, ref rest)
                if rest.is_empty() && matches!(only.kind, Kind::Literal(_)) =>
            {
                format!("write `{a}.0` in place of `{a}`")
            }
            _ => "write `1.0 *` before it: a float divides exactly".to_owned(),
        };
        let label = Label::at(span, "rounds down");
        let warning = Diagnostic::warning(codes::INEXACT_QUOTIENT, message, label).with_help(help);
        if !self.found.contains(&warning) {
            self.found.push(warning);
        }
    }
}
