//! Kernels and collectives of your own, loaded by squall from a dylib.

#![cfg_attr(not(feature = "sdk"), no_std)]

pub mod abi;
#[cfg(feature = "sdk")]
pub mod convert;
#[cfg(feature = "sdk")]
#[doc(hidden)]
pub mod sdk;

#[cfg(feature = "sdk")]
pub use squall_core as core;

/// Exports what this crate has registered, as squall's plugins do. Stands once in the crate, in its `lib.rs`; does nothing
/// unless the crate's feature `dylib` is on.
#[cfg(feature = "sdk")]
#[macro_export]
macro_rules! export {
    () => {
        #[cfg(feature = "dylib")]
        const _: () = {
            static EXPORT: $crate::sdk::Export =
                $crate::sdk::Export::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));

            // SAFETY: a dylib of one plugin has no other symbol of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn squall_plugin(host: *const $crate::abi::Host) -> *const $crate::abi::Plugin {
                // SAFETY: the caller keeps the ABI.
                unsafe { EXPORT.entry(host) }
            }
        };
    };
}
