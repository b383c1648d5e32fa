//! The description half: what a plugin's ops and kernels say of arguments, without a device.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::slice::from_raw_parts_mut;
use std::sync::{Mutex, PoisonError};

use squall_core::{
    Access, Arg, ArgError, Args, BufferRange, Description, DeviceError, Matched, Meeting, OpError, ParamDef,
    Share,
};

use super::absent;
use super::panic::{catch, guarded};
use super::tables::{kernel_of, op_of};
use crate::abi::{self, NO_PARAM, NO_PLACE};
use crate::convert::{
    Malformed, OwnedArgs, check_header, dtype_code, leak_text, mode_code, read_parts, write_line,
};
use crate::field;

/// [`abi::Kernel::check`].
pub(super) unsafe extern "C" fn check(
    kernel: *const abi::Kernel,
    args: *const abi::Args,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: the caller keeps the ABI: `kernel` is a table of this plugin's, `args` are its arguments.
    unsafe {
        let params = |_| kernel_of(kernel).map_or(&[][..], |kernel| kernel.params);
        guarded(error, params, || {
            let kernel = kernel_of(kernel)?;
            let args = OwnedArgs::read(args, kernel.params)?;
            (kernel.check)(&args.beside(kernel.params)).map_err(of_lone)
        })
    }
}

/// [`abi::Op::describe`].
pub(super) unsafe extern "C" fn describe(
    op: *const abi::Op,
    args: *const abi::Args,
    to: *const abi::Description,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: the caller keeps the ABI: `op` is a table of this plugin's, `args` are its arguments, `to` is the host's.
    unsafe {
        let params = |_| op_of(op).map_or(&[][..], |op| op.params());
        guarded(error, params, || {
            let op = op_of(op)?;
            let args = OwnedArgs::read(args, op.params())?;
            let args = args.beside(op.params());
            let description = op.describe(&args).map_err(of_lone)?;
            check_header(to, "the description's table")?;
            Ok(Telling { to, op: op.name(), args }.tell(&description)?)
        })
    }
}

/// [`abi::Op::served_as`].
pub(super) unsafe extern "C" fn served_as(
    op: *const abi::Op,
    args: *const abi::Args,
    parts: *const u64,
    text: *mut c_char,
    capacity: u32,
) {
    if text.is_null() || capacity == 0 {
        return;
    }
    // SAFETY: the caller keeps the ABI, as above; `text` has `capacity` bytes for this function to write.
    unsafe {
        text.write_bytes(0, capacity as usize);
        let words = catch(|| -> Result<_, Malformed> {
            let op = op_of(op)?;
            let args = OwnedArgs::read(args, op.params())?;
            let parts = read_parts(parts, args.comm_size)?;
            Ok(op.served_as(&args.beside(op.params()), parts.as_ref()))
        });
        if let Ok(Ok(Some(words))) = words {
            write_line(from_raw_parts_mut(text, capacity as usize), &words);
        }
    }
}

fn of_lone(error: ArgError) -> OpError {
    OpError::Arg { member: 0, error }
}

/// A description on its way to the host.
struct Telling<'a> {
    to: *const abi::Description,
    op: &'static str,
    args: Args<'a>,
}

/// Calls a function of the host's description.
macro_rules! tell {
    ($self:ident.$name:ident($($arg:expr),*)) => {{
        // SAFETY: `to` is the host's table, and the function is called with what it asks for.
        unsafe {
            let function = field!(Description, $self.to, $name).flatten();
            function.ok_or_else(|| absent(stringify!($name)))?($self.to, $($arg),*);
        }
    }};
}

impl Telling<'_> {
    fn tell(&self, description: &Description) -> Result<(), DeviceError> {
        for access in &description.accesses {
            let (param, first) = self.within(access)?;
            tell!(self.access(param, first, access.range.end - access.range.start, mode_code(access.mode)));
        }
        for meeting in &description.meetings {
            match meeting {
                Meeting::Send(m) => tell!(self.send(m.peer, m.count, dtype_code(m.dtype))),
                Meeting::Recv(m) => tell!(self.recv(m.peer, m.count, dtype_code(m.dtype))),
                Meeting::Collective(signature) => {
                    let op = if signature.op == self.op {
                        std::ptr::null()
                    } else {
                        lasting(signature.op)?.as_ptr()
                    };
                    tell!(self.collective(op));
                    for (name, value) in &signature.fields {
                        self.matched(lasting(name)?, value)?;
                    }
                    if let Some(share) = &signature.share {
                        self.share(share)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn matched(&self, name: &'static CStr, value: &Matched) -> Result<(), DeviceError> {
        let name = name.as_ptr();
        match value {
            Matched::Number(number) => {
                let wide = || {
                    Malformed::new(format!("{number}, which must match on all ranks, does not fit 64 bits"))
                };
                tell!(self.number(name, i64::try_from(*number).map_err(|_| wide())?));
            }
            Matched::Float(bits) => tell!(self.real(name, f64::from_bits(*bits))),
            Matched::DType(dtype) => tell!(self.dtype(name, dtype_code(*dtype))),
            Matched::Word(word) => tell!(self.word(name, lasting(word)?.as_ptr())),
            Matched::Numbers(numbers) => tell!(self.numbers(name, numbers.as_ptr(), numbers.len() as u64)),
        }
        Ok(())
    }

    fn share(&self, share: &Share) -> Result<(), DeviceError> {
        let (part, elements) = (self.param(share.part.0)?, share.part.1);
        let (whole_param, whole) = match share.whole {
            Some((name, whole)) => (self.param(name)?, whole),
            None => (NO_PARAM, 0),
        };
        tell!(self.share(part, elements, whole_param, whole, share.place.unwrap_or(NO_PLACE)));
        Ok(())
    }

    fn param(&self, name: &str) -> Result<u32, Malformed> {
        let index = self.args.params.iter().position(|param: &ParamDef| param.name == name);
        let none =
            || Malformed::new(format!("`{}` describes a parameter `{name}` that it does not have", self.op));
        index.and_then(|index| u32::try_from(index).ok()).ok_or_else(none)
    }

    /// The parameter of an access and where in its argument it begins.
    fn within(&self, access: &Access) -> Result<(u32, u64), Malformed> {
        let param = self.param(access.param)?;
        let inside = |range: &&BufferRange| {
            let end = range.offset.checked_add(range.len());
            range.buffer == access.buffer
                && access.range.start <= access.range.end
                && end.is_some_and(|end| access.range.end <= end)
        };
        let Arg::Buffer(range) = self.args.get(access.param) else { return Err(self.outside(access)) };
        let first = Some(range).filter(inside).and_then(|range| access.range.start.checked_sub(range.offset));
        Ok((param, first.ok_or_else(|| self.outside(access))?))
    }

    fn outside(&self, access: &Access) -> Malformed {
        let (op, param, range) = (self.op, access.param, &access.range);
        Malformed::new(format!(
            "`{op}` describes elements {range:?} of a buffer, beyond its argument `{param}`"
        ))
    }
}

/// Text that stays for good, each once.
fn lasting(text: &'static str) -> Result<&'static CStr, Malformed> {
    static KEPT: Mutex<BTreeMap<&str, &CStr>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = kept.get(text) {
        return Ok(text);
    }
    let leaked = leak_text(text)?;
    kept.insert(text, leaked);
    Ok(leaked)
}
