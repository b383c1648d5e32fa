//! Arguments and grids.

use std::ptr;

use squall_core::{
    Arg, Args, BoundRange, BufferId, BufferRange, DevicePtr, Grid, ParamDef, Parts, Scalar, Shape,
};

use super::{Malformed, check_header, dtype, dtype_code, numbers, slice};
use crate::abi::{self, arg_kind};
use crate::field;

/// How an argument names memory: a [`BufferRange`] while tasks are described, a [`BoundRange`] in a plan.
pub trait Place: Clone + sealed::Sealed {}

impl Place for BufferRange {}
impl Place for BoundRange {}

mod sealed {
    use squall_core::{DType, Shape};

    use crate::abi;
    use crate::convert::Malformed;

    pub trait Sealed: Sized {
        fn dtype_and_shape(&self) -> (DType, &Shape);
        /// Writes what dtype and shape do not say.
        fn write(&self, arg: &mut abi::Arg);
        fn read(arg: &abi::Arg, dtype: DType, shape: Shape) -> Result<Self, Malformed>;
    }
}

impl sealed::Sealed for BufferRange {
    fn dtype_and_shape(&self) -> (squall_core::DType, &Shape) {
        (self.dtype, &self.shape)
    }

    fn write(&self, arg: &mut abi::Arg) {
        (arg.buffer, arg.offset) = (self.buffer.0.into(), self.offset);
    }

    fn read(arg: &abi::Arg, dtype: squall_core::DType, shape: Shape) -> Result<BufferRange, Malformed> {
        let buffer = BufferId(narrow(arg.buffer, "a buffer")?);
        if arg.offset.checked_add(arg.len).is_none() {
            return Err(Malformed::new("a range ends beyond 64 bits"));
        }
        Ok(BufferRange { buffer, dtype, offset: arg.offset, shape })
    }
}

impl sealed::Sealed for BoundRange {
    fn dtype_and_shape(&self) -> (squall_core::DType, &Shape) {
        (self.dtype, &self.shape)
    }

    fn write(&self, arg: &mut abi::Arg) {
        arg.ptr = self.ptr.0;
    }

    fn read(arg: &abi::Arg, dtype: squall_core::DType, shape: Shape) -> Result<BoundRange, Malformed> {
        Ok(BoundRange { ptr: DevicePtr(arg.ptr), dtype, shape })
    }
}

/// Arguments as the ABI has them, with the shapes and lists that they point to. Stays where it is on the heap, so that it may be moved.
#[derive(Debug)]
pub struct ArgList {
    values: Vec<abi::Arg>,
    _shapes: Vec<Shape>,
    _lists: Vec<std::sync::Arc<[i64]>>,
}

// SAFETY: the pointers in `values` lead into the shapes and lists, which are shared, never changed, and live as long.
unsafe impl Send for ArgList {}
// SAFETY: as above.
unsafe impl Sync for ArgList {}

impl ArgList {
    /// Writes arguments.
    pub fn new<'a, B: Place + 'a>(args: impl IntoIterator<Item = &'a Arg<B>>) -> Result<ArgList, Malformed> {
        let mut list = ArgList { values: Vec::new(), _shapes: Vec::new(), _lists: Vec::new() };
        for arg in args {
            let value = list.write(arg)?;
            list.values.push(value);
        }
        Ok(list)
    }

