//! Runs a manifest: parse, resolve, verify, bind, execute. The command `squall` is a thin layer over this library.
//!
//! ```text
//! text ─manifest::parse→ Manifest ─resolve::resolve→ Job, a graph per rank ─squall_core::verify→ Verified
//!     ─run::run→ Summary, and the files it saved
//! ```
//!
//! [`run::run`] does all of it from the manifest on, and [`compare::compare`] on two backends at once. A program that wants no
//! devices stops earlier: parsing, resolving and verifying need none.
//!
//! # In a program of your own
//! With a kernel of its own: a static descriptor, registered, which a manifest then names as any other.
//!
//! ```
//! use std::path::Path;
//!
//! use squall_core::{Cover, DType, HostCall, Interrupt, KernelDef, ParamDef, Registry, Type, register_kernel};
//! use squall_runner::manifest;
//! use squall_runner::run::{self, Readings, Request, Watcher};
//! // What is linked registers itself, and a crate that nothing names is not linked.
//! use squall_host_backend as _;
//! use squall_kernels_std as _;
//!
//! static TRIPLE: KernelDef = KernelDef {
//!     name: "triple",
//!     params: &[ParamDef::read_write("data", Type::Is(DType::F32), "[n]")],
//!     covers: &[Cover::Len("data")],
//!     host: Some(&triple),
//!     ..KernelDef::EMPTY
//! };
//! register_kernel!(&TRIPLE);
//!
//! fn triple(call: &HostCall<'_>) -> Result<(), String> {
//!     call.cells::<f32>("data")?.iter().take(call.launched()[0]).for_each(|x| x.set(3.0 * x.get()));
//!     Ok(())
//! }
//!
//! const MANIFEST: &str = r#"
//! manifest = 1
//! [world]
//! devices = "host:0..2"
//! [buffer.x]
//! dtype = "f32"
//! shape = [1]
//! init = { fill = "rank + 1" }
//! [[task]]
//! kernel = "triple"
//! args = { data = "x" }
//! grid = { threads = 1, block = 32 }
//! [[task]]
//! op = "all_reduce"
//! args = { buffer = "x", reduce = "sum" }
//! [[watch]]
//! name = "total"
//! value = "x"
//! "#;
//!
//! /// Is told how the run goes on, and here tells nobody.
//! struct Quiet;
//! impl Watcher for Quiet {
//!     fn note(&mut self, _: &str) {}
//!     fn begin(&mut self, _: u64, _: &Interrupt) {}
//!     fn readings(&mut self, _: &Readings) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::linked()?;
//! let (manifest, _warnings) = manifest::parse(MANIFEST).map_err(|errors| format!("{errors:?}"))?;
//! let request = Request { manifest: &manifest, folder: Path::new("."), file: None, devices: None, steps: None, process: None };
//! let summary = run::run(&registry, &request, &mut Quiet)?;
//! assert_eq!(summary.watched.of("total")[0].value.map(|value| value.as_f64()), Some(9.0)); // 3 × 1 + 3 × 2
//! # Ok(())
//! # }
//! ```
//!
//! The kernel is known to the program that links it. The ready-made `squall` gets at it through a plugin, which a manifest or the command
//! line names: see [`plugin`], and the crate `squall-plugin` for authors. [`run::run`] and [`compare::compare`] load what their manifest names; who
//! resolves a manifest without them calls [`plugin::load_named`] first.
//!
//! From a file, with its faults drawn as the command draws them:
//!
//! ```no_run
//! use squall_runner::render::{Color, render};
//! use squall_runner::{files, manifest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bytes = files::read_manifest("job.toml".as_ref())?;
//! match manifest::parse_bytes(&bytes) {
//!     Ok((manifest, _warnings)) => println!("{}", manifest.name()),
//!     Err(errors) => {
//!         eprint!("{}", render(&errors, "job.toml", &String::from_utf8_lossy(&bytes), Color::Never));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod codes;
pub mod compare;
pub mod explain;
pub mod expr;
pub mod files;
pub mod machine;
pub mod manifest;
pub mod plan;
pub mod plugin;
pub mod render;
pub mod resolve;
pub mod run;
pub mod scaffold;
mod suggest;
pub mod trials;
