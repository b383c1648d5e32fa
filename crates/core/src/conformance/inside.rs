//! What an op does inside itself: other ops, its peers' memory, and waiting of its own. The ops are the suite's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::args::{Arg, Args, BoundRange};
use crate::conformance::values::{encode, equal};
use crate::conformance::{Op, Outcome, Rank, Ranks, Target};
use crate::device::{DeviceError, Memory, Stream, Work};
use crate::dtype::DType;
use crate::host_call::HostCall;
use crate::kernel::{Cover, CudaSource, KernelDef};
use crate::library_op::{Abort, LibraryOp, Needs, OpCall, OpError, Prepare};
use crate::param::{ParamDef, Type};
use crate::task::{ArgError, Description, Task};
use crate::world::{CommId, World};

/// How soon after an abort every rank must have left.
const RELEASE: Duration = Duration::from_secs(4);
/// How long work waits before it gives up by itself: longer than that.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kernels that cases launch, for tests that compile them.
pub static KERNELS: [&KernelDef; 2] = [&FETCH, &AWAIT];

/// How many elements each rank sends.
const EACH: usize = 3;

/// An op of the suite's own.
struct Own {
    name: &'static str,
    needs: Needs,
    prepare: Prepares,
}

type Prepares = fn(&OpCall<'_>, &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError>;

impl Task for Own {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        ""
    }

    fn params(&self) -> &'static [ParamDef] {
        const {
            &[
                ParamDef::read("send", Type::In(&[DType::I32]), "[n]").optional(),
                ParamDef::write("recv", Type::In(&[DType::I32]), "[m]").optional(),
            ]
        }
    }

    fn example(&self) -> &'static str {
        ""
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        Ok(Description::symmetric(self.name, args))
    }
}

impl LibraryOp for Own {
    fn library(&self) -> &'static str {
        "conformance"
    }

    fn device(&self) -> &'static str {
        "any"
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let [call] = batch else { return Err(failed("the suite's own ops stand alone")) };
        (self.prepare)(call, cx)
    }
}

fn failed(text: impl Into<String>) -> OpError {
    DeviceError::Failed(text.into()).into()
}

/// The op's two ranges.
fn ranges<'a>(call: &OpCall<'a>) -> Result<(&'a BoundRange, &'a BoundRange), OpError> {
    let range = |name| call.args.buffer(name).ok_or_else(|| failed(format!("there is no `{name}`")));
    Ok((range("send")?, range("recv")?))
}

/// `len` elements of a range from `first` on.
fn part_of(range: &BoundRange, first: u64, len: u64) -> BoundRange {
    let mut part = range.clone();
    part.ptr.0 += first * range.dtype.size();
    part.shape = [len].into();
    part
}

fn gather_then_sum(
    call: &OpCall<'_>,
    cx: &mut Prepare<'_>,
    send: &BoundRange,
    recv: &BoundRange,
) -> Result<Box<dyn Work>, OpError> {
    let (send, recv) = (Arg::Buffer(send.clone()), Arg::Buffer(recv.clone()));
    // SAFETY: the ranges are those of the op.
    let gather = unsafe { cx.op("all_gather", call.comm, &[("send", send), ("recv", recv.clone())]) }?;
    // SAFETY: as above.
    let sum = unsafe { cx.op("all_reduce", call.comm, &[("buffer", recv), ("reduce", Arg::Word(0))]) }?;
    Ok(Box::new(vec![gather, sum]))
}

const USES: Needs = Needs { uses: &["all_gather", "all_reduce"], ..Needs::NONE };

/// What all ranks send, in rank order, times the number of ranks.
static COMPOSED: Own = Own {
    name: "composed",
    needs: USES,
    prepare: |call, cx| {
        let (send, recv) = ranges(call)?;
        gather_then_sum(call, cx, send, recv)
    },
};

/// The same, after calls that are wrong.
static CARELESS: Own = Own { name: "careless", needs: USES, prepare: careless };

