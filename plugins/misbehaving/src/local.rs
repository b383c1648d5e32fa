//! An op whose threads have something to take down when they end: what made plugins crash that were unloaded. Registered in a private
//! module, from which nothing is exported.

use std::cell::RefCell;

use squall_plugin::core::register_op;

use crate::Op;

register_op!(&LEAVES_A_DESTRUCTOR);

static LEAVES_A_DESTRUCTOR: Op = Op {
    name: "leaves_a_destructor",
    example: include_str!("../examples/leaves_a_destructor.toml"),
    enqueue: |_| {
        STEPS.with_borrow_mut(|steps| steps.0.push(1));
        Ok(())
    },
    ..Op::QUIET
};

thread_local! {
    static STEPS: RefCell<Steps> = const { RefCell::new(Steps(Vec::new())) };
}

/// One a step, on the heap of the thread.
struct Steps(Vec<u8>);

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.clear();
    }
}
