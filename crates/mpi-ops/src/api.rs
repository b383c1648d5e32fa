//! MPI's handles as values that can be kept, and its status numbers as errors with its own words.

use std::ffi::{c_char, c_int, c_void};

use mpi::ffi;
use squall_core::{DType, DeviceError, with_element};

use crate::number::{Greater, Lesser, Product, Rule, Sum};
use crate::process::Process;
use crate::record::{Operator, Wire};

/// Room for the text of an error.
const ERROR_BYTES: usize = 4096;
const _: () = assert!(ffi::MPI_MAX_ERROR_STRING as usize <= ERROR_BYTES);

/// A call's outcome.
pub(crate) fn check(function: &str, code: c_int) -> Result<(), DeviceError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0u8; ERROR_BYTES];
    let mut len = 0;
    // SAFETY: there is room for the longest text.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let words = if told == ffi::MPI_SUCCESS as c_int { words(&text, len) } else { format!("error {code}") };
    Err(DeviceError::Failed(format!("{function}: {words}")))
}

/// A text that MPI wrote, in one line.
pub(crate) fn words(text: &[u8], len: c_int) -> String {
    let text = usize::try_from(len).ok().and_then(|len| text.get(..len)).unwrap_or(&[]);
    let text = String::from_utf8_lossy(text);
    text.split(|c: char| c.is_whitespace() || c == '\0')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// What MPI says that it is, in one line. May be asked at any time.
pub(crate) fn library() -> Result<String, DeviceError> {
    // SAFETY: a constant of MPI's.
    let room = unsafe { ffi::RSMPI_MAX_LIBRARY_VERSION_STRING };
    let mut text = vec![0u8; usize::try_from(room).unwrap_or(0).max(1)];
    let mut len = 0;
    // SAFETY: there is room for the longest text.
    let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &mut len) };
    check("MPI_Get_library_version", code)?;
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    Ok(words(&text[..end], len.min(end as c_int)))
}

/// A communicator. Freed by whoever owns it: see [`Comm::free`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comm(pub(crate) ffi::MPI_Comm);

// SAFETY: handles of MPI are the process's and no thread's own; in what order threads call with them is the callers' to keep.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    /// Takes a communicator that was just made, and lets it return errors, which would else end the process.
    pub(crate) fn made(comm: ffi::MPI_Comm) -> Result<Comm, DeviceError> {
        // SAFETY: the communicator is valid.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(Comm(comm))
    }

    /// A communicator of the same ranks. Waits for all of them.
    pub(crate) fn duplicate(self) -> Result<Comm, DeviceError> {
        // SAFETY: a constant of MPI's.
        let mut made = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: the communicator is valid.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(self.0, &mut made) })?;
        Comm::made(made)
    }

    /// The ranks of one colour, by key. Waits for all ranks.
    pub(crate) fn split(self, color: c_int, key: c_int) -> Result<Comm, DeviceError> {
        // SAFETY: a constant of MPI's.
        let mut made = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: the communicator is valid.
        check("MPI_Comm_split", unsafe { ffi::MPI_Comm_split(self.0, color, key, &mut made) })?;
        Comm::made(made)
    }

    /// The ranks that share this host's memory. Waits for all ranks.
    pub(crate) fn split_by_host(self) -> Result<Comm, DeviceError> {
        // SAFETY: constants of MPI's.
        let (mut made, shared, no_hints) =
            unsafe { (ffi::RSMPI_COMM_NULL, ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL) };
        // SAFETY: the communicator is valid.
        let code = unsafe { ffi::MPI_Comm_split_type(self.0, shared, 0, no_hints, &mut made) };
        check("MPI_Comm_split_type", code)?;
        Comm::made(made)
    }

    /// This process's rank, and how many there are.
    pub(crate) fn place(self) -> Result<(u32, u32), DeviceError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.0, &mut rank) })?;
        // SAFETY: as above.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.0, &mut size) })?;
        let number = |value: c_int| {
            u32::try_from(value).map_err(|_| DeviceError::Failed(format!("MPI told of a rank {value}")))
        };
        Ok((number(rank)?, number(size)?))
    }

    /// Gives it back. MPI lets calls in flight end before.
    ///
    /// # Safety
    /// Nobody uses it again.
    pub(crate) unsafe fn free(mut self) {
        // SAFETY: it is valid until now. An error leaves it to the end of the process.
        unsafe { ffi::MPI_Comm_free(&mut self.0) };
    }
}

/// The type of one unit of a call: MPI's own for an element, or one made of many.
#[derive(Debug)]
pub(crate) struct Datatype {
    handle: ffi::MPI_Datatype,
    /// Whether it was made here.
    owned: bool,
}

// SAFETY: as of `Comm`.
unsafe impl Send for Datatype {}

impl Datatype {
    /// The type of `block` elements, one after the other; an element's own for one.
    pub(crate) fn new(wire: Wire, block: u64, largest: u64) -> Result<Datatype, DeviceError> {
        let element = Datatype { handle: element(wire), owned: false };
        if block == 1 {
            return Ok(element);
        }
        let whole = element.blocks(block, wire.size(), largest)?;
        // SAFETY: the type is valid.
        check("MPI_Type_commit", unsafe { ffi::MPI_Type_commit(&mut { whole.handle }) })?;
        Ok(whole)
    }

