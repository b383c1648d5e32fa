//! The C ABI between squall and a plugin, as Rust sees it. `include/squall_plugin.h` says the same in C, with the rules that both
//! sides keep; a test compares the two field by field.
//!
//! # Rules
//! - **Versions.** Whoever has the same [`ABI_MAJOR`] understands the other, whichever minor is newer. The number is the ABI's own, not the crate's.
//! - **Tables** begin with a [`Header`]. A reader touches only bytes below the writer's `struct_size`; what lies beyond is absent. A
//!   minor version appends fields to tables and changes nothing else. What has no header ([`Arg`], [`Grid`], [`Error`], …) is frozen.
//! - **Features** that are no field of a table are asked for by name: [`Host::feature`], [`Plugin::feature`].
//! - **Integers stand for enums**; a reader refuses those that it does not know. Text is UTF-8 and ends with a zero byte.
//! - **No unwinding** across a function of these tables, in either direction.
//! - **Status.** A function that can fail returns 0, or a [`status`] and words in the [`Error`] that it was given.
//!
//! # Who calls what, and who owns it
//! What a plugin's tables point to stays where it is and as it is for the life of the process: libraries are never closed. What
//! squall points to in a call is squall's, and ends with the call unless a field says otherwise. Each function says its thread:
//! *any* (several at once), *rank* (the thread of one rank, in which the device is current), *abort* (whichever thread aborts).

use core::ffi::{c_char, c_void};

/// The first field of every table: `SQLL`, read as a little-endian number.
pub const MAGIC: u32 = 0x4C4C_5153;
/// The version that both sides must share.
pub const ABI_MAJOR: u32 = 1;
/// Counts the fields that were appended.
pub const ABI_MINOR: u32 = 0;
/// The one symbol that a plugin exports, an [`Entry`].
pub const ENTRY: &str = "squall_plugin";
/// The most parameters that a kernel or an op may have.
pub const MAX_PARAMS: u32 = 64;
/// In [`Error::param`]: no parameter is at fault.
pub const NO_PARAM: u32 = u32::MAX;
/// In [`Description::share`]: the part does not lie within the whole.
pub const NO_PLACE: u64 = u64::MAX;

/// The exported function. Called once, on any thread; returns the plugin's table, or null where it cannot serve this host.
pub type Entry = unsafe extern "C" fn(host: *const Host) -> *const Plugin;

/// What every table begins with. Never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`ABI_MAJOR`] of the writer.
    pub abi_major: u32,
    /// [`ABI_MINOR`] of the writer.
    pub abi_minor: u32,
    /// Bytes of the table, as its writer knows it.
    pub struct_size: u32,
}

impl Header {
    /// The header of a table of type `T`, as this version writes it.
    pub const fn of<T>() -> Header {
        Header {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            struct_size: size_of::<T>() as u32,
        }
    }
}

/// What functions return.
pub mod status {
    /// Done.
    pub const OK: i32 = 0;
    /// It failed.
    pub const FAILED: i32 = 1;
    /// Released by an abort: not to blame.
    pub const ABORTED: i32 = 2;
    /// The deadline passed.
    pub const DEADLINE: i32 = 3;
    /// The device's memory does not suffice: [`Error::bytes`](super::Error::bytes) were asked for.
    pub const OUT_OF_MEMORY: i32 = 4;
    /// The device can be used no more by this process.
    pub const LOST: i32 = 5;
    /// It cannot be done at all.
    pub const UNSUPPORTED: i32 = 6;
    /// An argument is wrong: [`Error::param`](super::Error::param) says which.
    pub const ARGUMENT: i32 = 7;
}