    fn write<B: Place>(&mut self, arg: &Arg<B>) -> Result<abi::Arg, Malformed> {
        let mut value = ABSENT;
        match arg {
            Arg::Absent => {}
            Arg::Buffer(place) => {
                let (dtype, shape) = place.dtype_and_shape();
                value.kind = arg_kind::BUFFER;
                value.dtype = dtype_code(dtype);
                value.len = elements(shape)?;
                value.shape = shape.as_ptr();
                value.axes = narrow(shape.len() as u64, "a number of axes")?;
                place.write(&mut value);
                self._shapes.push(shape.clone());
            }
            Arg::Scalar(Scalar::Int(number)) => {
                value.kind = arg_kind::INT;
                value.number = number.cast_unsigned();
                value.real = *number as f64;
            }
            Arg::Scalar(Scalar::Float(number)) => {
                value.kind = arg_kind::FLOAT;
                value.real = *number;
            }
            Arg::Size(number) => (value.kind, value.number) = (arg_kind::SIZE, *number),
            Arg::Word(index) => (value.kind, value.number) = (arg_kind::WORD, u64::from(*index)),
            Arg::Flag(flag) => (value.kind, value.number) = (arg_kind::FLAG, u64::from(*flag)),
            Arg::Rank(rank) => (value.kind, value.number) = (arg_kind::RANK, u64::from(*rank)),
            Arg::List(list) => {
                value.kind = arg_kind::LIST;
                value.len = list.len() as u64;
                value.list = list.as_ptr();
                self._lists.push(list.clone());
            }
        }
        Ok(value)
    }

    /// The arguments, in order; what they point to lives as long as this list.
    pub fn values(&self) -> &[abi::Arg] {
        &self.values
    }

    /// The table over them; it points into this list.
    pub fn table(&self, comm_rank: u32, comm_size: u32) -> abi::Args {
        abi::Args {
            header: abi::Header::of::<abi::Args>(),
            values: self.values.as_ptr(),
            count: self.values.len() as u32,
            comm_rank,
            comm_size,
            reserved: 0,
        }
    }
}

const ABSENT: abi::Arg = abi::Arg {
    kind: arg_kind::ABSENT,
    dtype: 0,
    number: 0,
    real: 0.0,
    ptr: 0,
    buffer: 0,
    offset: 0,
    len: 0,
    shape: ptr::null(),
    list: ptr::null(),
    axes: 0,
    reserved: 0,
};

/// Arguments that were read from an [`abi::Args`]; shapes and lists are copied.
#[derive(Debug)]
pub struct OwnedArgs<B> {
    /// One a parameter.
    pub values: Vec<Arg<B>>,
    /// As in [`Args`].
    pub comm_rank: u32,
    /// As in [`Args`].
    pub comm_size: u32,
}

impl<B: Place> OwnedArgs<B> {
    /// Reads the arguments of a task with these parameters.
    ///
    /// # Safety
    /// [As for all](super).
    pub unsafe fn read(table: *const abi::Args, params: &[ParamDef]) -> Result<OwnedArgs<B>, Malformed> {
        // SAFETY: the caller's. All fields are of the ABI's first minor; a writer without them is refused.
        let table = unsafe {
            check_header(table, "the table of arguments")?;
            field!(Args, table, comm_size)
                .ok_or_else(|| Malformed::new("the table of arguments is too short"))?;
            table
        };
        // SAFETY: as checked.
        let (first, count, comm_rank, comm_size) =
            unsafe { ((*table).values, (*table).count, (*table).comm_rank, (*table).comm_size) };
        // SAFETY: the caller's.
        let values = unsafe { slice(first, count.into(), "the arguments") }?;
        if values.len() != params.len() {
            let (given, wanted) = (values.len(), params.len());
            return Err(Malformed::new(format!("there are {given} arguments for {wanted} parameters")));
        }
        let read = |(value, param): (&abi::Arg, &ParamDef)| {
            // SAFETY: the caller's.
            let arg = unsafe { read_arg(value) };
            arg.map_err(|error| Malformed::new(format!("the argument `{}`: {error}", param.name)))
        };
        let values = values.iter().zip(params).map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(OwnedArgs { values, comm_rank, comm_size })
    }

    /// The arguments beside the parameters that they were read for.
    pub fn beside<'a>(&'a self, params: &'a [ParamDef]) -> Args<'a, B> {
        Args { params, values: &self.values, comm_rank: self.comm_rank, comm_size: self.comm_size }
    }
}