    fn blocks(&self, block: u64, size: u64, largest: u64) -> Result<Datatype, DeviceError> {
        if block <= largest {
            return self.times(block);
        }
        // As many of the longest as there are, and what is left.
        let (longest, rest) = (self.times(largest)?, block % largest);
        let too_long =
            |_| DeviceError::Unsupported(format!("MPI cannot count {block} elements in one message"));
        let lengths =
            [c_int::try_from(block / largest).map_err(too_long)?, c_int::try_from(rest).map_err(too_long)?];
        let end = (block - rest).checked_mul(size).and_then(|bytes| ffi::MPI_Aint::try_from(bytes).ok());
        let end = end.ok_or_else(|| {
            DeviceError::Unsupported(format!("{block} elements are beyond MPI's addresses"))
        })?;
        let (places, types) = ([0, end], [longest.handle, self.handle]);
        // SAFETY: a constant of MPI's.
        let mut handle = unsafe { ffi::RSMPI_DATATYPE_NULL };
        // SAFETY: the arrays have two entries each, and the types are valid.
        let code = unsafe {
            ffi::MPI_Type_create_struct(2, lengths.as_ptr(), places.as_ptr(), types.as_ptr(), &mut handle)
        };
        check("MPI_Type_create_struct", code)?;
        Ok(Datatype { handle, owned: true })
    }

    fn times(&self, count: u64) -> Result<Datatype, DeviceError> {
        let count = c_int::try_from(count)
            .map_err(|_| DeviceError::Unsupported(format!("MPI cannot count {count} elements")))?;
        // SAFETY: a constant of MPI's.
        let mut handle = unsafe { ffi::RSMPI_DATATYPE_NULL };
        // SAFETY: the type is valid.
        let code = unsafe { ffi::MPI_Type_contiguous(count, self.handle, &mut handle) };
        check("MPI_Type_contiguous", code)?;
        Ok(Datatype { handle, owned: true })
    }

    pub(crate) fn handle(&self) -> ffi::MPI_Datatype {
        self.handle
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        if self.owned && Process::started().is_some_and(|process| process.check().is_ok()) {
            // SAFETY: it was made here, and is used no more; calls in flight keep what they need of it.
            unsafe { ffi::MPI_Type_free(&mut self.handle) };
        }
    }
}

/// MPI's type of an element.
fn element(wire: Wire) -> ffi::MPI_Datatype {
    // SAFETY: constants of MPI's.
    unsafe {
        match wire {
            Wire::U8 => ffi::RSMPI_UINT8_T,
            Wire::U16 => ffi::RSMPI_UINT16_T,
            Wire::U32 => ffi::RSMPI_UINT32_T,
            Wire::U64 => ffi::RSMPI_UINT64_T,
            Wire::F32 => ffi::RSMPI_FLOAT,
            Wire::F64 => ffi::RSMPI_DOUBLE,
        }
    }
}

/// The operations that are not MPI's own.
#[derive(Debug)]
pub(crate) struct Operators(Vec<(Operator, ffi::MPI_Op)>);

// SAFETY: as of `Comm`.
unsafe impl Send for Operators {}
// SAFETY: as of `Comm`.
unsafe impl Sync for Operators {}

impl Operators {
    pub(crate) fn new() -> Result<Operators, DeviceError> {
        let wrapping = [
            (Operator::WrappingSum(Wire::U8), combine::<u8, Sum> as Combine),
            (Operator::WrappingSum(Wire::U32), combine::<u32, Sum>),
            (Operator::WrappingSum(Wire::U64), combine::<u64, Sum>),
            (Operator::WrappingProd(Wire::U8), combine::<u8, Product>),
            (Operator::WrappingProd(Wire::U32), combine::<u32, Product>),
            (Operator::WrappingProd(Wire::U64), combine::<u64, Product>),
        ];
        let ordered = DType::ALL.iter().flat_map(|&dtype| {
            with_element!(dtype, T => [
                (Operator::Lesser(dtype), combine::<T, Lesser> as Combine),
                (Operator::Greater(dtype), combine::<T, Greater>),
            ])
        });
        let made = wrapping.into_iter().chain(ordered).map(|(operator, combine)| {
            // SAFETY: a constant of MPI's.
            let mut op = unsafe { ffi::RSMPI_MAX };
            // SAFETY: the function has the form that MPI calls, and commutes.
            check("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(combine), 1, &mut op) })?;
            Ok((operator, op))
        });
        Ok(Operators(made.collect::<Result<_, DeviceError>>()?))
    }

    /// MPI's handle of an operation.
    pub(crate) fn handle(&self, operator: Operator) -> Result<ffi::MPI_Op, DeviceError> {
        let own = self.0.iter().find(|(own, _)| *own == operator).map(|(_, op)| *op);
        // SAFETY: constants of MPI's.
        let mpis = unsafe {
            match operator {
                Operator::Sum => Some(ffi::RSMPI_SUM),
                Operator::Prod => Some(ffi::RSMPI_PROD),
                _ => None,
            }
        };
        own.or(mpis).ok_or_else(|| DeviceError::Unsupported(format!("there is no operation {operator:?}")))
    }

    /// Gives them back.
    ///
    /// # Safety
    /// Nobody uses them again.
    pub(crate) unsafe fn free(&self) {
        for (_, mut op) in self.0.iter().copied() {
            // SAFETY: it was made here.
            unsafe { ffi::MPI_Op_free(&mut op) };
        }
    }
}

/// What MPI calls to combine elements.
type Combine = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

/// Elements of `inout` become what a rule makes of those of `given` and them, as MPI calls it.
unsafe extern "C" fn combine<T: Copy, R: Rule<T>>(
    given: *mut c_void,
    inout: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: MPI gives both places and their length.
    let len = usize::try_from(unsafe { *len }).unwrap_or(0);
    let (given, inout) = (given.cast::<T>(), inout.cast::<T>());
    for i in 0..len {
        // SAFETY: both places hold `len` elements; how MPI's own memory is aligned it does not say.
        unsafe {
            let (a, b) = (given.add(i).read_unaligned(), inout.add(i).read_unaligned());
            inout.add(i).write_unaligned(R::both(a, b));
        }
    }
}