/// Types of elements: [`Arg::dtype`]; in a set of them, bit `1 << dtype`.
pub mod dtype {
    /// IEEE 754 half precision.
    pub const F16: u32 = 0;
    /// bfloat16.
    pub const BF16: u32 = 1;
    /// IEEE 754 single precision.
    pub const F32: u32 = 2;
    /// IEEE 754 double precision.
    pub const F64: u32 = 3;
    /// 8-bit signed integer.
    pub const I8: u32 = 4;
    /// 8-bit unsigned integer.
    pub const U8: u32 = 5;
    /// 32-bit signed integer.
    pub const I32: u32 = 6;
    /// 32-bit unsigned integer.
    pub const U32: u32 = 7;
    /// 64-bit signed integer.
    pub const I64: u32 = 8;
    /// 64-bit unsigned integer.
    pub const U64: u32 = 9;
}

/// Reductions: the index of the word that an argument named `reduce` holds; in a set of them, bit `1 << reduction`.
pub mod reduction {
    /// The sum over the ranks.
    pub const SUM: u32 = 0;
    /// The product.
    pub const PROD: u32 = 1;
    /// The greatest.
    pub const MAX: u32 = 2;
    /// The least.
    pub const MIN: u32 = 3;
    /// The sum divided by the number of ranks.
    pub const AVG: u32 = 4;
}

/// What a parameter takes: [`Param::kind`].
pub mod param_kind {
    /// A range of a buffer.
    pub const BUFFER: u32 = 0;
    /// A number: a constant, or a buffer of one element that is read when the task runs.
    pub const SCALAR: u32 = 1;
    /// A length or count, not negative.
    pub const SIZE: u32 = 2;
    /// One of the parameter's words.
    pub const WORD: u32 = 3;
    /// True or false.
    pub const FLAG: u32 = 4;
    /// A rank of the task's communicator.
    pub const RANK: u32 = 5;
    /// A list of whole numbers.
    pub const LIST: u32 = 6;
    /// A matrix of whole numbers with a row and a column for each rank, row after row. For ops.
    pub const MATRIX: u32 = 7;
}

/// What is done with a buffer: [`Param::mode`], [`Description::access`].
pub mod mode {
    /// It is read.
    pub const READ: u32 = 0;
    /// It is written, nothing of it read.
    pub const WRITE: u32 = 1;
    /// Both.
    pub const READ_WRITE: u32 = 2;
}

/// What stands for an argument that is not given: [`Param::presence`].
pub mod presence {
    /// Nothing: it must be given.
    pub const REQUIRED: u32 = 0;
    /// Nothing: it is absent.
    pub const OPTIONAL: u32 = 1;
    /// The length of axis `dim` of the buffer `of`.
    pub const DIM: u32 = 2;
    /// The number of elements of the buffer `of`.
    pub const LEN: u32 = 3;
    /// The shape of the buffer `of`, as a list.
    pub const SHAPE_OF: u32 = 4;
    /// False, for a flag.
    pub const FALSE: u32 = 5;
}

/// What an argument is: [`Arg::kind`].
pub mod arg_kind {
    /// Not given.
    pub const ABSENT: u32 = 0;
    /// A range of a buffer; for a scalar parameter the one element that is read when the task runs.
    pub const BUFFER: u32 = 1;
    /// A whole number, for a scalar parameter.
    pub const INT: u32 = 2;
    /// Another number, for a scalar parameter.
    pub const FLOAT: u32 = 3;
    /// A length.
    pub const SIZE: u32 = 4;
    /// The index of a word.
    pub const WORD: u32 = 5;
    /// 0 or 1.
    pub const FLAG: u32 = 6;
    /// A rank of the communicator.
    pub const RANK: u32 = 7;
    /// Whole numbers.
    pub const LIST: u32 = 8;
}

/// What an axis of a kernel's grid must cover: [`Cover::kind`].
pub mod cover_kind {
    /// The elements of the buffer `param`.
    pub const LEN: u32 = 0;
    /// The size `param`.
    pub const SIZE: u32 = 1;
    /// Axis `dim` of the buffer `param`.
    pub const DIM: u32 = 2;
    /// Nothing: the kernel strides.
    pub const ANY: u32 = 3;
}

/// Bits of [`Op::flags`].
pub mod op_flag {
    /// It may stand in a group with others of its library.
    pub const GROUPS: u32 = 1;
    /// It may be captured in a graph and replayed.
    pub const CAPTURES: u32 = 2;
    /// All ranks of its communicators must be in one process.
    pub const SINGLE_PROCESS: u32 = 4;
}