fn careless(call: &OpCall<'_>, cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
    let (send, recv) = ranges(call)?;
    let buffer = |range: &BoundRange| Arg::Buffer(range.clone());
    let len = recv.len();
    let (long, half) = (part_of(send, 0, len), part_of(recv, 0, len / 2));
    let overlapping = [part_of(recv, 0, len - 1), part_of(recv, 1, len - 1)];
    let (sum, word) = (Arg::Word(0), Arg::Word(9));
    let elsewhere = CommId(call.comm.0 + 1);
    type Given<'a> = [(&'a str, Arg<BoundRange>)];
    let wrong: [(&str, CommId, &Given<'_>, &str); 9] = [
        (
            "broadcast",
            call.comm,
            &[("buffer", buffer(recv)), ("root", Arg::Rank(0))],
            "does not name it in `Needs::uses`",
        ),
        (
            "all_reduce",
            elsewhere,
            &[("buffer", buffer(recv)), ("reduce", sum.clone())],
            "does not name it in `Needs::uses`",
        ),
        ("all_gather", call.comm, &[("send", buffer(send))], "needs the argument `recv`"),
        (
            "all_gather",
            call.comm,
            &[("from", buffer(send)), ("recv", buffer(recv))],
            "has no argument `from`",
        ),
        ("all_gather", call.comm, &[("send", buffer(&long)), ("recv", buffer(&half))], "must be as many"),
        ("all_reduce", call.comm, &[("buffer", buffer(recv))], "needs the argument `reduce`"),
        ("all_reduce", call.comm, &[("buffer", buffer(recv)), ("reduce", word)], "is a word beyond"),
        ("all_reduce", call.comm, &[("buffer", Arg::Size(4)), ("reduce", sum.clone())], "takes a buffer"),
        (
            "all_reduce",
            call.comm,
            &[("send", buffer(&overlapping[0])), ("recv", buffer(&overlapping[1])), ("reduce", sum.clone())],
            "overlap",
        ),
    ];
    for (name, comm, args, says) in wrong {
        // SAFETY: it is refused before anything touches the ranges.
        match unsafe { cx.op(name, comm, args) } {
            Err(error) if error.to_string().contains(says) => {}
            Err(error) => return Err(failed(format!("`{says}` is not said by: {error}"))),
            Ok(_) => return Err(failed(format!("a wrong call of `{name}` was taken: {says}"))),
        }
    }
    gather_then_sum(call, cx, send, recv)
}

/// A world, and its even and odd ranks apart.
fn worlds(size: u32) -> Result<(World, CommId), String> {
    let mut world = World::new(size.into()).map_err(|error| error.to_string())?;
    let halves = world.split("halves", |rank| (i64::from(rank % 2), -i64::from(rank)));
    Ok((world, halves.map_err(|error| error.to_string())?))
}

