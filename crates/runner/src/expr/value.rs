//! What an expression evaluates to.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A number, a truth value or a list of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An exact integer.
    Int(i64),
    /// A finite float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A list; lists of lists are how a manifest writes a matrix.
    List(Arc<[Value]>),
}

impl Value {
    /// The type in words, with its article.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a boolean",
            Value::List(_) => "a list",
        }
    }

    /// The number as a float; `None` of a boolean and a list. An integer beyond 2^53 is rounded.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(int) => Some(*int as f64),
            Value::Float(float) => Some(*float),
            Value::Bool(_) | Value::List(_) => None,
        }
    }

    /// The order of two numbers, exact also between an integer and a float; `None` unless both are numbers.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Float(b)) => Some(compare_int_float(*a, *b)),
            (Value::Float(a), Value::Int(b)) => Some(compare_int_float(*b, *a).reverse()),
            _ => None,
        }
    }
}

/// Compares without rounding the integer. `float` is finite.
fn compare_int_float(int: i64, float: f64) -> Ordering {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if float >= TWO_TO_63 {
        return Ordering::Less;
    }
    if float < -TWO_TO_63 {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    // Where the whole parts are equal, the float's fraction decides.
    int.cmp(&(whole as i64)).then(0.0_f64.total_cmp(&(float - whole + 0.0)))
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(int) => write!(f, "{int}"),
            Value::Float(float) => write!(f, "{float:?}"),
            Value::Bool(bool) => write!(f, "{bool}"),
            Value::List(items) => {
                write!(f, "[")?;
                for (at, item) in items.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                write!(f, "]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_floats_compare_exactly() {
        let int = Value::Int;
        let float = Value::Float;
        let beyond = (1_i64 << 53) + 1;
        assert_eq!(int(beyond).compare(&float(9_007_199_254_740_992.0)), Some(Ordering::Greater));
        assert_eq!(float(9_007_199_254_740_992.0).compare(&int(beyond)), Some(Ordering::Less));
        assert_eq!(int(i64::MAX).compare(&float(9_223_372_036_854_775_808.0)), Some(Ordering::Less));
        assert_eq!(int(i64::MIN).compare(&float(-9_223_372_036_854_775_808.0)), Some(Ordering::Equal));
        assert_eq!(int(i64::MIN).compare(&float(-1e300)), Some(Ordering::Greater));
        assert_eq!(int(0).compare(&float(-0.5)), Some(Ordering::Greater));
        assert_eq!(int(-1).compare(&float(-0.5)), Some(Ordering::Less));
        assert_eq!(int(0).compare(&float(-0.0)), Some(Ordering::Equal));
        assert_eq!(int(1).compare(&Value::Bool(true)), None);
    }

    #[test]
    fn a_float_prints_as_a_float() {
        let list = Value::List([Value::Int(1), Value::Float(1.0), Value::Bool(true)].into());
        assert_eq!(list.to_string(), "[1, 1.0, true]");
    }
}