/// Reads one argument; shapes and lists are copied.
///
/// # Safety
/// [As for all](super).
pub unsafe fn read_arg<B: Place>(value: &abi::Arg) -> Result<Arg<B>, Malformed> {
    Ok(match value.kind {
        arg_kind::ABSENT => Arg::Absent,
        arg_kind::BUFFER => {
            // SAFETY: the caller's.
            let shape: Shape = unsafe { slice(value.shape, value.axes.into(), "the axes") }?.into();
            let elements = elements(&shape)?;
            if elements != value.len {
                let len = value.len;
                return Err(Malformed::new(format!("a range of {len} elements whose axes make {elements}")));
            }
            Arg::Buffer(B::read(value, dtype(value.dtype)?, shape)?)
        }
        arg_kind::INT => Arg::Scalar(Scalar::Int(value.number.cast_signed())),
        arg_kind::FLOAT => Arg::Scalar(Scalar::Float(value.real)),
        arg_kind::SIZE => Arg::Size(value.number),
        arg_kind::WORD => Arg::Word(narrow(value.number, "the index of a word")?),
        arg_kind::FLAG => match value.number {
            0 | 1 => Arg::Flag(value.number == 1),
            number => return Err(Malformed::new(format!("a flag is 0 or 1, not {number}"))),
        },
        arg_kind::RANK => Arg::Rank(narrow(value.number, "a rank")?),
        // SAFETY: the caller's.
        arg_kind::LIST => Arg::List(unsafe { numbers(value.list, value.len, "the list's numbers") }?),
        kind => return Err(Malformed::new(format!("{kind} is no kind of argument"))),
    })
}

fn narrow(number: u64, what: &str) -> Result<u32, Malformed> {
    u32::try_from(number).map_err(|_| Malformed::new(format!("{what} is {number}, beyond 32 bits")))
}

fn elements(shape: &[u64]) -> Result<u64, Malformed> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let count = shape.iter().try_fold(1u64, |count, &axis| count.checked_mul(axis));
    count.ok_or_else(|| Malformed::new(format!("the axes {shape:?} make more than 64 bits of elements")))
}

/// A grid for the other side.
pub fn grid(grid: &Grid) -> abi::Grid {
    abi::Grid { threads: grid.threads(), block: grid.block(), reserved: 0 }
}

/// Reads a grid, within the limits of all.
pub fn read_grid(grid: &abi::Grid) -> Result<Grid, Malformed> {
    Grid::new(grid.threads, grid.block.map(u64::from)).map_err(|error| Malformed::new(error.to_string()))
}

/// Where each part begins, and at the end where the last one ends: [`abi::Call::parts`].
pub fn part_edges(parts: &Parts) -> Vec<u64> {
    std::iter::once(0).chain(parts.iter().map(|part| part.end)).collect()
}

/// Reads [`abi::Call::parts`] of a communicator of that size; `None` where it is null.
///
/// # Safety
/// `edges` is null or points to `comm_size + 1` numbers.
pub unsafe fn read_parts(edges: *const u64, comm_size: u32) -> Result<Option<Parts>, Malformed> {
    if edges.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let edges = unsafe { slice(edges, u64::from(comm_size) + 1, "the parts") }?;
    let lens = edges.windows(2).map(|pair| pair[1].checked_sub(pair[0])).collect::<Option<Vec<u64>>>();
    let parts = lens.filter(|_| edges[0] == 0).and_then(Parts::new);
    parts
        .map(Some)
        .ok_or_else(|| Malformed::new(format!("the parts {edges:?} do not follow each other from 0")))
}

#[cfg(test)]
mod tests {
    use squall_core::{DType, Type};

    use super::*;

    const PARAMS: [ParamDef; 9] = [ParamDef::read("p", Type::Is(DType::F32), ""); 9];

    fn all<B>(buffer: B) -> [Arg<B>; 9] {
        [
            Arg::Absent,
            Arg::Buffer(buffer),
            Arg::Scalar(Scalar::Int(-3)),
            Arg::Scalar(Scalar::Float(0.5)),
            Arg::Size(u64::MAX),
            Arg::Word(2),
            Arg::Flag(true),
            Arg::Rank(7),
            Arg::List([1, -2, i64::MIN].into()),
        ]
    }

