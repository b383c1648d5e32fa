//! squall on the CPU: host devices, and the collectives between the ranks of one process.
//!
//! The stand-in for GPUs: what runs here gives the results that it gives there, blocks where it blocks there, and is
//! refused where it is refused there. Nothing is simulated in time: a stream executes at once, in the thread of its rank,
//! and a collective is a meeting of the ranks' threads, which then share the work and read and write each other's
//! buffers in place. The cost of having no thread of its own: a rank computes nothing while it waits.
//!
//! Naming the crate (`use squall_host_backend as _;`) registers the backend `host` and the library `host`.

mod collective;
mod device;
mod library;
mod memory;
mod stream;

pub use device::HostBackend;
pub use library::HostLibrary;
