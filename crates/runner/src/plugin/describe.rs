//! Where an op of a plugin says what it touches and whom it meets.

use std::ffi::{c_char, c_void};

use squall_core::{Access, Arg, ArgError, Args, Description, Matched, Meeting, Message, Share, Signature};
use squall_plugin::abi::{self, Header, NO_PARAM, NO_PLACE, status};
use squall_plugin::convert::{self, ArgList, Malformed, dtype, mode, read_arg_error, text};

use super::guarded;
use super::op::LoadedOp;

/// What a plugin has told so far.
struct Told<'a> {
    op: &'static str,
    args: &'a Args<'a>,
    description: Description,
    /// The first thing that cannot be.
    malformed: Option<Malformed>,
}

impl LoadedOp {
    /// Asks the plugin.
    pub(super) fn described(&self, describe: DescribeFn, args: &Args<'_>) -> Result<Description, ArgError> {
        let wrong = |malformed: Malformed| {
            ArgError::new("", format!("is described wrongly by {}: {malformed}", self.plugin))
        };
        let list = ArgList::new(args.values).map_err(wrong)?;
        let table = list.table(args.comm_rank, args.comm_size);
        let mut told = Told { op: self.name, args, description: Description::default(), malformed: None };
        let to = abi::Description {
            header: Header::of::<abi::Description>(),
            cx: (&raw mut told).cast::<c_void>(),
            access: Some(access),
            collective: Some(collective),
            number: Some(number),
            real: Some(real),
            dtype: Some(a_dtype),
            word: Some(word),
            numbers: Some(numbers),
            share: Some(share),
            send: Some(send),
            recv: Some(recv),
        };
        let mut error = abi::Error::EMPTY;
        // SAFETY: the function is the plugin's own for this table; what it is given lives for the call.
        let status = unsafe { describe(self.table, &raw const table, &raw const to, &raw mut error) };
        match (status, told.malformed) {
            (status::OK, None) => Ok(told.description),
            (status::OK, Some(malformed)) => Err(wrong(malformed)),
            _ => {
                let error = read_arg_error(status, &error, args.params);
                match status {
                    status::ARGUMENT => Err(error),
                    // It did not judge the arguments: it failed.
                    _ => Err(ArgError { message: format!("{}: {}", self.plugin, error.message), ..error }),
                }
            }
        }
    }
}

pub(super) type DescribeFn =
    unsafe extern "C" fn(*const abi::Op, *const abi::Args, *const abi::Description, *mut abi::Error) -> i32;

/// Adds to what was told, unless something before was wrong.
fn tell(to: *const abi::Description, add: impl FnOnce(&mut Told<'_>) -> Result<(), Malformed>) {
    guarded(|| {
        // SAFETY: the ABI: the plugin gives back the table of this call, whose `cx` is what `described` put there.
        let Some(told) = (unsafe { to.as_ref().and_then(|to| to.cx.cast::<Told<'_>>().as_mut()) }) else {
            return;
        };
        if told.malformed.is_none() {
            told.malformed = add(told).err();
        }
    });
}

/// Adds a value to the signature of the collective that was told last.
fn tell_field(
    to: *const abi::Description,
    name: *const c_char,
    value: impl FnOnce() -> Result<Matched, Malformed>,
) {
    tell(to, |told| {
        // SAFETY: the ABI: names stay for good.
        let name: &'static str = unsafe { text(name, "the name of a value") }?;
        match told.description.meetings.last_mut() {
            Some(Meeting::Collective(signature)) => signature.fields.push((name, value()?)),
            _ => return Err(Malformed(format!("it tells the value `{name}` of no collective"))),
        }
        Ok(())
    });
}

unsafe extern "C" fn access(to: *const abi::Description, param: u32, first: u64, count: u64, code: u32) {
    tell(to, |told| {
        let name = param_name(told, param)?;
        let Some(Arg::Buffer(range)) = told.args.values.get(param as usize) else {
            return Err(Malformed(format!("it touches `{name}`, which is no buffer here")));
        };
        let end = first.checked_add(count).filter(|&end| end <= range.len()).ok_or_else(|| {
            Malformed(format!(
                "it touches {count} elements of `{name}` from {first} on, which has {}",
                range.len()
            ))
        })?;
        let elements = range.offset + first..range.offset + end;
        let access = Access { param: name, buffer: range.buffer, range: elements, mode: mode(code)? };
        told.description.accesses.push(access);
        Ok(())
    });
}

fn param_name(told: &Told<'_>, param: u32) -> Result<&'static str, Malformed> {
    let found = told.args.params.get(param as usize).map(|param| param.name);
    found.ok_or_else(|| Malformed(format!("it names parameter {param} of {}", told.args.params.len())))
}

unsafe extern "C" fn collective(to: *const abi::Description, op: *const c_char) {
    tell(to, |told| {
        let op = match op.is_null() {
            true => told.op,
            // SAFETY: the ABI: it stays for good.
            false => unsafe { text(op, "a collective's name") }?,
        };
        let signature = Signature { op, fields: Vec::new(), share: None };
        told.description.meetings.push(Meeting::Collective(Box::new(signature)));
        Ok(())
    });
}

unsafe extern "C" fn number(to: *const abi::Description, name: *const c_char, value: i64) {
    tell_field(to, name, || Ok(Matched::Number(value.into())));
}

unsafe extern "C" fn real(to: *const abi::Description, name: *const c_char, value: f64) {
    tell_field(to, name, || Ok(Matched::Float(value.to_bits())));
}

unsafe extern "C" fn a_dtype(to: *const abi::Description, name: *const c_char, value: u32) {
    tell_field(to, name, || Ok(Matched::DType(dtype(value)?)));
}

unsafe extern "C" fn word(to: *const abi::Description, name: *const c_char, value: *const c_char) {
    // SAFETY: the ABI: it stays for good.
    tell_field(to, name, || Ok(Matched::Word(unsafe { text(value, "a word that must match") }?)));
}

unsafe extern "C" fn numbers(
    to: *const abi::Description,
    name: *const c_char,
    values: *const i64,
    count: u64,
) {
    tell_field(to, name, || {
        // SAFETY: the ABI: so many numbers, for the call.
        Ok(Matched::Numbers(unsafe { convert::numbers(values, count, "numbers that must match") }?))
    });
}

unsafe extern "C" fn share(
    to: *const abi::Description,
    part_param: u32,
    part: u64,
    whole_param: u32,
    whole: u64,
    place: u64,
) {
    tell(to, |told| {
        let part = (param_name(told, part_param)?, part);
        let whole = match whole_param {
            NO_PARAM => None,
            param => Some((param_name(told, param)?, whole)),
        };
        let place = (place != NO_PLACE).then_some(place);
        match told.description.meetings.last_mut() {
            Some(Meeting::Collective(signature)) => signature.share = Some(Share { part, whole, place }),
            _ => return Err(Malformed("it tells a share of no collective".to_string())),
        }
        Ok(())
    });
}

unsafe extern "C" fn send(to: *const abi::Description, peer: u32, count: u64, code: u32) {
    tell(to, |told| {
        let message = Message { peer, count, dtype: dtype(code)? };
        told.description.meetings.push(Meeting::Send(message));
        Ok(())
    });
}

unsafe extern "C" fn recv(to: *const abi::Description, peer: u32, count: u64, code: u32) {
    tell(to, |told| {
        let message = Message { peer, count, dtype: dtype(code)? };
        told.description.meetings.push(Meeting::Recv(message));
        Ok(())
    });
}
