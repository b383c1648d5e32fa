//! Ranges of one unit that overlap, against a comparison of all pairs.

use std::ops::Range;

use proptest::prelude::*;
use squall_core::{BufferRange, DType, GroupSpec, codes};

use crate::job::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A group of sends (which read) and receives (which write) over ranges of two buffers. The buffers' sizes are
    /// such that starts, ends and empty ranges often coincide.
    #[test]
    fn as_by_comparing_all_pairs(members in prop::collection::vec((any::<bool>(), 0..2u32, 0..7u64, 0..7u64), 0..7)) {
        let members: Vec<(bool, u32, Range<u64>)> =
            members.into_iter().map(|(writes, buffer, a, b)| (writes, buffer, a.min(b)..a.max(b))).collect();
        let built = graphs(&world(2), "test", |g, rank| {
            let buffers = [g.buffer(f32s("x", 6)), g.buffer(f32s("y", 6))];
            let mut group = GroupSpec::new().from_origin(origin("group"));
            for (index, (writes, buffer, range)) in members.iter().enumerate() {
                let range = BufferRange {
                    buffer: buffers[*buffer as usize],
                    dtype: DType::F32,
                    offset: range.start,
                    shape: [range.end - range.start].into(),
                };
                let name = format!("member {index}");
                let op = if *writes { recv(&name, range, 1 - rank) } else { send(&name, range, 1 - rank) };
                group = group.with(op);
            }
            if rank == 0 {
                g.step(group);
            }
        });

        let clash = |a: &(bool, u32, Range<u64>), b: &(bool, u32, Range<u64>)| {
            (a.0 || b.0) && a.1 == b.1 && a.2.clone().any(|i| b.2.contains(&i))
        };
        let expected =
            (0..members.len()).any(|i| (0..i).any(|j| clash(&members[i], &members[j])));
        prop_assert_eq!(built.is_err(), expected);
        // What is reported is true: the two members named do clash.
        for problem in built.err().iter().flat_map(|problems| &problems.0) {
            prop_assert_eq!(problem.code, codes::OVERLAP);
            let member = |task: &Option<String>| -> usize { task.as_ref().unwrap()[7..].parse().unwrap() };
            let (a, b) = (member(&problem.primary.task), member(&problem.related[0].task));
            prop_assert!(a != b && clash(&members[a], &members[b]), "{}", problem);
        }
    }
}
