//! Launches one kernel the way a host device does.

use std::cell::Cell;
use std::sync::Arc;

use squall_core::device::DevicePtr;
use squall_core::{
    Arg, Args, BoundRange, BufferId, BufferRange, DType, Element, Grid, KernelDef, ParamKind, Presence,
    Scalar, Shape, Task, Type,
};

use crate::allocations;

/// Words before and after every buffer that no kernel may touch.
const GUARD: usize = 8;
const GUARD_WORD: u64 = 0xA5A5_5A5A_C3C3_3C3C;

/// A buffer between guard zones. Shared, since two arguments may name it.
pub(crate) struct Buf {
    dtype: DType,
    shape: Shape,
    len: usize,
    /// Guard, elements and the rest of their last word, guard.
    words: Vec<Cell<u64>>,
}

impl Buf {
    pub(crate) fn new<T: Element>(values: &[T]) -> Buf {
        let data = size_of_val(values).div_ceil(8);
        let mut words = vec![GUARD_WORD; GUARD + data + GUARD];
        bytemuck::cast_slice_mut(&mut words[GUARD..GUARD + data])[..values.len()].copy_from_slice(values);
        Buf {
            dtype: T::DTYPE,
            shape: Arc::new([values.len() as u64]),
            len: values.len(),
            words: words.into_iter().map(Cell::new).collect(),
        }
    }

    /// `len` times the same value.
    pub(crate) fn filled<T: Element>(len: usize, value: T) -> Buf {
        Buf::new(&vec![value; len])
    }

    pub(crate) fn shaped(mut self, shape: &[u64]) -> Buf {
        assert_eq!(shape.iter().product::<u64>(), self.len as u64);
        self.shape = shape.into();
        self
    }

    /// The elements; the guard zones must be whole.
    pub(crate) fn read<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype);
        let words: Vec<u64> = self.words.iter().map(Cell::get).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let (from, to) = (8 * GUARD, 8 * GUARD + self.len * size_of::<T>());
        let guard = GUARD_WORD.to_ne_bytes();
        let whole = |(at, byte): (usize, &u8)| (from..to).contains(&at) || *byte == guard[at % 8];
        assert!(bytes.iter().enumerate().all(whole), "the kernel wrote outside a buffer");
        bytemuck::cast_slice(&bytes[from..to]).to_vec()
    }

    fn bound(&self) -> BoundRange {
        let ptr = self.words[GUARD..].as_ptr().expose_provenance() as u64;
        BoundRange { ptr: DevicePtr(ptr), dtype: self.dtype, shape: self.shape.clone() }
    }

    /// The address tells buffers apart.
    fn range(&self) -> BufferRange {
        let buffer = BufferId((self.words.as_ptr().addr() >> 3) as u32);
        BufferRange { buffer, dtype: self.dtype, offset: 0, shape: self.shape.clone() }
    }
}