/// Bits of [`Kernel::flags`].
pub mod kernel_flag {
    /// Each thread of the CUDA form loops over axis x, so that fewer blocks may be launched than the grid says.
    pub const LOOPS: u32 = 1;
}

/// Why a function failed. The caller makes it, with an empty `text`, before the call. Frozen.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Error {
    /// With [`status::ARGUMENT`]: the index of the parameter at fault, or [`NO_PARAM`].
    pub param: u32,
    /// With [`status::ARGUMENT`], from [`Op::prepare`]: the index of the call at fault.
    pub member: u32,
    /// With [`status::OUT_OF_MEMORY`]: the bytes that were asked for, or 0.
    pub bytes: u64,
    /// What went wrong, one line.
    pub text: [c_char; 768],
    /// A concrete mend, or nothing.
    pub help: [c_char; 240],
}

impl Error {
    /// What a caller makes before the call.
    pub const EMPTY: Error = Error { param: NO_PARAM, member: 0, bytes: 0, text: [0; 768], help: [0; 240] };
}

/// What squall offers to the plugin as a whole. Stays for the life of the process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The table's.
    pub header: Header,
    /// Squall's version, as `0.1.0`.
    pub version: *const c_char,
    /// A feature by name; null where this host does not have it. Thread: any.
    pub feature: Option<unsafe extern "C" fn(id: *const c_char) -> *const c_void>,
}

/// What a plugin brings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// The table's.
    pub header: Header,
    /// Its name, for listings and errors.
    pub name: *const c_char,
    /// Its version.
    pub version: *const c_char,
    /// Its ops.
    pub ops: *const *const Op,
    /// Its kernels.
    pub kernels: *const *const Kernel,
    /// How many ops.
    pub op_count: u32,
    /// How many kernels.
    pub kernel_count: u32,
    /// Called once, before all else but the entry; may be null. Fails if the plugin cannot work here. Thread: any.
    pub init: Option<unsafe extern "C" fn(host: *const Host, error: *mut Error) -> i32>,
    /// A feature by name; null where the plugin does not have it. May be null itself. Thread: any.
    pub feature: Option<unsafe extern "C" fn(id: *const c_char) -> *const c_void>,
}

/// One parameter of a kernel or an op.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The table's.
    pub header: Header,
    /// The name in `args`.
    pub name: *const c_char,
    /// A few words for listings.
    pub doc: *const c_char,
    /// Of [`param_kind`].
    pub kind: u32,
    /// Of [`mode`], for a buffer.
    pub mode: u32,
    /// For a buffer or a scalar: the dtypes that it may have, a bit each. 0 where `same` says it.
    pub dtypes: u32,
    /// Of [`presence`].
    pub presence: u32,
    /// The parameter whose dtype it has, or null.
    pub same: *const c_char,
    /// The parameter that `presence` refers to, or null.
    pub of: *const c_char,
    /// The words of [`param_kind::WORD`].
    pub words: *const *const c_char,
    /// How many words.
    pub word_count: u32,
    /// The axis of [`presence::DIM`].
    pub dim: u32,
}

/// One argument. Which fields hold something, `kind` says. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Of [`arg_kind`].
    pub kind: u32,
    /// A buffer's.
    pub dtype: u32,
    /// A size, the index of a word, a flag, a rank; the bits of a whole number as `int64_t`.
    pub number: u64,
    /// A number, whole or not.
    pub real: f64,
    /// A buffer's address on the device; 0 while tasks are described.
    pub ptr: u64,
    /// A buffer's number in the job, while tasks are described; 0 in [`Op::prepare`].
    pub buffer: u64,
    /// The first element of the range in its buffer, while tasks are described; 0 in [`Op::prepare`].
    pub offset: u64,
    /// Elements of a buffer's range, or of a list.
    pub len: u64,
    /// The lengths of a buffer's axes.
    pub shape: *const u64,
    /// A list's numbers.
    pub list: *const i64,
    /// How many axes.
    pub axes: u32,
    /// 0.
    pub reserved: u32,
}

