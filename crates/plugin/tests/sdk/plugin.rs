//! A plugin: a kernel, an op that does all that an op can, and one of squall's own names.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use squall_plugin::core::ops::CONTRACTS;
use squall_plugin::core::task::{Matched, Meeting, Message, Share, Signature};
use squall_plugin::core::{
    Abort, Access, Arg, ArgError, Args, BoundRange, Capture, CommId, Cover, CudaSource, DType, Description,
    DeviceError, DevicePtr, HostCall, KernelDef, LibraryOp, Memory, Mode, Needs, OpCall, OpError, ParamDef,
    Parts, Prepare, Progress, RawHandle, ReduceOp, Stream, Task, Type, Work, register_kernel, register_op,
};

pub(crate) static DOUBLE: KernelDef = KernelDef {
    name: "double",
    summary: "data[i] = 2 * data[i]",
    params: &[ParamDef::read_write("data", Type::Is(DType::F32), "[n]"), ParamDef::flag("fails", "")],
    covers: &[Cover::Len("data")],
    in_place: &[("data", "fails")],
    check: &|args| match args.buffer("data").map_or(0, |data| data.len()) {
        13 => Err(ArgError::new("data", "has 13 elements").with_help("take 12")),
        14 => panic!("fourteen"),
        _ => Ok(()),
    },
    host: Some(&double),
    cuda: Some(CudaSource::new("source", "entry").looping().failing(&["it is {}"]).scratch(64)),
    ..KernelDef::EMPTY
};

fn double(call: &HostCall<'_>) -> Result<(), String> {
    if call.args().flag("fails") {
        return Err("it was told to".into());
    }
    call.cells::<f32>("data")?.iter().take(call.launched()[0]).for_each(|x| x.set(x.get() * 2.0));
    Ok(())
}

register_kernel!(&DOUBLE);
register_op!(&MIX, &OWN);

/// What [`Mix`] is told to do; the words of its parameter `mode`.
pub(crate) const MODES: &[&str] = &[
    "fine", "argument", "outside", "unknown", "panic", "full", "thread", "wide", "aborts", "used", "peers",
    "keeps",
];

pub(crate) struct Mix;

pub(crate) static MIX: Mix = Mix;

impl Task for Mix {
    fn name(&self) -> &'static str {
        "mix"
    }
    fn summary(&self) -> &'static str {
        "Mixes."
    }
    fn params(&self) -> &'static [ParamDef] {
        const {
            &[
                ParamDef::read_write("data", Type::Is(DType::F32), "[n]"),
                ParamDef::write("out", Type::Same("data"), "[n]").optional(),
                ParamDef::word("mode", MODES, ""),
            ]
        }
    }
    fn example(&self) -> &'static str {
        "an example"
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let data = args.buffer("data").unwrap();
        let access = |param, range| Access { param, buffer: data.buffer, range, mode: Mode::ReadWrite };
        let mut number = data.len().into();
        let range = match mode(args) {
            "argument" => return Err(ArgError::new("out", "is odd").with_help("make it even")),
            "panic" => panic!("no more\nof this"),
            "outside" => data.offset..data.offset + data.len() + 1,
            "wide" => {
                number = i128::MAX;
                data.offset..data.offset
            }
            _ => data.offset + 1..data.offset + 3,
        };
        let param = if mode(args) == "unknown" { "none" } else { "data" };
        let numbers = Matched::Numbers([i64::MIN, 2].into());
        let fields = vec![
            ("count", Matched::Number(number)),
            ("real", Matched::Float(0.5f64.to_bits())),
            ("dtype", Matched::DType(DType::F32)),
            ("reduce", Matched::Word("sum")),
            ("counts", numbers),
        ];
        let share = Share { part: ("out", 3), whole: Some(("data", 12)), place: Some(6) };
        let none = Share { part: ("data", 1), whole: None, place: None };
        let message = Message { peer: 1, count: 5, dtype: DType::U8 };
        let collective = |op, fields, share| Meeting::Collective(Box::new(Signature { op, fields, share }));
        Ok(Description {
            accesses: vec![access(param, range)],
            meetings: vec![
                collective("mix", fields, Some(share)),
                Meeting::Send(message),
                Meeting::Recv(message),
                collective("other", Vec::new(), Some(none)),
            ],
        })
    }
}

