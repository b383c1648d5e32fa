//! Files made by hand, for the tests of this folder.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use bytemuck::NoUninit;
use squall_core::DType;

/// A file of these bytes in `folder`.
pub(super) fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// An `.npy` file with this text for a header.
pub(super) fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((header.len() as u16).to_le_bytes()),
        _ => bytes.extend((header.len() as u32).to_le_bytes()),
    }
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// A header's text.
pub(super) fn header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

/// A `.safetensors` file with this header.
pub(super) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// The bytes of elements, in the machine's order.
pub(super) fn bytes<T: NoUninit>(elements: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(elements).to_vec()
}

/// Any dtype.
pub(super) fn any_dtype() -> impl proptest::strategy::Strategy<Value = DType> {
    proptest::sample::select(DType::ALL)
}

/// Fails where `work` takes ten seconds: it hangs.
pub(super) fn in_time<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(10)).expect("an answer, not a hang")
}
