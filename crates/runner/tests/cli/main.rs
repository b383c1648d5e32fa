//! The command `squall` as its users meet it: the real binary, each time in a temporary folder of its own.
//!
//! | module | asks |
//! |---|---|
//! | [`harness`] | (folders, files, runs of the binary and what they said) |
//! | [`statuses`] | which exit status each kind of end has, and where what is printed goes |
//! | [`refusals`] | what is said of manifests and command lines that cannot be |
//! | [`set`] | `--set` |
//! | [`data`] | data files that are missing, wrong, or no files |
//! | [`outputs`] | outputs: before the first step, whole or not at all, never over an input |
//! | [`running`] | steps, feeds, watched values, the summary, the progress bar |
//! | [`explain`] | `explain` |
//! | [`feeding`] | feeds, epochs, slices, conversions, stops |
//! | [`checkpoints`] | `[checkpoint]` and `run --resume` |
//! | [`comparing`] | `compare` |
//! | [`signals`] | Ctrl-C and termination, at every time |
//! | [`libraries`] | when the GPUs' libraries are opened, and what is said where they are missing or broken |
//! | [`lists`] | `list` and `doctor`; exactly which kernels and ops are linked |
//! | [`plans`] | `plan` |
//! | [`processes`] | several processes: who a process is, and the meeting |
//! | [`worlds`] | `check` of many numbers of ranks |

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod checkpoints;
mod comparing;
mod data;
mod explain;
mod feeding;
mod harness;
#[cfg(target_os = "linux")]
mod libraries;
mod lists;
mod outputs;
mod plans;
mod processes;
mod refusals;
mod running;
mod set;
// Whether a process is at work is seen in /proc.
#[cfg(target_os = "linux")]
mod signals;
mod statuses;
mod worlds;