fn mode<B>(args: &Args<'_, B>) -> &'static str {
    args.word("mode").map_or("fine", |mode| MODES[mode])
}

impl LibraryOp for Mix {
    fn library(&self) -> &'static str {
        "mixing"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        let (dtypes, reductions): (&[_], &[_]) = (&[DType::F32], &[ReduceOp::Sum, ReduceOp::Avg]);
        let (single_process, uses): (_, &[_]) = (true, &["all_reduce"]);
        Needs {
            alignment: 16,
            multiple: 2,
            dtypes,
            reductions,
            captures: false,
            single_process,
            uses,
            ..Needs::NONE
        }
    }
    fn served_as(&self, args: &Args<'_>, parts: Option<&Parts>) -> Option<String> {
        let parts = parts.map(|parts| parts.iter().collect::<Vec<_>>());
        (mode(args) != "panic").then(|| format!("größer {parts:?}")).or_else(|| panic!("never"))
    }
    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let call = &batch[0];
        let data = call.args.buffer("data").unwrap();
        let last = batch.len() - 1;
        match mode(&batch[last].args) {
            "argument" => {
                let error = ArgError::new("out", "is odd").with_help("make it even");
                return Err(OpError::Arg { member: last, error });
            }
            "panic" => panic!("at {}", call.task),
            "full" => drop(cx.device.alloc(u64::MAX)?),
            "thread" => {
                let device = cx.device;
                let elsewhere = || device.alloc(8).map(|_| ());
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())?;
            }
            "peers" => {
                let peers = cx.peer_pointers(call.comm, data.ptr)?;
                return Err(DeviceError::Failed(format!("{peers:?}")).into());
            }
            // SAFETY: the batch's caller vouches for the range.
            "used" => drop(unsafe { cx.op("all_reduce", CommId(9), &[]) }?),
            "aborts" => {
                let handle = Arc::new(Handle::default());
                cx.on_abort(handle.clone());
                let told = handle.0.load(Ordering::Relaxed);
                return Err(DeviceError::Failed(format!("{} {told}", cx.aborted.is_aborted())).into());
            }
            _ => {}
        }
        let scratch = cx.device.alloc(data.bytes())?;
        let mut staging = cx.device.alloc_staging(8)?;
        staging.host().unwrap().copy_from_slice(&7u64.to_ne_bytes());
        let args = vec![Arg::Buffer(data.clone()), Arg::Flag(false)];
        // SAFETY: the batch's caller vouches for the range.
        let kernel = unsafe { cx.kernel(&DOUBLE, args, data.len(), 4) }?;
        if mode(&batch[last].args) == "keeps" {
            *KEPT.lock().unwrap() = Some((staging, kernel));
            return Ok(Box::new(Vec::<Box<dyn Work>>::new()));
        }
        let args = [("buffer", Arg::Buffer(data.clone())), ("reduce", Arg::Word(0))];
        // SAFETY: as above.
        let inner = unsafe { cx.op("all_reduce", call.comm, &args) }?;
        let mine = [cx.rank as u8, 42];
        let said = cx.exchange.all_gather(call.comm, cx.rank, &mine, cx.deadline)?;
        let handle = Arc::new(Handle::default());
        cx.on_abort(handle.clone());
        let seen = Seen {
            said,
            parts: cx.world.parts(CommId(1)).iter().map(|part| part.to_vec()).collect(),
            name: cx.world.name(CommId(1)).to_string(),
            device: (cx.device.id().to_string(), cx.device.kind(), cx.device.captures()),
            stream: cx.device.stream().err(),
            reach: cx.device.reach("host:1").err(),
            stranger: cx.exchange.all_gather(call.comm, cx.rank + 1, &mine, cx.deadline).err(),
            nowhere: cx.exchange.all_gather(CommId(9), cx.rank, &mine, cx.deadline).err(),
            unequal: call.parts.cloned(),
            handle,
            aborted: cx.aborted.clone(),
        };
        SEEN.lock().unwrap().push((call.task.to_string(), seen));
        let data = data.clone();
        Ok(Box::new(MixWork {
            task: call.task.into(),
            kernel,
            inner,
            scratch: scratch.ptr(),
            data,
            steps: 0,
        }))
    }
}

/// Memory and a work that [`Mix`] keeps elsewhere than in its own work.
pub(crate) static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

type Kept = (Box<dyn Memory>, Box<dyn Work>);

