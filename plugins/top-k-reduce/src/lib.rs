//! A plugin of squall: the op `top_k_reduce`, an `all_reduce` of the largest elements alone, as sparsified gradients need it.
//!
//! Every rank contributes the `k` elements of greatest magnitude of its `grad`. The sum of all contributions lands in `grad` on every
//! rank, and every other element becomes 0. With `residual`, what a rank does not contribute is kept there and added to the next
//! step's gradient before its largest are selected.
//!
//! The key decision: the op is made of works that squall makes ready, kernels with a host form and a CUDA source (`select.rs`) around an
//! `all_gather` that it [uses](squall_plugin::core::Needs::uses). So it is written once for hosts and GPUs, and runs over whatever library
//! gathers there. The cost: every rank is sent all ranks' entries, 8 · k · world bytes, which pays while k · world is well below n.
//!
//! Everything is exact: NaNs count as the greatest magnitudes, of equal ones the lower index comes first, and contributions are added
//! in the order of the ranks. So all ranks get the same bits, and a GPU those of a host.

mod select;

use std::sync::Arc;

use squall_plugin::core::{
    Arg, ArgError, Args, BoundRange, BufferRange, DType, Description, Device, DeviceError, DevicePtr,
    KernelDef, LibraryOp, Memory, Needs, OpCall, OpError, ParamDef, Prepare, Presence, Stream, Task, Type,
    Work, count, register_op,
};

use select::{ACCUMULATE, BLOCK, CHUNKS, CLEAR, LOCATE, MOST, NARROW, PASSES, SCATTER, STATE_WORDS, TAKE};

const OP: &str = "top_k_reduce";

const PARAMS: &[ParamDef] = &[
    ParamDef::read_write("grad", Type::Is(DType::F32), "[n]: what is reduced"),
    ParamDef::size("k", Presence::Required, "how many elements each rank contributes, 1 to n"),
    ParamDef::read_write(
        "residual",
        Type::Is(DType::F32),
        "[n]: what was not contributed, added in the next step",
    )
    .optional(),
];

/// `top_k_reduce` on host devices.
pub static ON_HOST: TopK = TopK { device: "host" };
/// `top_k_reduce` on CUDA devices.
pub static ON_CUDA: TopK = TopK { device: "cuda" };

register_op!(&ON_HOST, &ON_CUDA);
squall_plugin::export!();

/// The op on one kind of device.
#[derive(Debug)]
pub struct TopK {
    device: &'static str,
}

impl Task for TopK {
    fn name(&self) -> &'static str {
        OP
    }

    fn summary(&self) -> &'static str {
        "every rank gets the sum of the k elements of greatest magnitude of each rank, and 0 elsewhere"
    }

    fn params(&self) -> &'static [ParamDef] {
        PARAMS
    }

    fn example(&self) -> &'static str {
        r#"manifest = 1

[pipeline]
name = "top-k-reduce"

[world]
devices = "host:0..2"

[buffer.grad]
dtype = "f32"
shape = [8]
init = { fill = "(i - 3) * (rank + 1)" }
save = "grad-{rank}.npy"

[buffer.rest]
dtype = "f32"
shape = [8]
init = { fill = 0 }
save = "rest-{rank}.npy"

[[task]]
op = "top_k_reduce"
args = { grad = "grad", k = 2, residual = "rest" }
"#
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let n = args.buffer("grad").map_or(0, BufferRange::len);
        let k = args.size("k").unwrap_or(0);
        if n > MOST {
            return Err(ArgError::new("grad", format!("has {n} elements; {MOST} are the most")));
        }
        if k == 0 || k > n {
            let message = format!("is {k}, but `grad` has {}", count(n, "element"));
            return Err(ArgError::new("k", message).with_help(match n {
                0 => "leave the task out with `when` where there are no elements".to_string(),
                _ => format!("let it be at least 1 and at most {n}"),
            }));
        }
        if let Some(residual) = args.buffer("residual")
            && residual.len() != n
        {
            let found = count(residual.len(), "element");
            return Err(ArgError::new(
                "residual",
                format!("has {found}, but `grad` has {n}; they must be equal"),
            ));
        }
        Ok(Description::symmetric(OP, args))
    }
}

