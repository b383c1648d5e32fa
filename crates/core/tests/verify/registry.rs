//! What cannot be registered beside something else, and what cannot be used inside an op.

use squall_core::registry::{Conflict, Item};
use squall_core::{Backend, Connect, Device, DeviceError, KernelDef, Library, Needs, Registry, Session, ops};

use crate::stub::op;

fn sum(library: &'static str, device: &'static str) -> Item {
    op("all_reduce", &ops::ALL_REDUCE, library, device, Needs::NONE)
}

/// What a registry says of the last of these, each with its origin.
fn last(items: &[(Item, &str)]) -> Result<(), Conflict> {
    let mut registry = Registry::default();
    let (last, rest) = items.split_last().unwrap();
    rest.iter().for_each(|(item, origin)| registry.add(item, origin).unwrap());
    registry.add(&last.0, last.1)
}

fn refused(items: &[(Item, &str)], says: &str) {
    assert_eq!(last(items).unwrap_err().to_string(), says);
}

struct Connected;

impl Library for Connected {
    fn name(&self) -> &'static str {
        "ring"
    }
    fn device(&self) -> &'static str {
        "test"
    }
    fn connect(&self, _: &Connect<'_>) -> Result<Vec<Session>, DeviceError> {
        Err(DeviceError::Unsupported("a test".to_string()))
    }
}

static KERNEL: KernelDef = KernelDef { name: "scale", ..KernelDef::EMPTY };

#[test]
fn two_of_one_name_are_refused_with_both_origins() {
    let kernel = Item::Kernel(&KERNEL);
    refused(&[(kernel, "a 1"), (kernel, "b 2")], "the kernel `scale` is registered twice: by a 1 and by b 2");
    refused(
        &[(sum("ring", "test"), "a 1"), (sum("ring", "test"), "b 2")],
        "the op `all_reduce` of the library `ring` on test devices is registered twice: by a 1 and by b 2",
    );
    assert!(matches!(last(&[(kernel, "a 1"), (kernel, "a 1")]), Err(Conflict::Twice { .. })));
}

#[test]
fn a_library_has_one_author_on_a_kind_of_device() {
    let send = op("send", &ops::SEND, "ring", "test", Needs::NONE);
    let two = "the library `ring` on test devices is brought by a 1 and by b 2; a library has one author";
    refused(&[(sum("ring", "test"), "a 1"), (send, "b 2")], two);
    // In either order of its connection and its ops.
    refused(&[(Item::Library(&Connected), "a 1"), (send, "b 2")], two);
    refused(&[(send, "a 1"), (Item::Library(&Connected), "b 2")], two);
    assert_eq!(
        last(&[(send, "a 1"), (Item::Library(&Connected), "a 1"), (sum("ring", "test"), "a 1")]),
        Ok(())
    );
    assert_eq!(last(&[(sum("ring", "test"), "a 1"), (sum("ring", "host"), "b 2")]), Ok(()));
    assert_eq!(last(&[(sum("ring", "test"), "a 1"), (sum("tree", "test"), "b 2")]), Ok(()));
}

#[test]
fn ops_of_one_name_take_the_same() {
    let (top, other) = (
        op("top", &ops::BROADCAST, "a", "test", Needs::NONE),
        op("top", &ops::ALL_REDUCE, "b", "host", Needs::NONE),
    );
    refused(&[(top, "a 1"), (other, "b 2")], "the op `top` takes other arguments by b 2 than by a 1");
    refused(
        &[(op("reduce", &ops::ALL_REDUCE, "ring", "test", Needs::NONE), "a 1")],
        "the op `reduce` takes other arguments by a 1 than by squall",
    );
    assert_eq!(last(&[(top, "a 1"), (op("top", &ops::BROADCAST, "b", "host", Needs::NONE), "b 2")]), Ok(()));
}

#[test]
fn what_was_refused_leaves_no_trace() {
    let mut registry = Registry::default();
    registry.add(&sum("ring", "test"), "a 1").unwrap();
    let copy = registry.clone();
    registry.add(&sum("ring", "test"), "b 2").unwrap_err();
    assert_eq!(registry.ops().map(|(_, origin)| origin).collect::<Vec<_>>(), ["a 1"]);
    assert_eq!(copy.ops().count(), 1);
}

struct Kind;

impl Backend for Kind {
    fn kind(&self) -> &'static str {
        "test"
    }
    fn default_library(&self) -> &'static str {
        "right"
    }
    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(None)
    }
    fn repeats(&self) -> bool {
        true
    }
    fn captures(&self) -> bool {
        false
    }
    fn open(&self, _: u32) -> Result<std::sync::Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Unsupported("a test".to_string()))
    }
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What is said of an op by `library` that uses these, where the default library serves `all_reduce`, and `send` with others inside it.
fn used(library: &'static str, uses: &'static [&'static str]) -> Result<Vec<&'static str>, String> {
    let mut registry = Registry::default();
    let needs = |uses| Needs { uses, ..Needs::NONE };
    for item in [
        Item::Backend(&Kind),
        sum("right", "test"),
        op("send", &ops::SEND, "right", "test", needs(&["all_reduce"])),
        op("recv", &ops::RECV, "other", "test", Needs::NONE),
        sum("other", "test"),
    ] {
        registry.add(&item, "this test").unwrap();
    }
    let Item::Op(user) = op("user", &ops::ALL_REDUCE, library, "test", needs(uses)) else {
        return Ok(Vec::new());
    };
    let used = registry.used_by(user).map_err(|error| error.to_string())?;
    Ok(used.iter().map(|op| op.library()).collect())
}

#[test]
fn what_an_op_uses_is_squalls_own_by_the_default_library() {
    assert_eq!(used("mine", &[]), Ok(vec![]));
    assert_eq!(used("mine", &["all_reduce"]), Ok(vec!["right"]));
    let says = |library, uses, why: &str| {
        let error = used(library, uses).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    says(
        "mine",
        &["all_reduce", "user"],
        "`user` by the library `mine` uses `user` inside itself, which is not one of squall's own ops",
    );
    says(
        "mine",
        &["recv"],
        "but the library `right` does not serve `recv` on test devices; served by `other`",
    );
    says("mine", &["scatter"], "but no library serves `scatter` on test devices");
    says("right", &["all_reduce"], "which is of its own library");
    says("mine", &["send"], "which is made of other ops itself");
}