/// The arguments of a task, in the order of its parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// The table's.
    pub header: Header,
    /// One a parameter.
    pub values: *const Arg,
    /// How many.
    pub count: u32,
    /// This rank in the task's communicator; 0 for a kernel.
    pub comm_rank: u32,
    /// Ranks in the task's communicator; 1 for a kernel.
    pub comm_size: u32,
    /// 0.
    pub reserved: u32,
}

/// An argument by the name of its parameter: [`Prepare::op`]. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedArg {
    /// The parameter.
    pub name: *const c_char,
    /// The argument.
    pub value: Arg,
}

/// A kernel's grid. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Threads that are wanted on each axis.
    pub threads: [u64; 3],
    /// Threads of a block on each axis. Whole blocks are launched.
    pub block: [u32; 3],
    /// 0.
    pub reserved: u32,
}

/// Where an op says what it touches and which ranks it needs. Its functions return nothing: what is wrong with what they are
/// told, squall says when [`Op::describe`] has returned. Thread: that of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The table's.
    pub header: Header,
    /// Squall's own.
    pub cx: *mut c_void,
    /// The op touches elements `first..first + count` of the argument of parameter `param`; `mode` as of [`mode`].
    pub access:
        Option<unsafe extern "C" fn(d: *const Description, param: u32, first: u64, count: u64, mode: u32)>,
    /// All ranks of the communicator come together, for `op` or, where that is null, for the op itself. What must be equal on all of them is
    /// told next, in the same order on all. `op` and the names of values stay where they are for good.
    pub collective: Option<unsafe extern "C" fn(d: *const Description, op: *const c_char)>,
    /// A number that must be equal on all ranks.
    pub number: Option<unsafe extern "C" fn(d: *const Description, name: *const c_char, value: i64)>,
    /// A number that must be, and need not be whole; compared by its bits.
    pub real: Option<unsafe extern "C" fn(d: *const Description, name: *const c_char, value: f64)>,
    /// A dtype that must be.
    pub dtype: Option<unsafe extern "C" fn(d: *const Description, name: *const c_char, value: u32)>,
    /// A word that must be; it stays where it is for good.
    pub word: Option<unsafe extern "C" fn(d: *const Description, name: *const c_char, value: *const c_char)>,
    /// Whole numbers that must be; copied.
    pub numbers: Option<
        unsafe extern "C" fn(d: *const Description, name: *const c_char, values: *const i64, count: u64),
    >,
    /// This rank's part of a whole that the ranks divide in rank order: `part` elements of parameter `part_param`, of `whole` elements
    /// of `whole_param` ([`NO_PARAM`] on a rank that has no whole), and where in the whole the part begins if it lies within it, else [`NO_PLACE`].
    pub share: Option<
        unsafe extern "C" fn(
            d: *const Description,
            part_param: u32,
            part: u64,
            whole_param: u32,
            whole: u64,
            place: u64,
        ),
    >,
    /// `count` elements go to rank `peer` of the communicator.
    pub send: Option<unsafe extern "C" fn(d: *const Description, peer: u32, count: u64, dtype: u32)>,
    /// `count` elements come from it.
    pub recv: Option<unsafe extern "C" fn(d: *const Description, peer: u32, count: u64, dtype: u32)>,
}

