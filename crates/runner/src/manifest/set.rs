//! `--set NAME=VALUE`: a param's value from outside the manifest.

use squall_core::{Code, Diagnostic, Label, Span};

use super::cycles;
use super::model::{Manifest, ParamValue};
use super::place::{Formula, Place, Text};
use super::scope::Scope;
use crate::codes;
use crate::expr::NoEnv;
use crate::suggest::nearest;

impl Manifest {
    /// Sets a param, as the command line's `--set NAME=VALUE` does. The value is an expression: a number, perhaps with
    /// a suffix such as `64Mi`, a formula, a list. Of several settings of one param the last one counts. What goes wrong
    /// with the value later is reported where the manifest gives the param.
    ///
    /// # Errors
    /// Says what is wrong, with places that count in `assignment`.
    pub fn set(&mut self, assignment: &str) -> Result<(), Box<Diagnostic>> {
        let (name, value) = split(assignment)?;
        let Some(place) = self.params.iter().position(|param| param.name.value == name.value) else {
            return Err(self.unknown(&name));
        };
        let formula = self.expression(&value)?;
        let param = &mut self.params[place];
        let written = match &param.value {
            ParamValue::Formula(formula) => formula.place.span(),
            ParamValue::List(_) => param.name.span.unwrap_or(value.place.span()),
        };
        let formula = Formula { place: Place::of_value(written), ..formula };
        let before = std::mem::replace(&mut param.value, ParamValue::Formula(formula));
        match cycles::check(self).into_iter().next() {
            None => Ok(()),
            Some(cycle) => {
                self.params[place].value = before;
                Err(Box::new(error(cycle.code, cycle.message, value.place.span(), "")))
            }
        }
    }

    /// The value, with all names in it known, and worked out where it is the same everywhere.
    fn expression(&self, value: &Text) -> Result<Formula, Box<Diagnostic>> {
        let reported = |error: super::place::FormulaError| {
            let plain =
                || Diagnostic::error(codes::EXPR_SYNTAX, error.to_string(), Label::at(error.span, ""));
            Box::new(error.diagnostic().unwrap_or_else(plain))
        };
        let formula = value.formula().map_err(reported)?;
        let (scope, mut unknown) = (Scope::default(), None);
        formula.expr.mentions(&mut |mention, range| {
            if unknown.is_none() && !scope.allows(mention, &self.names) {
                let mut fault = scope.describe(mention, formula.place.part(range), &self.names);
                // They point into the manifest.
                fault.related.clear();
                unknown = Some(fault);
            }
        });
        if let Some(fault) = unknown {
            return Err(Box::new(fault));
        }
        if formula.expr.is_constant() {
            formula.eval(&NoEnv).map_err(reported)?;
        }
        Ok(formula)
    }

    fn unknown(&self, name: &Text) -> Box<Diagnostic> {
        let known: Vec<&str> = self.params.iter().map(|param| param.name.value.as_str()).collect();
        let message = format!("the manifest has no param `{}`", name.value);
        let report = error(codes::UNKNOWN_NAME, message, name.place.span(), "unknown");
        let help = match nearest(&name.value, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "it has none at all".to_owned(),
            None => format!("it has {}", known.join(", ")),
        };
        Box::new(report.with_help(help))
    }
}

/// The name and the value, each without the space around it.
fn split(assignment: &str) -> Result<(Text, Text), Box<Diagnostic>> {
    let Some((name, value)) = assignment.split_once('=') else {
        let span = Span::from(0..assignment.len());
        let report = error(codes::BAD_VALUE, format!("`{assignment}` sets nothing"), span, "");
        return Err(Box::new(report.with_help("write a param, `=` and its value: `n=8192`")));
    };
    let text = |part: &str, start: usize| {
        let start = start + (part.len() - part.trim_start().len());
        let place = Place::of_text(Span::from(start..start + part.trim().len()));
        Text { value: part.trim().to_owned(), place }
    };
    Ok((text(name, 0), text(value, name.len() + 1)))
}

