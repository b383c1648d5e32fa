//! What a GPU is and how full it is, for people.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use squall_core::DeviceError;

use crate::compile::Arch;
use crate::context::{Context, attribute_of};
use crate::driver::{self, Driver};

/// What a device is, in a line: `cuda:0 NVIDIA H200, compute capability 9.0, 143771 MiB, bus 0000:19:00.0, GPU-…`.
pub(crate) fn describe(ordinal: u32) -> Result<String, DeviceError> {
    Driver::get()?;
    let id = format!("cuda:{ordinal}");
    let failed = |call: &str, result| driver::check(&id, call, result);
    let (mut device, mut bytes, mut uuid) = (0, 0, sys::CUuuid { bytes: [0; 16] });
    let (mut name, mut bus): ([c_char; 256], [c_char; 32]) = ([0; 256], [0; 32]);
    // SAFETY: the driver is initialised; each call writes no more than the place given, ending strings with zero.
    unsafe {
        failed("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as i32))?;
        failed("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
        failed("cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device))?;
        failed("cuDeviceGetUuid", sys::cuDeviceGetUuid_v2(&mut uuid, device))?;
        failed("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut bytes, device))?;
    }
    let text = |chars: &[c_char]| {
        // SAFETY: the driver ended the string within the array.
        unsafe { CStr::from_ptr(chars.as_ptr()) }.to_string_lossy().into_owned()
    };
    let Arch(major, minor) = architecture_of(&id, device)?;
    let uuid: Vec<String> = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    let [a, b, c, d, e] =
        [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(|part| part.concat());
    Ok(format!(
        "{id} {}, compute capability {major}.{minor}, {} MiB, bus {}, GPU-{a}-{b}-{c}-{d}-{e}",
        text(&name),
        bytes >> 20,
        text(&bus)
    ))
}

/// A device's architecture.
pub(crate) fn architecture(ordinal: u32) -> Result<Arch, DeviceError> {
    Driver::get()?;
    let (id, mut device) = (format!("cuda:{ordinal}"), 0);
    // SAFETY: the driver is initialised; `device` is written.
    driver::check(&id, "cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    architecture_of(&id, device)
}

/// The same of a device that is at hand.
pub(crate) fn architecture_of(id: &str, device: sys::CUdevice) -> Result<Arch, DeviceError> {
    Ok(Arch(
        attribute_of(id, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute_of(id, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Bytes of a GPU's memory that are free, and that there are, of all processes on it.
///
/// # Errors
/// Without a driver or without that device.
pub fn memory(ordinal: u32) -> Result<(u64, u64), DeviceError> {
    let context = Context::get(ordinal)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the context is current; both places are written.
    context.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok((free as u64, total as u64))
}
