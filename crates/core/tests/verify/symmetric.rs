//! What is told of an op that treats all ranks alike.

use std::sync::Arc;

use squall_core::{
    Arg, ArgError, Args, BufferId, BufferRange, DType, Description, DeviceError, LibraryOp, Meeting, Mode,
    Needs, OpCall, OpError, ParamDef, Prepare, Presence, Registry, Scalar, Task, TaskGraph, Type, Work,
    World, codes, registry::Item, verify,
};

use crate::job::{buffer, f32s, only, says, task};

const PARAMS: &[ParamDef] = &[
    ParamDef::read("x", Type::In(DType::ALL), ""),
    ParamDef::write("y", Type::Same("x"), "").optional(),
    ParamDef::scalar("factor", Type::Is(DType::F64), ""),
    ParamDef::size("root", Presence::Len("x"), ""),
    ParamDef::word("reduce", &["up", "down"], ""),
    ParamDef::flag("flag", ""),
    ParamDef::rank("peer", ""),
    ParamDef::list("counts", Presence::ShapeOf("x"), ""),
];

fn range(id: u32, offset: u64, len: u64) -> Arg {
    let buffer = BufferId(id);
    Arg::Buffer(BufferRange { buffer, dtype: DType::F32, offset, shape: [len].into() })
}

fn signature(values: &[Arg]) -> String {
    let args = Args { params: PARAMS, values, comm_rank: 1, comm_size: 2 };
    let described = Description::symmetric("own", &args);
    let [Meeting::Collective(signature)] = &described.meetings[..] else { panic!("{described:?}") };
    assert!(signature.share.is_none());
    signature.to_string()
}

fn given() -> Vec<Arg> {
    let list: Arc<[i64]> = Arc::new([5, 6]);
    vec![
        range(3, 2, 5),
        range(4, 0, 5),
        Arg::Scalar(Scalar::Float(2.5)),
        Arg::Size(7),
        Arg::Word(1),
        Arg::Flag(true),
        Arg::Rank(1),
        Arg::List(list),
    ]
}

#[test]
fn buffers_are_accessed_whole_and_every_argument_must_match() {
    let values = given();
    let args = Args { params: PARAMS, values: &values, comm_rank: 1, comm_size: 2 };
    let accesses = Description::symmetric("own", &args).accesses;
    let accesses: Vec<_> = accesses.iter().map(|a| (a.param, a.buffer.0, a.range.clone(), a.mode)).collect();
    assert_eq!(accesses, [("x", 3, 2..7, Mode::Read), ("y", 4, 0..5, Mode::Write)]);
    assert_eq!(
        signature(&values),
        "own x = f32, x = 5, y = f32, y = 5, factor = 2.5, root = 7, reduce = down, flag = true, peer = 1, \
         counts = a list of 2 numbers"
    );
}

#[test]
fn a_scalar_in_a_buffer_is_read_and_what_is_empty_or_absent_is_not() {
    let mut values = given();
    (values[0], values[1], values[2]) = (range(3, 0, 0), Arg::Absent, range(5, 1, 1));
    let args = Args { params: PARAMS, values: &values, comm_rank: 0, comm_size: 1 };
    let accesses = Description::symmetric("own", &args).accesses;
    assert_eq!(accesses.iter().map(|a| (a.param, a.mode)).collect::<Vec<_>>(), [("factor", Mode::Read)]);
    assert!(signature(&values).contains("y = absent, factor = f32, factor = 1"));
}

#[test]
fn another_value_of_any_argument_is_another_signature() {
    let other = [
        range(3, 2, 4),
        Arg::Absent,
        Arg::Scalar(Scalar::Float(2.75)),
        Arg::Size(8),
        Arg::Word(0),
        Arg::Flag(false),
        Arg::Rank(0),
        Arg::List([5, 6, 7].as_slice().into()),
    ];
    for (index, other) in other.into_iter().enumerate() {
        let mut values = given();
        values[index] = other;
        assert_ne!(signature(&values), signature(&given()), "{}", PARAMS[index].name);
    }
    // Elsewhere on another rank is as good.
    let mut values = given();
    values[0] = range(0, 0, 5);
    assert_eq!(signature(&values), signature(&given()));
}

/// An op that says no more of itself.
struct Own;

impl Task for Own {
    fn name(&self) -> &'static str {
        "own"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn params(&self) -> &'static [ParamDef] {
        const {
            &[
                ParamDef::read("x", Type::In(DType::ALL), ""),
                ParamDef::scalar("factor", Type::Is(DType::F64), ""),
            ]
        }
    }
    fn example(&self) -> &'static str {
        ""
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::symmetric("own", args))
    }
}

impl LibraryOp for Own {
    fn library(&self) -> &'static str {
        "own"
    }
    fn device(&self) -> &'static str {
        "test"
    }
    fn needs(&self) -> Needs {
        Needs::NONE
    }
    unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        Err(DeviceError::Unsupported("a test".to_string()).into())
    }
}

#[test]
fn ranks_that_differ_are_refused_at_the_argument() {
    let mut registry = Registry::default();
    registry.add(&Item::Op(&Own), "this test").unwrap();
    let world = Arc::new(World::new(2).unwrap());
    let problems = |lens: [u64; 2], dtypes: [DType; 2], factors: [f64; 2]| {
        let graph = |rank: u32| {
            let mut g = TaskGraph::builder(&registry, &world, rank, "test");
            let at = rank as usize;
            let x = match dtypes[at] {
                DType::F32 => g.buffer(f32s("x", lens[at])),
                dtype => g.buffer(buffer("x", dtype, lens[at])),
            };
            g.step(task("t", "own").arg("x", x).arg("factor", factors[at]));
            g.build().unwrap()
        };
        verify((0..2).map(graph).collect()).map(drop).map_err(|problems| problems.0)
    };
    let f32s = [DType::F32; 2];
    assert_eq!(problems([4, 4], f32s, [0.5, 0.5]), Ok(()));
    let told = |found: Result<(), Vec<squall_core::Diagnostic>>, at: &str, parts: &[&str]| {
        let problems = found.unwrap_err();
        let problem = only(codes::MISMATCH, &problems);
        says(problem, parts);
        assert_eq!(crate::job::place(&problem.primary), at);
    };
    told(problems([4, 5], f32s, [0.5, 0.5]), "t.x", &["x is 4 on rank 0 and 5 on rank 1"]);
    told(
        problems([4, 4], [DType::F32, DType::I32], [0.5, 0.5]),
        "t.x",
        &["x is f32 on rank 0 and i32 on rank 1"],
    );
    told(problems([4, 4], f32s, [0.5, 0.25]), "t.factor", &["factor is 0.5 on rank 0 and 0.25 on rank 1"]);
}
