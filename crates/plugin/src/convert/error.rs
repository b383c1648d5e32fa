//! Errors: a status and words.

use squall_core::{ArgError, DeviceError, OpError, ParamDef};

use super::{read_line, write_line};
use crate::abi::{self, NO_PARAM, status};

/// Writes why a device or what runs on it failed; returns the status.
pub fn write_device_error(error: &DeviceError, into: &mut abi::Error) -> i32 {
    *into = abi::Error::EMPTY;
    let (status, text) = match error {
        DeviceError::Aborted => (status::ABORTED, ""),
        DeviceError::Deadline => (status::DEADLINE, ""),
        DeviceError::Late(text) => (status::DEADLINE, text.as_str()),
        DeviceError::OutOfMemory { bytes, message, .. } => {
            into.bytes = *bytes;
            (status::OUT_OF_MEMORY, message.as_str())
        }
        DeviceError::Lost { message, .. } => (status::LOST, message.as_str()),
        DeviceError::Unsupported(text) => (status::UNSUPPORTED, text.as_str()),
        DeviceError::Failed(text) => (status::FAILED, text.as_str()),
        other => {
            write_line(&mut into.text, &other.to_string());
            return status::FAILED;
        }
    };
    write_line(&mut into.text, text);
    status
}

/// The error of a function that returned `status`, not [`status::OK`], about `device`.
pub fn read_device_error(status: i32, error: &abi::Error, device: &str) -> DeviceError {
    let text = read_line(&error.text);
    match status {
        status::ABORTED => DeviceError::Aborted,
        status::DEADLINE if text.is_empty() => DeviceError::Deadline,
        status::DEADLINE => DeviceError::Late(text),
        status::OUT_OF_MEMORY => {
            DeviceError::OutOfMemory { device: device.to_string(), bytes: error.bytes, message: text }
        }
        status::LOST => DeviceError::Lost { device: device.to_string(), message: text },
        status::UNSUPPORTED => DeviceError::Unsupported(text),
        _ if text.is_empty() => {
            DeviceError::Failed(format!("it failed without a word, with status {status}"))
        }
        _ => DeviceError::Failed(text),
    }
}

/// Writes which argument is wrong; returns the status. `params` are those of the task. Of a parameter that is not among them the name is
/// put before the message.
pub fn write_arg_error(error: &ArgError, params: &[ParamDef], into: &mut abi::Error) -> i32 {
    *into = abi::Error::EMPTY;
    let index = params.iter().position(|param| param.name == error.param);
    match index.and_then(|index| u32::try_from(index).ok()) {
        Some(index) => {
            into.param = index;
            write_line(&mut into.text, &error.message);
        }
        None if error.param.is_empty() => write_line(&mut into.text, &error.message),
        None => write_line(&mut into.text, &error.to_string()),
    }
    write_line(&mut into.help, error.help.as_deref().unwrap_or(""));
    status::ARGUMENT
}

/// The error of a check that returned `status`, not [`status::OK`]. Where no parameter is at fault, or the check itself failed,
/// [`ArgError::param`] is empty.
pub fn read_arg_error(status: i32, error: &abi::Error, params: &[ParamDef]) -> ArgError {
    let param = if status == status::ARGUMENT { param(error, params) } else { None };
    let (text, help) = (read_line(&error.text), read_line(&error.help));
    let message = match status {
        status::ARGUMENT if !text.is_empty() => text,
        status::ARGUMENT => "it is wrong".to_string(),
        _ => read_device_error(status, error, "the device").to_string(),
    };
    ArgError { param: param.unwrap_or(""), message, help: (!help.is_empty()).then_some(help) }
}

