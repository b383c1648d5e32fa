//! The expression language: what each form gives, what each fault says, and that nothing panics.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

use proptest::prelude::*;
use squall_runner::expr::{
    AxisIndex, Env, ErrorKind, ExprError, Lookup, MAX_DEPTH, MAX_LENGTH, Member, Mention, NoEnv, Value,
    parse, parse_buffer, parse_loop,
};

/// Rank 1 of 4, in a communicator of 2, with a few params and a buffer.
struct Rank;

impl Env for Rank {
    fn name(&self, name: &str) -> Lookup<Value> {
        Lookup::Found(match name {
            "rank" => Value::Int(1),
            "world" => Value::Int(4),
            "n" => Value::Int(10),
            "k" => Value::Float(0.5),
            "m" => matrix(),
            "failed" => return Lookup::Failed,
            _ => return Lookup::Unknown,
        })
    }

    fn communicator(&self, name: &str) -> Lookup<Member> {
        match name {
            "row" => Lookup::Found(Member { rank: 0, size: 2 }),
            "late" => Lookup::NotYet,
            _ => Lookup::Unknown,
        }
    }

    fn buffer_len(&self, name: &str) -> Lookup<i64> {
        if name == "grads" { Lookup::Found(12) } else { Lookup::Unknown }
    }

    fn known(&self) -> Vec<&str> {
        vec!["rank", "world", "n", "k", "m"]
    }
}

fn matrix() -> Value {
    let row = |items: [i64; 2]| Value::List(items.map(Value::Int).into());
    Value::List([row([3, 5]), row([2, 0])].into())
}

fn eval(text: &str) -> Result<Value, ExprError> {
    parse(text)?.eval(&Rank)
}

