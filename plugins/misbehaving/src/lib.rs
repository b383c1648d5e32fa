//! A plugin of squall that does what plugins should not: ops that panic, fail, or never end. Tests see with it that a rank fails and
//! the process does not; and one that does nothing, by which what a call costs is measured. `faults.c` beside it has what is wrong before an op is ever reached.

mod local;

use squall_plugin::core::{
    ArgError, Args, Description, DeviceError, LibraryOp, Needs, OpCall, OpError, ParamDef, Prepare, Stream,
    Task, Work, register_op,
};

squall_plugin::export!();

register_op!(
    &PANICS_IN_PREPARE,
    &PANICS_IN_ENQUEUE,
    &FAILS_ON_ONE_RANK,
    &NEVER_ENDS_ON_ONE_RANK,
    &DOES_NOTHING
);

static DOES_NOTHING: Op = Op {
    name: "does_nothing",
    example: include_str!("../examples/does_nothing.toml"),
    groups: true,
    ..Op::QUIET
};

static PANICS_IN_PREPARE: Op = Op {
    name: "panics_in_prepare",
    example: include_str!("../examples/panics_in_prepare.toml"),
    prepare: || panic!("no rank is ever ready"),
    ..Op::QUIET
};

static PANICS_IN_ENQUEUE: Op = Op {
    name: "panics_in_enqueue",
    example: include_str!("../examples/panics_in_enqueue.toml"),
    enqueue: |_| panic!("no step is ever done"),
    ..Op::QUIET
};

static FAILS_ON_ONE_RANK: Op = Op {
    name: "fails_on_one_rank",
    example: include_str!("../examples/fails_on_one_rank.toml"),
    enqueue: |last| if last { Err(DeviceError::Failed("the last rank will not".to_owned())) } else { Ok(()) },
    ..Op::QUIET
};

static NEVER_ENDS_ON_ONE_RANK: Op = Op {
    name: "never_ends_on_one_rank",
    example: include_str!("../examples/never_ends_on_one_rank.toml"),
    enqueue: |last| {
        if last {
            loop {
                std::thread::sleep(std::time::Duration::from_millis(1)); // an abort does not interest it
            }
        }
        Ok(())
    },
    ..Op::QUIET
};

/// An op without parameters that all ranks enter together.
struct Op {
    name: &'static str,
    example: &'static str,
    groups: bool,
    /// What it does while it is made ready.
    prepare: fn(),
    /// What it does in a step; it is told whether this rank is the last of the communicator.
    enqueue: fn(bool) -> Result<(), DeviceError>,
}

impl Op {
    /// Does nothing.
    const QUIET: Op = Op { name: "", example: "", groups: false, prepare: || (), enqueue: |_| Ok(()) };
}

impl Task for Op {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        "does as its name says, for tests"
    }

    fn params(&self) -> &'static [ParamDef] {
        &[]
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::symmetric(self.name, args))
    }
}

impl LibraryOp for Op {
    fn library(&self) -> &'static str {
        "misbehaving"
    }

    fn device(&self) -> &'static str {
        "host"
    }

    fn needs(&self) -> Needs {
        Needs { groups: self.groups, ..Needs::NONE }
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        (self.prepare)();
        let last = batch.iter().any(|call| call.args.comm_rank + 1 == call.args.comm_size);
        Ok(Box::new(Ready { last, enqueue: self.enqueue }))
    }
}

struct Ready {
    last: bool,
    enqueue: fn(bool) -> Result<(), DeviceError>,
}

impl Work for Ready {
    fn enqueue(&mut self, _: &mut dyn Stream) -> Result<(), DeviceError> {
        (self.enqueue)(self.last)
    }
}