/// Writes why a batch could not be made ready; returns the status. `params` gives those of a member of the batch.
pub fn write_op_error<'a>(
    error: &OpError,
    params: impl FnOnce(usize) -> &'a [ParamDef],
    into: &mut abi::Error,
) -> i32 {
    match error {
        OpError::Device(error) => write_device_error(error, into),
        OpError::Arg { member, error } => {
            let status = write_arg_error(error, params(*member), into);
            into.member = u32::try_from(*member).unwrap_or(0);
            status
        }
        other => {
            *into = abi::Error::EMPTY;
            write_line(&mut into.text, &other.to_string());
            status::FAILED
        }
    }
}

/// The error of an [`Op::prepare`](abi::Op::prepare) that returned `status`, not [`status::OK`], on `device`. `params` gives those of a
/// member of the batch, empty where it has no such member.
pub fn read_op_error<'a>(
    status: i32,
    error: &abi::Error,
    device: &str,
    params: impl FnOnce(usize) -> &'a [ParamDef],
) -> OpError {
    if status == status::ARGUMENT {
        let member = error.member as usize;
        let params = params(member);
        if param(error, params).is_some() {
            return OpError::Arg { member, error: read_arg_error(status, error, params) };
        }
    }
    OpError::Device(read_device_error(status, error, device))
}

fn param(error: &abi::Error, params: &[ParamDef]) -> Option<&'static str> {
    if error.param == NO_PARAM { None } else { params.get(error.param as usize).map(|param| param.name) }
}

#[cfg(test)]
mod tests {
    use squall_core::{DType, Type};

    use super::*;

    const PARAMS: &[ParamDef] = &[ParamDef::flag("a", ""), ParamDef::read("b", Type::Is(DType::F32), "")];

    #[test]
    fn device_errors_come_back_as_they_were() {
        let device = "cuda:1".to_string();
        for error in [
            DeviceError::Aborted,
            DeviceError::Deadline,
            DeviceError::Late("it waited for rank 1".into()),
            DeviceError::OutOfMemory { device: device.clone(), bytes: u64::MAX, message: "full".into() },
            DeviceError::Lost { device: device.clone(), message: "a wrong address".into() },
            DeviceError::Unsupported("no".into()),
            DeviceError::Failed("größer".into()),
        ] {
            let mut written = abi::Error::EMPTY;
            let status = write_device_error(&error, &mut written);
            assert_eq!(read_device_error(status, &written, &device), error);
        }
        let silent = read_device_error(-7, &abi::Error::EMPTY, &device).to_string();
        assert_eq!(silent, "it failed without a word, with status -7");
    }

    #[test]
    fn long_words_are_cut_and_end() {
        let mut written = abi::Error::EMPTY;
        write_device_error(&DeviceError::Failed("€".repeat(300)), &mut written);
        assert_eq!(written.text.last(), Some(&0));
        assert_eq!(read_line(&written.text), "€".repeat(255));
    }

    #[test]
    fn arguments_at_fault_come_back_by_name() {
        let error = OpError::Arg { member: 3, error: ArgError::new("b", "is odd").with_help("make it even") };
        let mut written = abi::Error::EMPTY;
        let status = write_op_error(&error, |_| PARAMS, &mut written);
        assert_eq!((written.param, written.member), (1, 3));
        assert_eq!(read_op_error(status, &written, "host:0", |_| PARAMS), error);
        let lone = ArgError::new("b", "is odd").with_help("make it even");
        assert_eq!(read_arg_error(status, &written, PARAMS), lone);

        // Of a member, or a parameter, that is not there.
        let failed = OpError::Device(DeviceError::Failed("is odd".into()));
        assert_eq!(read_op_error(status, &written, "host:0", |_| &[]), failed);
        let status = write_arg_error(&ArgError::new("z", "is odd"), PARAMS, &mut written);
        assert_eq!(written.param, NO_PARAM);
        assert_eq!(read_arg_error(status, &written, PARAMS), ArgError::new("", "`z`: is odd"));
        let failed = write_device_error(&DeviceError::Failed("panicked".into()), &mut written);
        assert_eq!(read_arg_error(failed, &written, PARAMS), ArgError::new("", "panicked"));
    }
}