/// A launch in the making: arguments by name; what is absent takes its default.
pub(crate) struct Launch<'a> {
    kernel: &'static KernelDef,
    given: Vec<(&'static str, Arg<&'a Buf>)>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(kernel: &'static KernelDef) -> Launch<'a> {
        Launch { kernel, given: Vec::new() }
    }

    fn give(mut self, name: &'static str, arg: Arg<&'a Buf>) -> Launch<'a> {
        assert!(self.kernel.params.iter().any(|p| p.name == name), "no parameter `{name}`");
        self.given.push((name, arg));
        self
    }

    pub(crate) fn buffer(self, name: &'static str, buffer: &'a Buf) -> Launch<'a> {
        self.give(name, Arg::Buffer(buffer))
    }

    pub(crate) fn scalar(self, name: &'static str, value: impl Into<Scalar>) -> Launch<'a> {
        self.give(name, Arg::Scalar(value.into()))
    }

    pub(crate) fn size(self, name: &'static str, value: u64) -> Launch<'a> {
        self.give(name, Arg::Size(value))
    }

    pub(crate) fn flag(self, name: &'static str) -> Launch<'a> {
        self.give(name, Arg::Flag(true))
    }

    pub(crate) fn list(self, name: &'static str, value: &[i64]) -> Launch<'a> {
        self.give(name, Arg::List(value.into()))
    }

    fn get(&self, name: &str) -> Option<&Arg<&'a Buf>> {
        self.given.iter().find(|(n, _)| *n == name).map(|(_, arg)| arg)
    }

    fn shape(&self, name: &str) -> Shape {
        match self.get(name) {
            Some(Arg::Buffer(buffer)) => buffer.shape.clone(),
            _ => panic!("`{name}` is not a buffer"),
        }
    }

    /// The arguments in the descriptor's order, of the kinds and dtypes that it declares.
    fn values<B>(&self, bind: impl Fn(&Buf) -> B) -> Vec<Arg<B>> {
        let value = |param: &squall_core::ParamDef| match (self.get(param.name), param.presence) {
            (Some(Arg::Buffer(buffer)), _) => {
                let (ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty)) = param.kind else {
                    panic!("`{}` takes no buffer", param.name)
                };
                assert!(self.allows(ty, buffer.dtype), "`{}` does not take {}", param.name, buffer.dtype);
                Arg::Buffer(bind(buffer))
            }
            (Some(Arg::Scalar(value)), _) => {
                assert!(matches!(param.kind, ParamKind::Scalar(_)));
                Arg::Scalar(*value)
            }
            (Some(Arg::Size(size)), _) => {
                assert_eq!(param.kind, ParamKind::Size);
                Arg::Size(*size)
            }
            (Some(Arg::Flag(flag)), _) => {
                assert_eq!(param.kind, ParamKind::Flag);
                Arg::Flag(*flag)
            }
            (Some(Arg::List(list)), _) => {
                assert_eq!(param.kind, ParamKind::List);
                Arg::List(list.clone())
            }
            (None, Presence::Optional) => Arg::Absent,
            (None, Presence::Dim(buffer, axis)) => Arg::Size(self.shape(buffer)[axis]),
            (None, Presence::Len(buffer)) => Arg::Size(self.shape(buffer).iter().product()),
            (None, Presence::ShapeOf(buffer)) => {
                Arg::List(self.shape(buffer).iter().map(|&n| n as i64).collect())
            }
            (None, Presence::False) => Arg::Flag(false),
            (given, presence) => panic!("`{}`: {presence:?}, given {}", param.name, given.is_some()),
        };
        self.kernel.params.iter().map(value).collect()
    }

    fn allows(&self, ty: Type, dtype: DType) -> bool {
        match ty {
            Type::In(dtypes) => dtypes.contains(&dtype),
            Type::Is(other) => other == dtype,
            Type::Same(param) => matches!(self.get(param), Some(Arg::Buffer(b)) if b.dtype == dtype),
        }
    }

    /// The message with which the descriptor refuses these arguments.
    pub(crate) fn refused(&self) -> String {
        let values = self.values(Buf::range);
        let args = Args { params: self.kernel.params, values: &values, comm_rank: 0, comm_size: 1 };
        self.kernel.describe(&args).expect_err("the arguments were accepted").to_string()
    }

    /// Runs with a thread for all that must be covered, and surplus threads on every axis.
    pub(crate) fn run(&self) -> Result<(), String> {
        let values = self.values(Buf::range);
        let args = Args { params: self.kernel.params, values: &values, comm_rank: 0, comm_size: 1 };
        let threads = self.kernel.required_threads(&args).map(|n| n.max(1));
        let grid = Grid::new(threads, [32, 4, 2]).unwrap();
        assert_eq!(self.kernel.uncovered(&args, &grid).count(), 0);
        self.run_on(grid)
    }

    /// Runs on exactly so many threads, be they enough or not.
    pub(crate) fn run_threads(&self, threads: [u64; 3]) -> Result<(), String> {
        self.run_on(Grid::new(threads, [1, 1, 1]).unwrap())
    }

    /// The descriptor must accept the arguments, and in-place forms must be declared.
    fn check(&self) {
        let values = self.values(Buf::range);
        let args = Args { params: self.kernel.params, values: &values, comm_rank: 0, comm_size: 1 };
        let description = self.kernel.describe(&args).unwrap_or_else(|error| panic!("{error}"));
        for (i, a) in description.accesses.iter().enumerate() {
            for b in &description.accesses[..i] {
                let apart =
                    a.buffer != b.buffer || a.range.end <= b.range.start || b.range.end <= a.range.start;
                let fine = apart || !(a.mode.writes() || b.mode.writes());
                assert!(fine, "`{}` overlaps `{}`, and this is not declared", a.param, b.param);
            }
        }
    }

    fn run_on(&self, grid: Grid) -> Result<(), String> {
        self.check();
        let values = self.values(Buf::bound);
        // SAFETY: every range is the inside of a `Buf`, which is aligned to 8 bytes, initialised, shared
        // through cells on this thread alone, and borrowed by `self`.
        let launch = unsafe { self.kernel.host.expect("a host form").ready(self.kernel, values, grid) };
        let mut launch = launch.unwrap();
        let before = allocations::count();
        let result = launch.launch();
        let allocated = allocations::count() - before;
        assert!(result.is_err() || allocated == 0, "{} allocated {allocated} times", self.kernel.name);
        result
    }
}

/// The dtypes that a parameter declares.
pub(crate) fn dtypes(kernel: &KernelDef, param: &str) -> &'static [DType] {
    match kernel.params.iter().find(|p| p.name == param).map(|p| p.kind) {
        Some(ParamKind::Buffer(_, Type::In(dtypes))) => dtypes,
        other => panic!("`{param}` declares no dtypes: {other:?}"),
    }
}
