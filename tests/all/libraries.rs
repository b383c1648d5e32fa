//! What a run tells of the libraries behind its devices.

use squall_core::Interrupt;
use squall_runner::manifest::{devices::Devices, parse_bytes};
use squall_runner::run::{Readings, Request, Watcher};

use crate::disturbed::faultless;

/// What was opened for the devices stands in the summary, and what is amiss with it is told.
#[test]
fn a_run_says_which_libraries_it_used() {
    struct Notes(Vec<String>);
    impl Watcher for Notes {
        fn note(&mut self, note: &str) {
            self.0.push(note.to_string());
        }
        fn begin(&mut self, _: u64, _: &Interrupt) {}
        fn readings(&mut self, _: &Readings) {}
    }
    let text = "manifest = 1\n[buffer.x]\ndtype = \"f32\"\nshape = [4]\n[[task]]\nkernel = \"fill\"\n\
                args = { dst = \"x\", value = 1.0 }\ngrid = { threads = 4, block = 32 }\n";
    let (manifest, _) = parse_bytes(text.as_bytes()).unwrap();
    let run = |devices: &str| {
        let devices = Devices::parse(devices).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let request = Request {
            manifest: &manifest,
            folder: folder.path(),
            file: None,
            devices: Some(&devices),
            steps: None,
            process: None,
        };
        let mut notes = Notes(Vec::new());
        (squall_runner::run::run(&faultless(), &request, &mut notes).unwrap().libraries, notes.0)
    };
    assert_eq!(run("host:0"), (Vec::new(), Vec::new()));
    let (libraries, notes) = run("cuda:0");
    assert_eq!(libraries, ["stand-in 1.0 in nowhere", "warning: it is a stand-in"]);
    assert_eq!(notes, ["it is a stand-in"]);
}