/// An op, as one library serves it on one kind of device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The table's.
    pub header: Header,
    /// The name in manifests. An op of the name of one of squall's own has its parameters and is described by squall: `params` and
    /// `describe` are null.
    pub name: *const c_char,
    /// One line for listings.
    pub summary: *const c_char,
    /// The library's name, the same for all ops that may stand in one group.
    pub library: *const c_char,
    /// The kind of device: `host` or `cuda`.
    pub device: *const c_char,
    /// A manifest that runs the op at any number of ranks, without a `[[plugin]]`; for listings and tests.
    pub example: *const c_char,
    /// The parameters.
    pub params: *const *const Param,
    /// Squall's own ops that it prepares inside itself, on the same communicator.
    pub uses: *const *const c_char,
    /// The plugin's own.
    pub data: *const c_void,
    /// How many parameters, at most [`MAX_PARAMS`].
    pub param_count: u32,
    /// How many `uses`.
    pub use_count: u32,
    /// Bits of [`op_flag`].
    pub flags: u32,
    /// Every range begins at a multiple of so many bytes, a power of two up to 256; 0 is as 1.
    pub alignment: u32,
    /// Every range has a multiple of so many elements; 0 is as 1.
    pub multiple: u32,
    /// The dtypes that buffers may have, a bit each; 0 for all.
    pub dtypes: u32,
    /// The reductions that it knows, a bit each; 0 for all.
    pub reductions: u32,
    /// 0.
    pub reserved: u32,
    /// What the op with these arguments touches and which ranks it needs, for any rank of any world, without a device. Null: it
    /// treats all ranks alike; buffers are accessed whole, and every argument must match on all ranks. Thread: any.
    pub describe: Option<
        unsafe extern "C" fn(
            op: *const Op,
            args: *const Args,
            to: *const Description,
            error: *mut Error,
        ) -> i32,
    >,
    /// How it serves these arguments, in words that follow on `op … by …`: written to `text`, with a zero at the end, within `capacity`
    /// bytes. `parts` as in [`Call`]. May be null. Thread: any.
    pub served_as: Option<
        unsafe extern "C" fn(
            op: *const Op,
            args: *const Args,
            parts: *const u64,
            text: *mut c_char,
            capacity: u32,
        ),
    >,
    /// Makes a group of ops of this library, or a lone one, ready to be enqueued step after step: fills `work`, whose header squall
    /// has written and whose other fields are null. This op is that of the first call. Called in the same order on all ranks of a
    /// communicator, before the first step. Thread: rank.
    pub prepare: Option<
        unsafe extern "C" fn(
            op: *const Op,
            calls: *const *const Call,
            count: u32,
            prepare: *const Prepare,
            work: *mut Work,
            error: *mut Error,
        ) -> i32,
    >,
}

/// One op of a group, bound to a rank's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The table's.
    pub header: Header,
    /// The op.
    pub op: *const Op,
    /// The task's name, for messages.
    pub task: *const c_char,
    /// Its arguments.
    pub args: *const Args,
    /// Where the part of each rank of the communicator begins, in elements, and at the end where the last one ends: `comm_size + 1` numbers;
    /// null where the parts are equal, or nothing is divided.
    pub parts: *const u64,
    /// The communicator, for [`Prepare`]'s functions.
    pub comm: u32,
    /// 0.
    pub reserved: u32,
}

/// A communicator, as [`Prepare::comm`] tells of it. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Comm {
    /// The name in the manifest.
    pub name: *const c_char,
    /// World ranks of those that this rank meets in it, by rank in the communicator.
    pub members: *const u32,
    /// Of each world rank: the part of the communicator that it is in.
    pub parts: *const u32,
    /// Of each world rank: its rank in its part.
    pub ranks: *const u32,
    /// How many members.
    pub size: u32,
    /// This rank in the communicator.
    pub rank: u32,
}

/// Bytes that a rank gave to the others. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Blob {
    /// Where they begin.
    pub bytes: *const c_void,
    /// How many.
    pub len: u64,
}

/// A kernel or an op that squall made ready, to be enqueued by [`Stream::enqueue`]; it ends with the [`Work`].
#[repr(C)]
pub struct Inner {
    _private: [u8; 0],
}

/// Whether the ranks are being aborted. Stays as long as the [`Work`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// The table's.
    pub header: Header,
    /// Squall's own.
    pub cx: *mut c_void,
    /// 1 once they are. What waits for other ranks asks again and again. Thread: any.
    pub is_aborted: Option<unsafe extern "C" fn(abort: *const Abort) -> i32>,
}

