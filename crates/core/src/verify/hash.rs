//! The plan hash: a fingerprint of all that every rank will do.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::args::Arg;
use crate::graph::{Body, Node, TaskGraph};
use crate::scalar::Scalar;

/// Changes whenever what is hashed, or how, changes.
const VERSION: u8 = 1;

pub(super) fn plan_hash(graphs: &[TaskGraph]) -> u128 {
    let mut job = SipHasher13::new();
    job.write_u8(VERSION);
    // Hash of the node that stood at this place of the phase on the rank before: mostly the very same node.
    let mut seen: [Vec<(*const Node, u128)>; 3] = Default::default();
    let mut buffers: Option<(&Arc<Vec<_>>, u128)> = None;
    for graph in graphs {
        job.write_u32(graph.rank);
        graph.device.hash(&mut job);
        let declared = match buffers {
            Some((other, hash)) if Arc::ptr_eq(other, &graph.buffers) => hash,
            _ => {
                let mut hasher = SipHasher13::new();
                for decl in graph.buffers.iter() {
                    (&decl.name, decl.dtype.name(), &decl.shape).hash(&mut hasher);
                    hasher.write_u8(decl.upload as u8);
                    hasher.write_u8(decl.download as u8);
                }
                hasher.finish128().as_u128()
            }
        };
        buffers = Some((&graph.buffers, declared));
        job.write_u128(declared);
        for (phase, seen) in graph.phases.iter().zip(&mut seen) {
            job.write_u64(phase.len() as u64);
            for (place, node) in phase.iter().enumerate() {
                let pointer = Arc::as_ptr(node);
                let hash = match seen.get(place) {
                    Some(&(other, hash)) if std::ptr::eq(other, pointer) => hash,
                    _ => node_hash(node),
                };
                match seen.get_mut(place) {
                    Some(slot) => *slot = (pointer, hash),
                    None => seen.push((pointer, hash)),
                }
                job.write_u128(hash);
            }
        }
        for comm in graph.world.comms() {
            if let Some(part) = graph.world.part(comm, graph.rank) {
                (part.index, part.rank, part.size()).hash(&mut job);
            }
        }
    }
    job.finish128().as_u128()
}

fn node_hash(node: &Node) -> u128 {
    let mut hasher = SipHasher13::new();
    match &node.body {
        Body::Kernel(task) => {
            (0u8, task.kernel.name, task.grid).hash(&mut hasher);
            task.args.iter().for_each(|arg| arg_hash(arg, &mut hasher));
        }
        Body::Ops { ops, group } => {
            (1u8, *group, ops.len() as u64).hash(&mut hasher);
            for op in ops {
                (op.op.name(), op.op.library(), op.comm).hash(&mut hasher);
                op.args.iter().for_each(|arg| arg_hash(arg, &mut hasher));
            }
        }
    }
    hasher.finish128().as_u128()
}

fn arg_hash(arg: &Arg, hasher: &mut impl Hasher) {
    match arg {
        Arg::Absent => hasher.write_u8(0),
        Arg::Buffer(range) => {
            (1u8, range.buffer, range.dtype.name(), range.offset, &range.shape).hash(hasher);
        }
        Arg::Scalar(Scalar::Int(i)) => (2u8, *i).hash(hasher),
        Arg::Scalar(Scalar::Float(x)) => (3u8, x.to_bits()).hash(hasher),
        Arg::Size(n) => (4u8, *n).hash(hasher),
        Arg::Word(word) => (5u8, *word).hash(hasher),
        Arg::Flag(flag) => (6u8, *flag).hash(hasher),
        Arg::Rank(rank) => (7u8, *rank).hash(hasher),
        Arg::List(list) => (8u8, list).hash(hasher),
    }
}
