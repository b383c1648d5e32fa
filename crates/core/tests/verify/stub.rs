//! What the jobs of these tests name: libraries that run nothing, and a kernel.

use std::sync::LazyLock;

use squall_core::ops;
use squall_core::registry::Item;
use squall_core::{
    Access, ArgError, Args, BufferId, Cover, DType, Description, DeviceError, HostCall, KernelDef, LibraryOp,
    Meeting, Message, Mode, Needs, OpCall, OpError, ParamDef, Prepare, Presence, ReduceOp, Registry, Task,
    Type, Work,
};

/// One of squall's own ops under any name, by any library.
struct Stub {
    name: &'static str,
    contract: &'static dyn Task,
    library: &'static str,
    device: &'static str,
    needs: Needs,
}

impl Task for Stub {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.contract.summary()
    }

    fn params(&self) -> &'static [ParamDef] {
        self.contract.params()
    }

    fn example(&self) -> &'static str {
        self.contract.example()
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        self.contract.describe(args)
    }
}

impl LibraryOp for Stub {
    fn library(&self) -> &'static str {
        self.library
    }

    fn device(&self) -> &'static str {
        self.device
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        Err(DeviceError::Unsupported("a stub runs nothing".to_string()).into())
    }
}

/// What a collective that moves 16-byte packs might ask for.
const PICKY: Needs = Needs {
    alignment: 16,
    multiple: 4,
    dtypes: &[DType::F32, DType::F16],
    reductions: &[ReduceOp::Sum],
    groups: false,
    ..Needs::NONE
};

const FAR: Needs = Needs { uses: &["all_reduce"], ..Needs::NONE };

/// An op that says what cannot be: of ranges and of peers, depending on its word.
struct Liar;

impl Task for Liar {
    fn name(&self) -> &'static str {
        "lie"
    }

    fn summary(&self) -> &'static str {
        ""
    }

    fn params(&self) -> &'static [ParamDef] {
        const { &[ParamDef::word("of", &["ranges", "buffers", "peers"], "")] }
    }

    fn example(&self) -> &'static str {
        ""
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let access =
            |buffer, end| Access { param: "of", buffer: BufferId(buffer), range: 0..end, mode: Mode::Write };
        let send = Meeting::Send(Message { peer: 9, count: 1, dtype: DType::F32 });
        Ok(match args.word("of") {
            Some(0) => Description { accesses: vec![access(0, 5)], meetings: Vec::new() },
            Some(1) => Description { accesses: vec![access(7, 1)], meetings: Vec::new() },
            _ => Description { accesses: Vec::new(), meetings: vec![send] },
        })
    }
}

/// An op as a library of these tests serves it; it lives as long as the program.
pub(crate) fn op(
    name: &'static str,
    contract: &'static dyn Task,
    library: &'static str,
    device: &'static str,
    needs: Needs,
) -> Item {
    Item::Op(Box::leak(Box::new(Stub { name, contract, library, device, needs })))
}

/// All contracts by `stub` on `test` and `host` devices; `packed_sum` by `picky`, `eager_sum` by `eager`, `near_sum` by `near`, which
/// takes one process, and `far_sum` by `far`, which uses an `all_reduce`; on `twin` devices `send` by two.
pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    let mut add = |name, contract: &'static dyn Task, library, device, needs| {
        registry.add(&op(name, contract, library, device, needs), "these tests").unwrap();
    };
    for contract in ops::CONTRACTS {
        add(Task::name(contract), contract, "stub", "test", Needs::NONE);
        add(Task::name(contract), contract, "stub", "host", Needs::NONE);
    }
    add("packed_sum", &ops::ALL_REDUCE, "picky", "test", PICKY);
    add("eager_sum", &ops::ALL_REDUCE, "eager", "test", Needs { captures: false, ..Needs::NONE });
    add("near_sum", &ops::ALL_REDUCE, "near", "test", Needs { single_process: true, ..Needs::NONE });
    add("far_sum", &ops::ALL_REDUCE, "far", "test", FAR);
    add("far_sum", &ops::ALL_REDUCE, "far", "twin", FAR);
    add("lie", &Liar, "stub", "test", Needs::NONE);
    add("send", &ops::SEND, "one", "twin", Needs::NONE);
    add("send", &ops::SEND, "two", "twin", Needs::NONE);
    registry
});

fn run(_: &HostCall<'_>) -> Result<(), String> {
    Ok(())
}

/// `y = factor × x`, element by element, so that both may be one range.
pub(crate) static SCALE: KernelDef = KernelDef {
    name: "scale",
    params: &[
        ParamDef::read("x", Type::In(DType::FLOATS), "[n]"),
        ParamDef::write("y", Type::Same("x"), "[n]"),
        ParamDef::scalar("factor", Type::Same("x"), "the factor"),
        ParamDef::size("n", Presence::Len("x"), "elements"),
    ],
    covers: &[Cover::Size("n")],
    in_place: &[("y", "x")],
    host: Some(&run),
    ..KernelDef::EMPTY
};

/// A kernel that no test device can run.
pub(crate) static NOWHERE: KernelDef = KernelDef { name: "nowhere", ..KernelDef::EMPTY };