/// What [`Op::prepare`] is given. Its functions are called during that call, on its thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Prepare {
    /// The table's.
    pub header: Header,
    /// Squall's own.
    pub cx: *mut c_void,
    /// The rank's device: `cuda:1`.
    pub device: *const c_char,
    /// Its kind.
    pub device_kind: *const c_char,
    /// Tells of aborts.
    pub abort: *const Abort,
    /// When to give up: so many nanoseconds from the call.
    pub nanoseconds: u64,
    /// This rank of the world.
    pub rank: u32,
    /// Ranks of the world.
    pub world: u32,
    /// Communicators; 0 is the world.
    pub comms: u32,
    /// 1 if the device can capture a step.
    pub captures: u32,
    /// Tells of a communicator.
    pub comm:
        Option<unsafe extern "C" fn(p: *const Prepare, comm: u32, out: *mut Comm, error: *mut Error) -> i32>,
    /// Zeroed memory on the device, aligned to 256 bytes, freed with the work.
    pub alloc:
        Option<unsafe extern "C" fn(p: *const Prepare, bytes: u64, ptr: *mut u64, error: *mut Error) -> i32>,
    /// Zeroed memory that both the host and the device reach, freed with the work.
    pub alloc_staging: Option<
        unsafe extern "C" fn(
            p: *const Prepare,
            bytes: u64,
            ptr: *mut u64,
            host: *mut *mut c_void,
            error: *mut Error,
        ) -> i32,
    >,
    /// Makes a launch of a kernel of the plugin's ready: for the host's form or the CUDA source, as the device is. The table stays
    /// where it is for good; it need not be one that the plugin lists.
    pub kernel: Option<
        unsafe extern "C" fn(
            p: *const Prepare,
            kernel: *const Kernel,
            values: *const Arg,
            count: u32,
            grid: *const Grid,
            inner: *mut *mut Inner,
            error: *mut Error,
        ) -> i32,
    >,
    /// Makes one of the op's `uses` ready, by the device's own library.
    pub op: Option<
        unsafe extern "C" fn(
            p: *const Prepare,
            name: *const c_char,
            comm: u32,
            args: *const NamedArg,
            count: u32,
            inner: *mut *mut Inner,
            error: *mut Error,
        ) -> i32,
    >,
    /// Gives `mine` to all ranks of the communicator and gets everyone's, by rank: `size` of them, squall's until the next call of this
    /// function or the end of `prepare`. For small values, of at most a MiB. All ranks call it equally often; it waits for them.
    pub exchange: Option<
        unsafe extern "C" fn(
            p: *const Prepare,
            comm: u32,
            mine: *const c_void,
            len: u64,
            all: *mut *const Blob,
            error: *mut Error,
        ) -> i32,
    >,
    /// Gets everyone's address of what `ptr` is to this rank, by rank of the communicator, after this device was given access to
    /// theirs; squall's until the next call of this function or the end of `prepare`. For ops with [`op_flag::SINGLE_PROCESS`]. It waits as `exchange` does.
    pub peer_pointers: Option<
        unsafe extern "C" fn(
            p: *const Prepare,
            comm: u32,
            ptr: u64,
            all: *mut *const u64,
            error: *mut Error,
        ) -> i32,
    >,
}

/// The rank's stream, for the time of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The table's.
    pub header: Header,
    /// Squall's own.
    pub cx: *mut c_void,
    /// Whose handle `handle` gives: `cuda` (a `CUstream`) or `host`.
    pub api: *const c_char,
    /// The backend's handle, for work that knows its API. Asked where it is needed, since a backend may have to note before it where the
    /// stream is, which costs a GPU some microseconds.
    pub handle: Option<unsafe extern "C" fn(s: *const Stream) -> u64>,
    /// Enqueues what [`Prepare::kernel`] or [`Prepare::op`] made.
    pub enqueue: Option<unsafe extern "C" fn(s: *const Stream, inner: *mut Inner, error: *mut Error) -> i32>,
    /// Copies bytes in stream order, within the device's memory and its staging memory, between places that do not overlap.
    pub copy: Option<
        unsafe extern "C" fn(s: *const Stream, dst: u64, src: u64, bytes: u64, error: *mut Error) -> i32,
    >,
}