/// The value as it prints.
fn value(text: &str) -> String {
    eval(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

/// The kind of the fault, and the part of the text that it points to.
fn fault(text: &str) -> (ErrorKind, &str) {
    let error = eval(text).expect_err(text);
    (error.kind, &text[error.range])
}

#[test]
fn numbers_are_read_as_written() {
    assert_eq!(value("1_000"), "1000");
    assert_eq!(value("64Ki + 1Mi + 2Gi"), "2148597760");
    assert_eq!(value("1e-3"), "0.001");
    assert_eq!(value("1.5e3"), "1500.0");
    assert_eq!(value("-9223372036854775808"), "-9223372036854775808");
    assert_eq!(value("- 9223372036854775807"), "-9223372036854775807");
    assert_eq!(fault("9223372036854775808"), (ErrorKind::Overflow, "9223372036854775808"));
    assert_eq!(fault("1 + 64MB"), (ErrorKind::Syntax, "64MB"));
    assert_eq!(fault("1.5Ki"), (ErrorKind::Syntax, "1.5Ki"));
    assert_eq!(fault("1e999"), (ErrorKind::NotFinite, "1e999"));
}

#[test]
fn operators_bind_as_in_python() {
    assert_eq!(value("1 + 2 * 3 - 4"), "3");
    assert_eq!(value("10 - 3 - 2"), "5");
    assert_eq!(value("100 / 10 / 2"), "5");
    assert_eq!(value("-2 * 3"), "-6");
    assert_eq!(value("- -2"), "2");
    assert_eq!(value("(1 + 2) * 3"), "9");
    assert_eq!(value("not 1 == 2 and 3 < 4"), "true");
    assert_eq!(value("false and false or true"), "true");
    assert_eq!(value("1 if false else 2 if false else 3"), "3");
    assert_eq!(value("1 + 1 if 1 < 2 else 0"), "2");
}

#[test]
fn integer_division_rounds_down_and_the_remainder_follows_the_divisor() {
    assert_eq!(value("7 / 2"), "3");
    assert_eq!(value("-7 / 2"), "-4");
    assert_eq!(value("7 / -2"), "-4");
    assert_eq!(value("-7 / -2"), "3");
    assert_eq!(value("-7 % 3"), "2");
    assert_eq!(value("7 % -3"), "-2");
    assert_eq!(value("(rank - 2) % world"), "3");
    assert_eq!(value("-9223372036854775808 % -1"), "0");
    assert_eq!(fault("1 + -9223372036854775808 / -1"), (ErrorKind::Overflow, "-9223372036854775808 / -1"));
    assert_eq!(value("7 / 2.0"), "3.5");
    assert_eq!(value("-7.5 % 2"), "0.5");
    assert_eq!(value("7.5 % -2"), "-0.5");
}

#[test]
fn an_integer_with_a_float_gives_a_float() {
    assert_eq!(value("1 + k"), "1.5");
    assert_eq!(value("2 * k"), "1.0");
    assert_eq!(value("1 == 1.0"), "true");
    assert_eq!(value("max(1, 0.5)"), "1.0");
    assert_eq!(value("max(1, 2)"), "2");
}

#[test]
fn only_what_decides_is_evaluated() {
    assert_eq!(value("1 if true else 1 / 0"), "1");
    assert_eq!(value("1 / 0 if false else 2"), "2");
    assert_eq!(value("false and 1 / 0 == 1"), "false");
    assert_eq!(value("true or unknown"), "true");
    assert_eq!(fault("true and 1 / 0 == 1"), (ErrorKind::DivisionByZero, "0"));
}

#[test]
fn lists_are_indexed_sliced_and_summed() {
    assert_eq!(value("m[0][1]"), "5");
    assert_eq!(value("m[rank]"), "[2, 0]");
    assert_eq!(value("[n, k, true][:2]"), "[10, 0.5]");
    assert_eq!(value("sum(m[0][:rank])"), "3");
    assert_eq!(value("sum([])"), "0");
    assert_eq!(value("sum([1, 0.5])"), "1.5");
    assert_eq!(value("min(m[0])"), "3");
    assert_eq!(value("max(m[0])"), "5");
    assert_eq!(value("max([1, 1.5, 1])"), "1.5");
    assert_eq!(value("[1, 2, ]"), "[1, 2]");
    assert_eq!(value("m[0][2:]"), "[]");
    assert_eq!(fault("m[0][2]"), (ErrorKind::OutOfRange, "2"));
    assert_eq!(fault("m[-1]"), (ErrorKind::OutOfRange, "-1"));
    assert_eq!(fault("m[0][1:3]"), (ErrorKind::OutOfRange, "3"));
    assert_eq!(fault("m[0][2:1]"), (ErrorKind::OutOfRange, "m[0][2:1]"));
    assert_eq!(fault("n[0]"), (ErrorKind::Type, "n"));
    assert_eq!(fault("m[k]"), (ErrorKind::Type, "k"));
    assert_eq!(fault("sum(m)"), (ErrorKind::Type, "m"));
    assert_eq!(fault("max([])"), (ErrorKind::OutOfRange, "max([])"));
    assert_eq!(fault("min(1, true)"), (ErrorKind::Type, "true"));
}

#[test]
fn functions_know_the_rank_its_communicators_and_buffers() {
    assert_eq!(value("share(n)"), "3");
    assert_eq!(value("offset(n)"), "3");
    assert_eq!(value("share(n, 3, world)"), "2");
    assert_eq!(value("offset(n, 4, world)"), "10");
    assert_eq!(value("10 * rank(row) + size(row)"), "2");
    assert_eq!(value("len(grads)"), "12");
    assert_eq!(value("len(m) + len(m[0]) + len([1])"), "5");
    assert_eq!(fault("share(n, 4, world)"), (ErrorKind::OutOfRange, "share(n, 4, world)"));
    assert_eq!(fault("1 + share(-1)"), (ErrorKind::OutOfRange, "share(-1)"));
    assert_eq!(fault("len(n)"), (ErrorKind::Type, "n"));
    assert_eq!(fault("rank(diagonal)"), (ErrorKind::UnknownName, "diagonal"));
    assert_eq!(fault("share(n, 1)"), (ErrorKind::Arity, "share(n, 1)"));
}

#[test]
fn a_communicators_rank_and_size_are_names_with_a_dot() {
    assert_eq!(value("10 * row.rank + row.size"), "2");
    assert_eq!(value("row.size if row.rank == 0 else 1"), "2");
    assert_eq!(fault("1 + col.size"), (ErrorKind::UnknownName, "col"));
    assert_eq!(fault("late.size"), (ErrorKind::NotYet, "late"));
    assert_eq!(fault("row.length"), (ErrorKind::Syntax, "length"));
    assert_eq!(fault("row .rank"), (ErrorKind::Syntax, "."));
    assert_eq!(fault("row. rank"), (ErrorKind::Syntax, "."));
    assert_eq!(fault("row.rank.size"), (ErrorKind::Syntax, "."));
    assert_eq!(fault("m[0].rank"), (ErrorKind::Syntax, "."));
    assert_eq!(fault("np.sum(m)"), (ErrorKind::UnknownName, "np.sum"));
    assert_eq!(parse_loop("m in row.rank..row.size").unwrap().start.map(|start| start.range), Some(5..13));
    assert_eq!(parse_loop("m in n..k").unwrap().start.map(|start| start.range), Some(5..6));
    assert_eq!(parse_loop("a.b in 4").unwrap_err().range, 0..3);
    assert_eq!(parse_buffer("u.size").unwrap_err().range, 0..6);
}

#[test]
fn columns_and_rows_change_places() {
    assert_eq!(value("column(m, 0)"), "[3, 2]");
    assert_eq!(value("column(m, rank)"), "[5, 0]");
    assert_eq!(value("sum(column(m, 1)[:1])"), "5");
    assert_eq!(value("column([[1, [2, 3]]], 1)"), "[[2, 3]]");
    assert_eq!(value("column([], 7)"), "[]");
    assert_eq!(value("transpose(m)"), "[[3, 2], [5, 0]]");
    assert_eq!(value("transpose(transpose([[1, 2, 3]]))"), "[[1, 2, 3]]");
    assert_eq!(value("transpose([[1], [2.5], [true]])"), "[[1, 2.5, true]]");
    assert_eq!(value("transpose([])"), "[]");
    assert_eq!(value("transpose([[], []])"), "[]");
    assert_eq!(value("transpose(m)[rank] [0] - column(m, 1)[0]"), "0");
    assert_eq!(fault("column(m, 2)"), (ErrorKind::OutOfRange, "2"));
    assert_eq!(fault("column(m, -1)"), (ErrorKind::OutOfRange, "-1"));
    assert_eq!(fault("column(m, k)"), (ErrorKind::Type, "k"));
    assert_eq!(fault("column(m[0], 0)"), (ErrorKind::Type, "m[0]"));
    assert_eq!(fault("column(m)"), (ErrorKind::Arity, "column(m)"));
    assert_eq!(fault("1 + transpose([[1], [2, 3]])"), (ErrorKind::Type, "[[1], [2, 3]]"));
    assert_eq!(fault("transpose([[1, 2], [3]])"), (ErrorKind::Type, "[[1, 2], [3]]"));
    assert_eq!(fault("transpose([1])"), (ErrorKind::Type, "[1]"));
    assert_eq!(fault("transpose(n)"), (ErrorKind::Type, "n"));
}

#[test]
fn faults_point_to_the_part_that_is_wrong() {
    assert_eq!(fault("1 + nn"), (ErrorKind::UnknownName, "nn"));
    assert_eq!(fault("1 + failed"), (ErrorKind::Reported, "failed"));
    assert_eq!(fault("1 + true * 2"), (ErrorKind::Type, "true"));
    assert_eq!(fault("n + 1 + m"), (ErrorKind::Type, "m"));
    assert_eq!(fault("n and true"), (ErrorKind::Type, "n"));
    assert_eq!(fault("true < false"), (ErrorKind::Type, "true"));
    assert_eq!(fault("1 < true"), (ErrorKind::Type, "true"));
    assert_eq!(fault("m == m"), (ErrorKind::Type, "m"));
    assert_eq!(fault("1 + 5 / (n - 10)"), (ErrorKind::DivisionByZero, "(n - 10)"));
    assert_eq!(fault("1 + 9223372036854775807 * 2"), (ErrorKind::Overflow, "9223372036854775807 * 2"));
    assert_eq!(fault("-(-9223372036854775808)"), (ErrorKind::Overflow, "-(-9223372036854775808)"));
    assert_eq!(fault("1e308 * 10"), (ErrorKind::NotFinite, "1e308 * 10"));
    assert_eq!(eval("wrld").unwrap_err().help.as_deref(), Some("did you mean `world`?"));
}

#[test]
fn a_value_of_another_type_is_refused_where_one_type_is_needed() {
    assert_eq!(parse("n").unwrap().eval_int(&Rank), Ok(10));
    assert_eq!(parse("k").unwrap().eval_int(&Rank).unwrap_err().kind, ErrorKind::Type);
    assert_eq!(parse("n").unwrap().eval_f64(&Rank), Ok(10.0));
    assert_eq!(parse("m").unwrap().eval_f64(&Rank).unwrap_err().kind, ErrorKind::Type);
    assert_eq!(parse("n > 1").unwrap().eval_bool(&Rank), Ok(true));
    assert_eq!(parse("n").unwrap().eval_bool(&Rank).unwrap_err().kind, ErrorKind::Type);
}

#[test]
fn mentions_are_listed_and_rank_dependence_is_seen() {
    let text = "a + row.rank * len(grads) if share(b) > size(col) else m[i]";
    let mut found = Vec::new();
    let expr = parse(text).unwrap();
    expr.mentions(&mut |mention, range| found.push((mention, &text[range.clone()])));
    let expected = [
        (Mention::Name("a"), "a"),
        (Mention::CommRank("row"), "row"),
        (Mention::Len("grads"), "grads"),
        (Mention::Place, "share(b)"),
        (Mention::Name("b"), "b"),
        (Mention::CommSize("col"), "col"),
        (Mention::Name("m"), "m"),
        (Mention::Name("i"), "i"),
    ];
    assert_eq!(found, expected);
    let depends = |text: &str| parse(text).unwrap().depends_on_rank();
    assert!(["rank", "offset(n)", "rank(row)", "row.size", "1 if true else rank"].into_iter().all(depends));
    assert!(!["world", "share(n, 0, world)", "len(u)", "1"].into_iter().any(depends));
    assert!(parse("[1, 2][0] + 3").unwrap().is_constant());
    assert!(!parse("share(1)").unwrap().is_constant());
}

#[test]
fn ranges_of_buffers_keep_their_places() {
    let text = "u[0, 2:8, :n, k:, :]";
    let buffer = parse_buffer(text).unwrap();
    assert_eq!((&*buffer.name, &text[buffer.name_range]), ("u", "u"));
    let part = |expr: &Option<_>| expr.as_ref().map(|e: &squall_runner::expr::Expr| &text[e.range.clone()]);
    let axes: Vec<_> = buffer
        .index
        .iter()
        .map(|axis| match axis {
            AxisIndex::Single(at) => (Some(&text[at.range.clone()]), None),
            AxisIndex::Range { start, end } => (part(start), part(end)),
        })
        .collect();
    let expected =
        [(Some("0"), None), (Some("2"), Some("8")), (None, Some("n")), (Some("k"), None), (None, None)];
    assert_eq!(axes, expected);
    assert!(parse_buffer("u").unwrap().index.is_empty());
    for refused in ["", "u[]", "u[1", "u[1,]", "u[1][2]", "1", "u + 1", "u[1:2:3]", "and"] {
        assert_eq!(parse_buffer(refused).expect_err(refused).kind, ErrorKind::Syntax);
    }
}

#[test]
fn heads_of_loops_are_read() {
    let head = parse_loop("m in 1..k + 1").unwrap();
    assert_eq!((&*head.variable.name, head.start.is_some(), head.end.range), ("m", true, 8..13));
    assert!(parse_loop("peer in world").unwrap().start.is_none());
    for refused in ["m", "m in", "m in 1..", "m of 4", "1 in 4", "m in 1..2..3"] {
        assert_eq!(parse_loop(refused).expect_err(refused).kind, ErrorKind::Syntax);
    }
}

/// The longest and the deepest texts are read, evaluated and dropped on a stack of 512 KiB.
#[test]
fn limits_are_diagnosed_before_the_stack_ends() {
    let depth = MAX_DEPTH as usize - 1;
    let run = move || {
        let sum = format!("1{}", "+1".repeat(MAX_LENGTH / 2 - 1));
        assert_eq!(parse(&sum).unwrap().eval(&NoEnv), Ok(Value::Int(MAX_LENGTH as i64 / 2)));
        let nest =
            |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        for (open, close) in
            [("(", ")"), ("[", "]"), ("-", ""), ("min(", ")"), ("1 if false else ", ""), ("", "[0]")]
        {
            let deepest = parse(&nest(open, close, depth)).unwrap();
            let _ = deepest.eval(&NoEnv);
            for depth in [MAX_DEPTH as usize + 1, 250] {
                assert_eq!(
                    parse(&nest(open, close, depth)).expect_err(open).kind,
                    ErrorKind::Limit,
                    "{open}{close}"
                );
            }
        }
        assert_eq!(parse(&" ".repeat(MAX_LENGTH + 1)).unwrap_err().kind, ErrorKind::Limit);
        assert_eq!(parse(&"not ".repeat(70)).unwrap_err().kind, ErrorKind::Limit);
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
}

/// An expression of integers, with its value by the plainest means; `None` where that has none in 64 bits.
#[derive(Clone, Debug)]
struct Reference {
    text: String,
    value: Option<i64>,
}

fn arithmetic() -> impl Strategy<Value = Reference> {
    let literal = prop_oneof![any::<i64>(), -9..10_i64]
        .prop_map(|int| Reference { text: format!("({int})"), value: Some(int) });
    literal.prop_recursive(5, 40, 2, |inner| {
        (inner.clone(), inner, prop::sample::select(vec!['+', '-', '*', '/', '%'])).prop_map(
            |(a, b, operator)| {
                let text = format!("({} {operator} {})", a.text, b.text);
                let value =
                    a.value.zip(b.value).and_then(|(a, b)| by_reference(operator, a.into(), b.into()));
                Reference { text, value }
            },
        )
    })
}

fn by_reference(operator: char, a: i128, b: i128) -> Option<i64> {
    let floor = |a: i128, b: i128| a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0);
    let exact = match operator {
        '+' => a + b,
        '-' => a - b,
        '*' => a * b,
        _ if b == 0 => return None,
        '/' => floor(a, b),
        _ => a - b * floor(a, b),
    };
    exact.try_into().ok()
}

proptest! {
    #[test]
    fn integer_arithmetic_is_exact_or_diagnosed(reference in arithmetic()) {
        match (eval(&reference.text), reference.value) {
            (Ok(Value::Int(value)), Some(expected)) => prop_assert_eq!(value, expected),
            (Err(error), None) => {
                prop_assert!(matches!(error.kind, ErrorKind::Overflow | ErrorKind::DivisionByZero), "{}", error);
            }
            (found, expected) => prop_assert!(false, "{}: {:?}, not {:?}", reference.text, found, expected),
        }
    }

    #[test]
    fn chains_are_evaluated_from_the_left(first in -99..99_i64, rest in prop::collection::vec((any::<bool>(), -99..99_i64), 0..9)) {
        let mut text = first.to_string();
        let mut sum = first;
        for (plus, int) in rest {
            text += &format!(" {} {int}", if plus { '+' } else { '-' });
            sum += if plus { int } else { -int };
        }
        prop_assert_eq!(eval(&text), Ok(Value::Int(sum)));
    }

    #[test]
    fn any_text_is_read_or_refused_in_its_bounds(text in r#"([a-z0-9_.,:()\[\]+*/%<>=!&|? -]|share|rank|dp\.size|column|transpose|not |if |else |in |é|"){0,40}"#) {
        let refused = |error: ExprError| text.get(error.range).is_some();
        if let Err(error) = eval(&text) {
            prop_assert!(refused(error));
        }
        if let Err(error) = parse_buffer(&text) {
            prop_assert!(refused(error));
        }
        if let Err(error) = parse_loop(&text) {
            prop_assert!(refused(error));
        }
    }
}
