//! What machine this process is on.

use std::fs;
use std::net::{IpAddr, UdpSocket};

/// The name of the machine that this process is on.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What is equal for processes that see the same devices: the boot of the machine, and its name, which containers on one machine
/// have of their own.
pub(crate) fn identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", name(), boot.trim())
}

/// The address by which this machine reaches others, if it has one. Nothing is sent.
pub(crate) fn address() -> Option<IpAddr> {
    // An address for documentation, which routes as any that is far away.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}