fn error(code: Code, message: String, span: Span, text: &str) -> Diagnostic {
    Diagnostic::error(code, message, Label::at(span, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Value;

    const MANIFEST: &str = "manifest = 1\n[params]\nn = 4\nm = \"n + 1\"\ncounts = [[0, 0], [0, 0]]\nlast = true\n\
                            [buffer.u]\ndtype = \"f32\"\nshape = [\"n\"]\n";

    fn manifest() -> Manifest {
        super::super::parse(MANIFEST).unwrap().0
    }

    fn value(assignments: &[&str]) -> Value {
        let mut manifest = manifest();
        assignments.iter().for_each(|assignment| manifest.set(assignment).unwrap());
        let name = assignments[0].split('=').next().unwrap().trim();
        manifest.params.iter().find(|param| param.name.value == name).unwrap().value.eval(&NoEnv).unwrap()
    }

    /// The code and the text that is pointed at.
    fn fault(assignment: &str) -> (&'static str, String) {
        let report = manifest().set(assignment).unwrap_err();
        let span = report.primary.span.unwrap();
        (report.code.0, assignment[span.start as usize..span.end as usize].to_owned())
    }

    #[test]
    fn values_are_expressions() {
        assert_eq!(value(&["n=8192"]), Value::Int(8192));
        assert_eq!(value(&[" n = 64Mi "]), Value::Int(64 << 20));
        assert_eq!(value(&["n=-2 * 3.5"]), Value::Float(-7.0));
        assert_eq!(value(&["last=false"]), Value::Bool(false));
        let list = |items: [i64; 2]| Value::List(items.iter().map(|&item| Value::Int(item)).collect());
        let matrix = Value::List([list([1, 2]), list([3, 4])].into());
        assert_eq!(value(&["counts=[[1,2],[3,4]]"]), matrix);
    }

    #[test]
    fn the_last_setting_counts() {
        assert_eq!(value(&["n=1", "n=2"]), Value::Int(2));
    }

    #[test]
    fn what_is_wrong_has_its_place_in_the_assignment() {
        assert_eq!(fault("n"), ("E0106", "n".into()));
        assert_eq!(fault("k = 3"), ("E0121", "k".into()));
        assert_eq!(fault("=3"), ("E0121", String::new()));
        assert_eq!(fault("n=3 +* 4"), ("E0120", "*".into()));
        assert_eq!(fault("n="), ("E0120", String::new()));
        assert_eq!(fault("n=2 * k"), ("E0121", "k".into()));
        assert_eq!(fault("n=u + 1"), ("E0122", "u".into()));
        assert_eq!(fault("n=7 / (1 - 1)").0, "E0124");
        assert_eq!(fault("n=99999999999999999999").0, "E0125");
        assert_eq!(fault("n=m + 1"), ("E0111", "m + 1".into()));
        let help = |assignment: &str| manifest().set(assignment).unwrap_err().help.unwrap();
        assert_eq!(help("count=1"), "did you mean `counts`?");
        assert_eq!(help("weights=1"), "it has n, m, counts, last");
    }

    #[test]
    fn a_param_of_the_mesh_cannot_hang_on_it() {
        let text =
            "manifest = 1\n[params]\nn = 2\n[world]\nmesh = [{ dp = \"world / n\" }, { tp = \"n\" }]\n";
        let mut manifest = crate::manifest::parse(text).unwrap().0;
        assert_eq!(manifest.set("n=tp.size").unwrap_err().code.0, "E0111");
        assert_eq!(manifest.set("n=row.size").unwrap_err().code.0, "E0121");
        manifest.set("n=4").unwrap();
    }

    #[test]
    fn a_refused_setting_changes_nothing() {
        let mut manifest = manifest();
        manifest.set("n=m + 1").unwrap_err();
        manifest.set("m=n + 2").unwrap();
    }
}
