//! `squall new`: the beginning of something of one's own.

use std::path::Path;

use squall_core::Registry;
use squall_runner::scaffold;

use crate::args::{NewArgs, NewWhat};
use crate::output;

pub(crate) fn new(registry: &Registry, args: &NewArgs) -> u8 {
    let NewWhat::Plugin { name, squall } = &args.what;
    match scaffold::plugin(registry, Path::new("."), name, squall.as_deref()) {
        Ok(folder) => output::result(&format!(
            "wrote {0}: the op is in {0}/src/lib.rs, and {0}/README.md says how to build, check and run it\n",
            folder.strip_prefix(".").unwrap_or(&folder).display()
        )),
        Err(error) => output::fail(2, &error.to_string()),
    }
}