/// What [`Mix`] has found while it was made ready.
pub(crate) struct Seen {
    pub(crate) said: Vec<Vec<u8>>,
    pub(crate) parts: Vec<Vec<u32>>,
    pub(crate) name: String,
    pub(crate) device: (String, &'static str, bool),
    pub(crate) stream: Option<DeviceError>,
    pub(crate) reach: Option<DeviceError>,
    pub(crate) stranger: Option<DeviceError>,
    pub(crate) nowhere: Option<DeviceError>,
    pub(crate) unequal: Option<Parts>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) aborted: Arc<dyn Abort>,
}

/// By task.
static SEEN: Mutex<Vec<(String, Seen)>> = Mutex::new(Vec::new());

pub(crate) fn seen(task: &str) -> Seen {
    let mut seen = SEEN.lock().unwrap();
    let index = seen.iter().position(|(of, _)| of == task).unwrap();
    seen.remove(index).1
}

/// How often it was told of an abort.
#[derive(Default)]
pub(crate) struct Handle(pub(crate) AtomicU32);

impl Abort for Handle {
    fn abort(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(self.0.load(Ordering::Relaxed) < 3, "it panics when it is told thrice");
    }
    fn is_aborted(&self) -> bool {
        false
    }
}

struct MixWork {
    task: String,
    kernel: Box<dyn Work>,
    inner: Box<dyn Work>,
    scratch: DevicePtr,
    data: BoundRange,
    steps: u32,
}

impl Work for MixWork {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.steps += 1;
        match self.task.as_str() {
            "panics" => panic!("in step {}", self.steps),
            "asks too much" => {
                let refused = [
                    stream.mark(1).is_err(),
                    stream.complete(1).is_err(),
                    stream.checkpoint().is_err(),
                    stream.wait_for(1, None).is_err(),
                    stream.capture().is_none(),
                ];
                assert_eq!(refused, [true; 5]);
                return stream.wait(None);
            }
            "uses what was kept" => {
                let mut kept = KEPT.lock().unwrap();
                let (memory, work) = kept.as_mut().unwrap();
                assert_eq!((memory.bytes(), memory.host()), (8, None));
                return work.enqueue(stream);
            }
            "uses another stream" => return self.kernel.enqueue(&mut Elsewhere),
            "tells the stream" => return Err(DeviceError::Failed(format!("{:?}", stream.raw()))),
            _ => {}
        }
        self.kernel.enqueue(stream)?;
        self.inner.enqueue(stream)?;
        // SAFETY: both were given for the work, with as many bytes.
        unsafe { stream.copy(self.scratch, self.data.ptr, self.data.bytes()) }
    }

    fn failure(&mut self) -> Option<String> {
        let told = std::mem::take(&mut self.steps);
        assert!(told != 3, "three");
        (told > 1).then(|| format!("{told} steps"))
    }
}

impl Drop for MixWork {
    fn drop(&mut self) {
        assert!(self.task != "panics at the end", "at the end");
    }
}

/// An op of squall's own name.
pub(crate) struct Own;

pub(crate) static OWN: Own = Own;

impl Own {
    fn contract(&self) -> &'static dyn Task {
        *CONTRACTS.iter().find(|contract| contract.name() == "all_reduce").unwrap()
    }
}

impl Task for Own {
    fn name(&self) -> &'static str {
        "all_reduce"
    }
    fn summary(&self) -> &'static str {
        self.contract().summary()
    }
    fn params(&self) -> &'static [ParamDef] {
        self.contract().params()
    }
    fn example(&self) -> &'static str {
        self.contract().example()
    }
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        self.contract().describe(args)
    }
}

impl LibraryOp for Own {
    fn library(&self) -> &'static str {
        "mixing"
    }
    fn device(&self) -> &'static str {
        "host"
    }
    fn needs(&self) -> Needs {
        Needs::NONE
    }
    unsafe fn prepare(&self, _: &[OpCall<'_>], _: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        Err(DeviceError::Unsupported("it is for listings".into()).into())
    }
}

/// A stream that is not the host's.
struct Elsewhere;

impl Stream for Elsewhere {
    fn raw(&self) -> RawHandle {
        RawHandle { api: "none", handle: 0 }
    }
    unsafe fn copy(&mut self, _: DevicePtr, _: DevicePtr, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn mark(&mut self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn complete(&mut self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(AtomicU64::new(0))
    }
    fn wait(&mut self, _: Option<Instant>) -> Result<(), DeviceError> {
        Ok(())
    }
    fn capture(&mut self) -> Option<&mut dyn Capture> {
        None
    }
}