    fn there_and_back<B: Place + PartialEq + std::fmt::Debug>(buffer: B) {
        let args = all(buffer);
        let list = ArgList::new(&args).unwrap();
        let table = list.table(2, 5);
        // SAFETY: `list` lives, and `table` is over it.
        let back = unsafe { OwnedArgs::<B>::read(&raw const table, &PARAMS) }.unwrap();
        assert_eq!((&back.values[..], back.comm_rank, back.comm_size), (&args[..], 2, 5));
        assert_eq!(back.beside(&PARAMS).values.len(), 9);
        // SAFETY: as above.
        let few = unsafe { OwnedArgs::<B>::read(&raw const table, &PARAMS[1..]) }.unwrap_err();
        assert_eq!(few.0, "there are 9 arguments for 8 parameters");
    }

    #[test]
    fn arguments_come_back_as_they_were() {
        let dtype = DType::Bf16;
        there_and_back(BufferRange { buffer: BufferId(3), dtype, offset: 9, shape: [4, 2].into() });
        there_and_back(BoundRange { ptr: DevicePtr(u64::MAX), dtype, shape: [].into() });
        there_and_back(BoundRange { ptr: DevicePtr(0), dtype, shape: [u64::MAX, 0].into() });
    }

    #[test]
    fn odd_arguments_are_refused() {
        let shape = [2u64, 3];
        let buffer = abi::Arg { kind: arg_kind::BUFFER, len: 6, shape: shape.as_ptr(), axes: 2, ..ABSENT };
        // SAFETY: what they point to is there, or is refused.
        let read = |value: abi::Arg| unsafe { read_arg::<BufferRange>(&value) }.map_err(|error| error.0);
        assert!(read(buffer).is_ok());
        let wrong = "a range of 7 elements whose axes make 6";
        assert_eq!(read(abi::Arg { len: 7, ..buffer }), Err(wrong.into()));
        assert_eq!(read(abi::Arg { dtype: 10, ..buffer }), Err("10 is no dtype".into()));
        assert_eq!(read(abi::Arg { shape: ptr::null(), ..buffer }), Err("the axes are null".into()));
        let far = "a range ends beyond 64 bits";
        assert_eq!(read(abi::Arg { offset: u64::MAX, ..buffer }), Err(far.into()));
        assert!(read(abi::Arg { buffer: 1 << 32, ..buffer }).is_err());
        for (kind, number) in
            [(arg_kind::FLAG, 2), (arg_kind::RANK, 1 << 32), (arg_kind::WORD, 1 << 32), (9, 0)]
        {
            assert!(read(abi::Arg { kind, number, ..ABSENT }).is_err(), "{kind}");
        }
        let huge = BoundRange { ptr: DevicePtr(0), dtype: DType::U8, shape: [u64::MAX, 2].into() };
        assert!(ArgList::new(&[Arg::Buffer(huge)]).is_err());
    }

    #[test]
    fn grids_and_parts_come_back_as_they_were() {
        let wanted = Grid::new([1000, 3, 1], [256, 2, 1]).unwrap();
        assert_eq!(read_grid(&grid(&wanted)), Ok(wanted));
        assert!(read_grid(&abi::Grid { block: [0, 1, 1], ..grid(&wanted) }).is_err());

        // SAFETY: the arrays are as long as is said.
        let read = |edges: &[u64]| unsafe { read_parts(edges.as_ptr(), edges.len() as u32 - 1) };
        let parts = Parts::new([3, 0, 2]).unwrap();
        assert_eq!(part_edges(&parts), [0, 3, 3, 5]);
        assert_eq!(read(&[0, 3, 3, 5]), Ok(Some(parts)));
        assert!(read(&[1, 3]).is_err() && read(&[0, 3, 2]).is_err());
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_parts(ptr::null(), 4) }, Ok(None));
    }
}
