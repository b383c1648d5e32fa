//! The host against the suite that every backend passes.

use squall_core::Registry;
use squall_core::conformance::{CASES, Target};
use squall_host_backend as _;

#[test]
fn host_conforms() {
    let registry = Registry::linked().unwrap();
    let target = Target::new(&registry, "host", "host").unwrap();
    let missing: Vec<_> = CASES.iter().filter_map(|case| case.missing(&target)).collect();
    assert!(missing.is_empty(), "the host has all that any case needs: {missing:#?}");
    let failures: Vec<String> = CASES.iter().filter_map(|case| case.check(&target).err()).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
