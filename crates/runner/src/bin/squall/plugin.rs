//! `squall plugin`: looks at a plugin.

use std::io::Write as _;

use squall_core::Registry;
use squall_runner::plugin::{self, Wanted};
use squall_runner::render::count;
use squall_runner::trials::{Outcome, try_all};

use crate::args::{PluginArgs, PluginWhat};
use crate::list::inside;
use crate::output;

pub(crate) fn plugin(registry: &Registry, args: &PluginArgs) -> u8 {
    let PluginWhat::Check { path, plugins } = &args.what;
    let wanted: Vec<Wanted> = plugins.plugin.iter().chain([path]).map(|path| Wanted::option(path)).collect();
    let loaded = match plugin::load(registry, &wanted) {
        Ok(loaded) => loaded,
        Err(problems) => {
            output::diagnostics("--plugin", "", &problems.0);
            return 2;
        }
    };
    let Some(origin) = loaded.origins.last() else { return output::fail(2, "there is no plugin") };
    if output::result(&inside(&loaded.registry, origin)) != 0 {
        return 1;
    }
    let (mut tried, mut failed) = (0u64, 0u64);
    let leaked = try_all(&loaded.registry, origin, &mut |what, outcome| {
        let line = match outcome {
            Outcome::Passed => format!("ok       {what}"),
            Outcome::LeftOut(why) => format!("left out {what}: {why}"),
            Outcome::Failed(why) => {
                failed += 1;
                format!("FAILED   {what}: {why}")
            }
        };
        tried += 1;
        // As it goes, since some take a while; who stopped reading is told by the status.
        let _ = writeln!(std::io::stdout(), "{line}");
    });
    if tried == 0 {
        return output::fail(
            1,
            "it brings no kernel and no op: is `register_op!` or `register_kernel!` there?",
        );
    }
    let status = match failed {
        0 => output::result(&format!("{} held\n", count(tried, "trial"))),
        _ => output::fail(1, &format!("{} of {} failed", failed, count(tried, "trial"))),
    };
    if leaked {
        // Not through the exit handlers: a thread is still in the plugin.
        signal_hook::low_level::exit(status.into());
    }
    status
}