/// Runs an op on the world and on a split one; what each rank of a communicator sends, and what rank `me` of it must get.
fn run(
    target: &Target<'_>,
    least: u32,
    op: &'static Own,
    want: impl Fn(&[i128], usize) -> Vec<i128> + Sync,
) -> Outcome {
    for size in target.worlds(least) {
        let (world, halves) = worlds(size)?;
        Ranks::connect(target, world)?.run(|rank| {
            for comm in [CommId::WORLD, halves] {
                let world = rank.world.clone();
                let part = world.part(comm, rank.rank).ok_or("the rank is in no part")?;
                let sent: Vec<i128> =
                    part.members.iter().flat_map(|&r| [r.into(), 7 - i128::from(r), 5]).collect();
                let mine = sent.chunks(EACH).nth(part.rank as usize).unwrap_or_default().to_vec();
                let want = encode(DType::I32, want(&sent, part.rank as usize));
                let send = rank.upload(&encode(DType::I32, mine))?;
                let mut recv = rank.upload(&vec![0; want.len()])?;
                let (from, to) = (send.whole(DType::I32), recv.whole(DType::I32));
                let call = Op::of(op).on(comm).buffer("send", from).buffer("recv", to);
                let mut work = rank.prepare(&[call])?;
                for step in 0..2 {
                    rank.run(&mut *work).map_err(|error| error.to_string())?;
                    let what = format!("world {size}, `{}`, step {step}", world.name(comm));
                    equal(&what, DType::I32, &rank.read(&mut recv)?, &want, false)?;
                }
                // Others may still read this rank's buffers.
                rank.barrier()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn gathered_and_summed(sent: &[i128], _: usize) -> Vec<i128> {
    sent.iter().map(|value| value * (sent.len() / EACH) as i128).collect()
}

pub(super) fn composed(target: &Target<'_>) -> Outcome {
    run(target, 1, &COMPOSED, gathered_and_summed)
}

pub(super) fn wrong_calls(target: &Target<'_>) -> Outcome {
    run(target, 2, &CARELESS, gathered_and_summed)
}

/// `dst = src`, of which one is a peer's.
static FETCH: KernelDef = KernelDef {
    name: "fetch",
    params: &[
        ParamDef::read("src", Type::Is(DType::I32), "[n]"),
        ParamDef::write("dst", Type::Is(DType::I32), "[n]"),
    ],
    covers: &[Cover::Len("dst")],
    host: Some(&fetch),
    cuda: Some(CudaSource::new(
        "__device__ void fetch(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::Launch &launch) {
             u64 i = squall::x();
             if (i < squall::least(dst.len, launch.threads[0])) dst[i] = src[i];
         }",
        "fetch",
    )),
    ..KernelDef::EMPTY
};

fn fetch(call: &HostCall<'_>) -> Result<(), String> {
    for (to, from) in call.cells::<i32>("dst")?.iter().zip(call.cells::<i32>("src")?).take(call.launched()[0])
    {
        to.set(from.get());
    }
    Ok(())
}

fn launch(
    cx: &mut Prepare<'_>,
    kernel: &'static KernelDef,
    args: Vec<Arg<BoundRange>>,
    threads: u64,
) -> Result<Box<dyn Work>, OpError> {
    // SAFETY: the ranges are an op's or its peers', whose ranks wait for all before they free them, or are kept by the work.
    Ok(unsafe { cx.kernel(kernel, args, threads, 32) }?)
}

/// What the next rank sends, fetched from its memory.
static NEIGHBOUR: Own = Own {
    name: "neighbour",
    needs: Needs { single_process: true, ..Needs::NONE },
    prepare: |call, cx| {
        let (send, recv) = ranges(call)?;
        let peers = cx.peer_pointers(call.comm, send.ptr)?;
        let (me, size) = (call.args.comm_rank as usize, call.args.comm_size as usize);
        if peers.len() != size || peers.get(me) != Some(&send.ptr) {
            return Err(failed(format!(
                "{peers:?} are not the addresses of {size} ranks, this one's {:?}",
                send.ptr
            )));
        }
        let next = peers.get((me + 1) % size).copied().unwrap_or(send.ptr);
        let theirs = BoundRange { ptr: next, ..send.clone() };
        launch(cx, &FETCH, vec![Arg::Buffer(theirs), Arg::Buffer(recv.clone())], recv.len())
    },
};

/// Asks for its peers' memory without having said so.
static UNANNOUNCED: Own = Own {
    name: "unannounced",
    needs: Needs::NONE,
    prepare: |call, cx| {
        let (send, _) = ranges(call)?;
        match cx.peer_pointers(call.comm, send.ptr) {
            Err(DeviceError::Failed(text)) if text.contains("does not say that it needs one process") => {
                Ok(Box::new(Vec::new()))
            }
            other => Err(failed(format!("not refused: {other:?}"))),
        }
    },
};

pub(super) fn peers(target: &Target<'_>) -> Outcome {
    run(target, 2, &UNANNOUNCED, |_, _| vec![0; EACH])?;
    run(target, 2, &NEIGHBOUR, |sent, me| {
        let size = sent.len() / EACH;
        sent.chunks(EACH).nth((me + 1) % size).unwrap_or_default().to_vec()
    })
}

/// Waits until a word is set.
static AWAIT: KernelDef = KernelDef {
    name: "await",
    params: &[ParamDef::read("word", Type::Is(DType::U32), "[1]")],
    host: Some(&await_word),
    cuda: Some(
        CudaSource::new(
            "__device__ void await_word(squall::Buffer<word_t> word, const squall::Launch &launch) {
                 if (squall::x() != 0) return;
                 volatile u32 *at = (volatile u32 *)word.data;
                 i64 begin = clock64();
                 while (*at == 0 && clock64() - begin < 20000000000) {}
                 if (*at == 0) launch.fail(0, 0);
             }",
            "await_word",
        )
        .failing(&["nobody set the word"]),
    ),
    ..KernelDef::EMPTY
};

/// Breaks the rule that a kernel does not block, as an op that waits in its own way does.
fn await_word(call: &HostCall<'_>) -> Result<(), String> {
    let range = call.args().buffer("word").ok_or("there is no word")?;
    // SAFETY: the word is kept by the work, and everyone touches it through an atomic.
    let word = unsafe { AtomicU32::from_ptr(range.ptr.0 as usize as *mut u32) };
    let begin = Instant::now();
    while word.load(Ordering::Acquire) == 0 {
        if begin.elapsed() > PATIENCE {
            return Err("nobody set the word".to_string());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A word that host and device see, set by an abort.
struct Word {
    _memory: Mutex<Box<dyn Memory>>,
    at: usize,
}

impl Word {
    fn get(&self) -> &AtomicU32 {
        // SAFETY: four bytes of staging memory, aligned to 256 bytes, that live as long as this.
        unsafe { AtomicU32::from_ptr(self.at as *mut u32) }
    }
}

impl Abort for Word {
    fn abort(&self) {
        self.get().store(1, Ordering::Release);
    }

    fn is_aborted(&self) -> bool {
        self.get().load(Ordering::Acquire) != 0
    }
}

/// Work with what it needs.
struct Keeps(Box<dyn Work>, #[expect(dead_code, reason = "held")] Arc<Word>);

impl Work for Keeps {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.0.enqueue(stream)
    }

    fn failure(&mut self) -> Option<String> {
        self.0.failure()
    }
}

/// Waits for an abort, and for nothing else.
static PATIENT: Own = Own {
    name: "patient",
    needs: Needs::NONE,
    prepare: |_, cx| {
        let mut memory = cx.device.alloc_staging(4)?;
        let (ptr, host) = (memory.ptr(), memory.host().map(|host| host.as_mut_ptr().expose_provenance()));
        let at = host.ok_or_else(|| failed("the host does not see staging memory"))?;
        let word = Arc::new(Word { _memory: Mutex::new(memory), at });
        cx.on_abort(word.clone());
        let range = BoundRange { ptr, dtype: DType::U32, shape: [1].into() };
        Ok(Box::new(Keeps(launch(cx, &AWAIT, vec![Arg::Buffer(range)], 1)?, word)))
    },
};

fn leaves(rank: &mut Rank<'_>, work: &mut dyn Work, since: Instant) -> Result<(), String> {
    match rank.run(work) {
        Err(DeviceError::Aborted) => {}
        other => return Err(format!("the wait ended with {other:?}")),
    }
    if since.elapsed() > RELEASE {
        return Err(format!("it took {:?} to leave", since.elapsed()));
    }
    Ok(())
}

pub(super) fn own_wait(target: &Target<'_>) -> Outcome {
    let world = World::new(2).map_err(|error| error.to_string())?;
    let released = Ranks::connect(target, world)?.run(|rank| {
        let mut before = rank.prepare(&[Op::of(&PATIENT)])?;
        rank.barrier()?;
        let start = Instant::now();
        if rank.rank == 0 {
            std::thread::sleep(Duration::from_millis(50));
            rank.abort().abort();
        }
        leaves(rank, &mut *before, start)?;
        // Made ready when the abort has happened.
        let mut after = rank.prepare(&[Op::of(&PATIENT)])?;
        leaves(rank, &mut *after, Instant::now())?;
        Ok([before, after])
    });
    released.map(drop)
}