impl LibraryOp for TopK {
    fn library(&self) -> &'static str {
        "top-k"
    }

    fn device(&self) -> &'static str {
        self.device
    }

    fn needs(&self) -> Needs {
        Needs { dtypes: &[DType::F32], groups: false, uses: &["all_gather"], ..Needs::NONE }
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let missing = |param| OpError::Arg { member: 0, error: ArgError::new(param, "is missing") };
        let [call] = batch else {
            return Err(DeviceError::Unsupported(format!("`{OP}` cannot stand in a group")).into());
        };
        let grad = call.args.buffer("grad").ok_or_else(|| missing("grad"))?;
        let k = call.args.size("k").ok_or_else(|| missing("k"))?;
        let residual = call.args.buffer("residual");
        let (rank, size) = (u64::from(call.args.comm_rank), u64::from(call.args.comm_size));

        let mut chain = Chain::default();
        let state = chain.alloc(cx.device, DType::U32, STATE_WORDS)?;
        let words = k.checked_mul(size).filter(|words| words.checked_mul(8).is_some());
        let beyond = || DeviceError::Unsupported(format!("{k} entries of {size} ranks fit no memory"));
        let gathered = chain.alloc(cx.device, DType::U64, words.ok_or_else(beyond)?)?;
        let entries_of = |rank: u64| BoundRange {
            ptr: DevicePtr(gathered.ptr.0 + rank * k * 8),
            shape: Arc::new([k]),
            ..gathered.clone()
        };
        let wide = CHUNKS * BLOCK;
        let [data, n] = [residual.unwrap_or(grad), grad].map(|range| Arg::Buffer(range.clone()));
        let (grad, state, own) = (n, Arg::Buffer(state), Arg::Buffer(entries_of(rank)));

        // SAFETY: the caller vouches for the ranges of the call; the others are the chain's own, which frees them after its works.
        unsafe {
            if residual.is_some() {
                chain.kernel(cx, &ACCUMULATE, wide, vec![data.clone(), grad.clone()])?;
            }
            for (shift, width) in PASSES {
                let [k, shift, width] = [k, shift, width].map(Arg::Size);
                chain.kernel(cx, &NARROW, wide, vec![data.clone(), state.clone(), k, shift, width])?;
            }
            if LOCATE.runs_on(self.device) {
                chain.kernel(cx, &LOCATE, wide, vec![data.clone(), state.clone()])?;
            }
            chain.kernel(cx, &TAKE, wide, vec![data, state, own.clone()])?;
            let gather = [("send", own), ("recv", Arg::Buffer(gathered.clone()))];
            chain.works.push(cx.op("all_gather", call.comm, &gather)?);
            chain.kernel(cx, &CLEAR, wide, vec![grad.clone()])?;
            for rank in 0..size {
                chain.kernel(cx, &SCATTER, k.min(wide), vec![Arg::Buffer(entries_of(rank)), grad.clone()])?;
            }
        }
        Ok(Box::new(chain))
    }
}

/// Works that are enqueued one after another, with the memory that they share.
#[derive(Default)]
struct Chain {
    works: Vec<Box<dyn Work>>,
    /// Freed after the works, as the fields are dropped in this order.
    memory: Vec<Box<dyn Memory>>,
}

impl Chain {
    /// So many elements of memory of its own.
    fn alloc(&mut self, device: &dyn Device, dtype: DType, elements: u64) -> Result<BoundRange, DeviceError> {
        let memory = device.alloc(elements * dtype.size())?;
        let range = BoundRange { ptr: memory.ptr(), dtype, shape: Arc::new([elements]) };
        self.memory.push(memory);
        Ok(range)
    }

    /// Adds a kernel on so many threads.
    ///
    /// # Safety
    /// As of [`Prepare::kernel`].
    unsafe fn kernel(
        &mut self,
        cx: &mut Prepare<'_>,
        kernel: &'static KernelDef,
        threads: u64,
        args: Vec<Arg<BoundRange>>,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's.
        self.works.push(unsafe { cx.kernel(kernel, args, threads, BLOCK) }?);
        Ok(())
    }
}

impl Work for Chain {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.works.enqueue(stream)
    }

    fn failure(&mut self) -> Option<String> {
        self.works.failure()
    }
}