/// What a plugin made ready.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The table's, written by squall.
    pub header: Header,
    /// The plugin's own.
    pub state: *mut c_void,
    /// The plugin's own, for `abort`; it must stay until `destroy`.
    pub abort_state: *mut c_void,
    /// Puts the work on the stream; may be captured if the op says so. Allocates nothing. For a kernel's host form, `stream` is null.
    /// Thread: rank.
    pub enqueue:
        Option<unsafe extern "C" fn(state: *mut c_void, stream: *const Stream, error: *mut Error) -> i32>,
    /// What the work found wrong while it ran, if that shows only after the fact: returns 1 and words, once, else 0. May be null.
    /// Thread: rank.
    pub failure: Option<unsafe extern "C" fn(state: *mut c_void, text: *mut c_char, capacity: u32) -> i32>,
    /// Frees the state; nothing is called after it. May be null. Thread: any.
    pub destroy: Option<unsafe extern "C" fn(state: *mut c_void)>,
    /// Makes work in flight leave its stream soon. Never blocks; may come while `enqueue` runs; more calls change nothing. May be null. Thread: abort.
    pub abort: Option<unsafe extern "C" fn(abort_state: *mut c_void)>,
}

/// What an axis of a grid must cover. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cover {
    /// Of [`cover_kind`].
    pub kind: u32,
    /// The axis of [`cover_kind::DIM`].
    pub dim: u32,
    /// The parameter, or null.
    pub param: *const c_char,
}

/// Two parameters that may be the very same range. Frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The one that is written.
    pub written: *const c_char,
    /// The one that is read.
    pub read: *const c_char,
}

/// A kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The table's.
    pub header: Header,
    /// The name in manifests.
    pub name: *const c_char,
    /// One line for listings.
    pub summary: *const c_char,
    /// A manifest that runs it at any number of ranks, without a `[[plugin]]`; for listings and tests.
    pub example: *const c_char,
    /// The parameters.
    pub params: *const *const Param,
    /// What the grid must cover, axis by axis.
    pub covers: *const Cover,
    /// The pairs that may be one range.
    pub in_place: *const InPlace,
    /// CUDA C++, or null; what it may use is told with squall's kernels.
    pub cuda_source: *const c_char,
    /// The name of its `__device__` function.
    pub cuda_entry: *const c_char,
    /// What it may find wrong, a message each; `{}` stands for the number that it gives.
    pub cuda_failures: *const *const c_char,
    /// The plugin's own.
    pub data: *const c_void,
    /// How many parameters, at most [`MAX_PARAMS`].
    pub param_count: u32,
    /// How many covers, at most 3.
    pub cover_count: u32,
    /// How many pairs.
    pub in_place_count: u32,
    /// Bits of [`kernel_flag`].
    pub flags: u32,
    /// How many messages.
    pub cuda_failure_count: u32,
    /// Bytes of device memory that each task has for itself, zero before the first launch.
    pub cuda_scratch: u32,
    /// Whether the arguments obey the rules between them, such as shapes that must agree. May be null. Thread: any.
    pub check:
        Option<unsafe extern "C" fn(kernel: *const Kernel, args: *const Args, error: *mut Error) -> i32>,
    /// The form for host devices: what the grid's threads compute, and no more. Never blocks, allocates nothing. May be null.
    /// Thread: rank.
    pub host: Option<
        unsafe extern "C" fn(
            kernel: *const Kernel,
            args: *const Args,
            grid: *const Grid,
            error: *mut Error,
        ) -> i32,
    >,
    /// In place of `host`, makes a launch ready once: fills `work` as [`Op::prepare`] does. The arguments stay until `work` is destroyed. May be
    /// null. Thread: rank.
    pub host_ready: Option<
        unsafe extern "C" fn(
            kernel: *const Kernel,
            args: *const Args,
            grid: *const Grid,
            work: *mut Work,
            error: *mut Error,
        ) -> i32,
    >,
}
