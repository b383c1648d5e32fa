//! The plan hash: a fingerprint of all that every rank will do.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::args::Arg;
use crate::buffer::BufferDecl;
use crate::graph::{Body, Node, Phase, TaskGraph};
use crate::scalar::Scalar;

/// Changes whenever what is hashed, or how, changes.
const VERSION: u64 = 2;

/// A hash over numbers and texts, each in a form of its own: `std`'s `Hash` promises the same form neither on every
/// machine nor in every build.
#[derive(Default)]
struct Fingerprint(SipHasher13);

impl Fingerprint {
    fn number(&mut self, number: impl Into<u64>) {
        self.0.write(&number.into().to_le_bytes());
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|&number| self.number(number));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.write(text.as_bytes());
    }

    fn part(&mut self, fingerprint: u128) {
        self.0.write(&fingerprint.to_le_bytes());
    }

    fn end(self) -> u128 {
        self.0.finish128().as_u128()
    }
}

pub(super) fn plan_hash(graphs: &[TaskGraph]) -> u128 {
    let mut job = Fingerprint::default();
    job.number(VERSION);
    job.number(graphs.len() as u64);
    // Of each place of each phase, the node that stood there on the rank before: mostly the very same one.
    let mut seen: [Vec<(*const Node, u128)>; 3] = Default::default();
    let mut last = LastList::default();
    let mut buffers: Option<(&Arc<Vec<BufferDecl>>, u128)> = None;
    for graph in graphs {
        job.number(graph.rank);
        job.text(&graph.device);
        let declared = match buffers {
            Some((other, hash)) if Arc::ptr_eq(other, &graph.buffers) => hash,
            _ => buffers_hash(&graph.buffers),
        };
        buffers = Some((&graph.buffers, declared));
        job.part(declared);
        for phase in Phase::ALL {
            let (nodes, seen) = (graph.tasks(phase), &mut seen[phase as usize]);
            job.number(nodes.len() as u64);
            for (place, node) in nodes.iter().enumerate() {
                let pointer = Arc::as_ptr(node);
                match seen.get_mut(place) {
                    Some((other, _)) if std::ptr::eq(*other, pointer) => {}
                    Some(slot) => *slot = (pointer, node_hash(node, &mut last)),
                    None => seen.push((pointer, node_hash(node, &mut last))),
                }
                job.part(seen[place].1);
            }
        }
        for comm in graph.world.comms() {
            if let Some(part) = graph.world.part(comm, graph.rank) {
                for number in [comm.0, part.index, part.rank, part.size()] {
                    job.number(number);
                }
            }
        }
    }
    job.end()
}

fn buffers_hash(buffers: &[BufferDecl]) -> u128 {
    let mut hash = Fingerprint::default();
    for decl in buffers {
        hash.text(&decl.name);
        hash.text(decl.dtype.name());
        hash.numbers(&decl.shape);
        hash.number(decl.upload as u8);
        hash.number(decl.download as u8);
    }
    hash.end()
}

/// The list that was hashed last. A matrix of all ranks is long, and the same for all of them.
type LastList = Option<(Arc<[i64]>, u128)>;

fn list_hash(list: &Arc<[i64]>, last: &mut LastList) -> u128 {
    if let Some((other, hash)) = last
        && Arc::ptr_eq(other, list)
    {
        return *hash;
    }
    let mut hash = Fingerprint::default();
    hash.number(list.len() as u64);
    list.iter().for_each(|n| hash.number(n.cast_unsigned()));
    let hash = hash.end();
    *last = Some((list.clone(), hash));
    hash
}

fn node_hash(node: &Node, last: &mut LastList) -> u128 {
    let mut hash = Fingerprint::default();
    match &node.body {
        Body::Kernel(task) => {
            hash.number(0u8);
            hash.text(task.kernel.name);
            hash.numbers(&task.grid.threads());
            hash.numbers(&task.grid.block().map(u64::from));
            task.args.iter().for_each(|arg| arg_hash(arg, &mut hash, last));
        }
        Body::Ops { ops, group } => {
            hash.number(1u8);
            hash.number(*group);
            hash.number(ops.len() as u64);
            for op in ops {
                hash.text(op.op.name());
                hash.text(op.op.library());
                hash.number(op.comm.0);
                op.args.iter().for_each(|arg| arg_hash(arg, &mut hash, last));
            }
        }
        Body::Swap(pair) => {
            hash.number(2u8);
            pair.iter().for_each(|buffer| hash.number(buffer.0));
        }
    }
    hash.end()
}

fn arg_hash(arg: &Arg, hash: &mut Fingerprint, last: &mut LastList) {
    // A number for the kind, then the value.
    match arg {
        Arg::Absent => hash.number(0u8),
        Arg::Buffer(range) => {
            hash.number(1u8);
            hash.number(range.buffer.0);
            hash.text(range.dtype.name());
            hash.number(range.offset);
            hash.numbers(&range.shape);
        }
        Arg::Scalar(Scalar::Int(n)) => hash.numbers(&[2, n.cast_unsigned()]),
        Arg::Scalar(Scalar::Float(x)) => hash.numbers(&[3, x.to_bits()]),
        Arg::Size(n) => hash.numbers(&[4, *n]),
        Arg::Word(word) => hash.numbers(&[5, u64::from(*word)]),
        Arg::Flag(flag) => hash.numbers(&[6, u64::from(*flag)]),
        Arg::Rank(rank) => hash.numbers(&[7, u64::from(*rank)]),
        Arg::List(list) => {
            hash.number(8u8);
            hash.part(list_hash(list, last));
        }
    }
}
