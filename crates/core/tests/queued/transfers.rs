//! Contents between steps go through one piece of staging memory.

use std::sync::Arc;

use squall_core::{
    BufferDecl, BufferId, DType, Download, GroupError, Options, PlanGroup, TaskGraph, Upload, World, verify,
};

use crate::device::{Act, Gpu, Refusal, Watched};
use crate::{ALWAYS, act, registry};

const MIB: usize = 1 << 20;

/// A rank with buffers of so many bytes.
fn holding(sizes: &[u64]) -> (PlanGroup, Arc<Watched>) {
    let (registry, world) = (registry(), Arc::new(World::new(1).unwrap()));
    let mut graph = TaskGraph::builder(&registry, &world, 0, "host");
    for (index, &bytes) in sizes.iter().enumerate() {
        let decl = BufferDecl::new(&format!("x{index}"), DType::U8, [bytes]);
        let x = graph.buffer(decl.upload(Upload::First).download(Download::Last));
        graph.step(act(0, ALWAYS, Refusal::Error).arg("data", x).named(format!("use {index}")));
    }
    let (gpu, watched) = Gpu::watched(0, |_, _| Act::Nothing);
    let verified = verify(vec![graph.build().unwrap()]).unwrap();
    (PlanGroup::new(&registry, verified, &[gpu], Options::default()).unwrap(), watched)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

#[test]
fn transfers_share_a_piece_of_staging_however_many_they_are() {
    let (mut group, watched) = holding(&[100, 40]);
    for round in 0..10 {
        group.write(0, BufferId(0), &[round; 100]).unwrap();
        group.write(0, BufferId(1), &[round + 100; 40]).unwrap();
        assert_eq!(group.read::<u8>(0, BufferId(0)).unwrap(), [round; 100]);
        assert_eq!(group.read::<u8>(0, BufferId(1)).unwrap(), [round + 100; 40]);
    }
    assert_eq!(*watched.staging.lock().unwrap(), [100]);
}

#[test]
fn a_large_buffer_goes_through_it_in_pieces() {
    let sizes = [3 * 16 * MIB, 2 * 16 * MIB + 5, 7];
    let (mut group, watched) = holding(&sizes.map(|bytes| bytes as u64));
    for (index, bytes) in sizes.into_iter().enumerate() {
        let (buffer, contents) = (BufferId(index as u32), pattern(bytes));
        group.write(0, buffer, &contents).unwrap();
        assert!(group.read::<u8>(0, buffer).unwrap() == contents, "{index}");
    }
    assert_eq!(*watched.staging.lock().unwrap(), [16 * MIB as u64]);
}

/// A transfer that fails in the middle is told, and leaves nothing under way.
#[test]
fn a_piece_that_cannot_be_copied_is_told() {
    let bytes = 2 * 16 * MIB + 5;
    let (mut group, watched) = holding(&[bytes as u64]);
    let contents = pattern(bytes);
    for copies in 0..3 {
        *watched.copies_left.lock().unwrap() = Some(copies);
        let refused = |error: GroupError| {
            assert_eq!(error.to_string(), "buffer `x0` on rank 0: it cannot be copied");
        };
        let waits = Watched::of(&watched.waits);
        refused(group.write(0, BufferId(0), &contents).unwrap_err());
        assert_eq!(Watched::of(&watched.waits) - waits, copies + 1, "the refused one, too, is waited for");
        *watched.copies_left.lock().unwrap() = Some(copies);
        refused(group.read::<u8>(0, BufferId(0)).unwrap_err());
        *watched.copies_left.lock().unwrap() = None;
        group.write(0, BufferId(0), &contents).unwrap();
        assert!(group.read::<u8>(0, BufferId(0)).unwrap() == contents);
    }
}
