//! The index of a checkpoint: what it is of, and which files belong to it. A checkpoint without one is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use squall_core::{TaskGraph, Verified};

use crate::manifest::{Manifest, print};
use crate::resolve::Job;

/// The version of the format. Another is refused.
pub(super) const FORMAT: u64 = 1;

/// The index, as `index.json` holds it. What it tells of the job is compared when one is to go on from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Index {
    pub(super) format: u64,
    /// The version of squall that wrote it.
    pub(super) squall: String,
    /// The pipeline's name.
    pub(super) pipeline: String,
    /// Steps that were done.
    pub(super) step: u64,
    pub(super) job: JobPrint,
    /// One file a rank, in order.
    pub(super) ranks: Vec<RankFile>,
    /// The checksum of the index itself, worked out with nothing here.
    pub(super) crc32: String,
}

/// What makes a job the same job, in the terms that a user knows, and its plan's hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct JobPrint {
    world: u32,
    /// The kind of the devices.
    devices: String,
    seed: u64,
    /// The params as they are written, or as `--set` made them.
    params: BTreeMap<String, String>,
    /// What each buffer has of the host, as it is written: its `init` or `feed`, and its `upload`.
    contents: BTreeMap<String, String>,
    /// The plan hash.
    plan: String,
}

/// A rank's file: safetensors of this length and checksum, with these buffers in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankFile {
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) crc32: String,
    pub(super) buffers: Vec<Stored>,
}

/// A buffer of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
}

/// A checksum as the index writes it.
pub(super) fn crc32(sum: u32) -> String {
    format!("{sum:08x}")
}

/// The name of a rank's file.
pub(super) fn rank_file(rank: usize) -> String {
    format!("rank-{rank}.safetensors")
}

impl Index {
    /// The index of a job's checkpoints, but for what each has of its own: the step, lengths and checksums.
    pub(super) fn of(job: &Job<'_>, verified: &Verified) -> Index {
        let ranks = verified.graphs().iter().zip(verified.carried()).enumerate();
        Index {
            format: FORMAT,
            squall: env!("CARGO_PKG_VERSION").to_owned(),
            pipeline: job.manifest.name().to_owned(),
            step: 0,
            job: JobPrint::of(job, verified),
            ranks: ranks
                .map(|(rank, (graph, carried))| RankFile {
                    file: rank_file(rank),
                    buffers: stored(graph, &carried),
                    ..RankFile::default()
                })
                .collect(),
            crc32: String::new(),
        }
    }

    /// The text of the file.
    pub(super) fn text(&self) -> Result<String, serde_json::Error> {
        let unsummed = serde_json::to_string_pretty(&Index { crc32: String::new(), ..self.clone() })?;
        let crc32 = crc32(crc32fast::hash(unsummed.as_bytes()));
        Ok(serde_json::to_string_pretty(&Index { crc32, ..self.clone() })? + "\n")
    }

    /// Reads an index.
    ///
    /// # Errors
    /// What is wrong with it. Of another format that is said, whatever else it holds.
    pub(super) fn parse(text: &str) -> Result<Index, Unread> {
        #[derive(Deserialize)]
        struct Format {
            format: u64,
        }
        let damaged = |error: serde_json::Error| Unread::Damaged(error.to_string());
        let Format { format } = serde_json::from_str(text).map_err(damaged)?;
        if format != FORMAT {
            return Err(Unread::Format(format));
        }
        let index: Index = serde_json::from_str(text).map_err(damaged)?;
        // Not a byte is other than it was written.
        match index.text().map_err(damaged)? == text {
            true => Ok(index),
            false => Err(Unread::Damaged("its checksum is not that of its contents".to_owned())),
        }
    }

    /// In what the job of this checkpoint is another than that of `now`: in the user's terms where these tell, or else in the
    /// plans' hashes. Empty where it is the same.
    pub(super) fn differences(&self, now: &Index) -> Vec<String> {
        let (then, is) = (&self.job, &now.job);
        let mut found = Vec::new();
        let mut compare = |what: &str, then: &dyn ToString, is: &dyn ToString| {
            let (then, is) = (then.to_string(), is.to_string());
            if then != is {
                found.push(format!("{what} was {then} and is {is}"));
            }
        };
        compare("the world", &then.world, &is.world);
        compare("the kind of devices", &then.devices, &is.devices);
        compare("`seed`", &then.seed, &is.seed);
        let names: std::collections::BTreeSet<&String> = then.params.keys().chain(is.params.keys()).collect();
        let none = "not there".to_owned();
        for name in names {
            let value = |params: &BTreeMap<String, String>| params.get(name).unwrap_or(&none).clone();
            compare(&format!("the param `{name}`"), &value(&then.params), &value(&is.params));
        }
        for (name, now) in &is.contents {
            if let Some(then) = then.contents.get(name) {
                compare(&format!("what buffer `{name}` is given"), then, now);
            }
        }
        if found.is_empty() && then.plan != is.plan {
            found.push(format!("the plan was {} and is {}", then.plan, is.plan));
        }
        let names = |index: &Index| -> Vec<(String, Vec<Stored>)> {
            index.ranks.iter().map(|rank| (rank.file.clone(), rank.buffers.clone())).collect()
        };
        if found.is_empty() && names(self) != names(now) {
            let (then, is) = (&self.squall, &now.squall);
            found.push(format!("it holds other buffers: squall {then} wrote it, and this is {is}"));
        }
        found
    }
}

/// Why an index was not read.
#[derive(Debug, PartialEq)]
pub(super) enum Unread {
    /// It is of this version of the format.
    Format(u64),
    /// It is not as it was written.
    Damaged(String),
}

impl JobPrint {
    fn of(job: &Job<'_>, verified: &Verified) -> JobPrint {
        let Manifest { params, buffers, .. } = job.manifest;
        let params = params.iter().map(|param| (param.name.value.clone(), print::param(&param.value)));
        let contents = buffers.iter().map(|buffer| (buffer.name.value.clone(), print::contents(buffer)));
        JobPrint {
            world: job.world.size(),
            devices: job.graphs.first().map_or("", TaskGraph::device).to_owned(),
            seed: job.manifest.pipeline.seed.value,
            params: params.collect(),
            contents: contents.collect(),
            plan: format!("{:032x}", verified.plan_hash()),
        }
    }
}

fn stored(graph: &TaskGraph, carried: &[bool]) -> Vec<Stored> {
    let buffers = graph.buffers().iter().zip(carried).filter(|(_, carried)| **carried);
    buffers
        .map(|(decl, _)| Stored {
            name: decl.name.to_string(),
            dtype: decl.dtype.name().to_owned(),
            shape: decl.shape.to_vec(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let buffers = vec![Stored { name: "w".into(), dtype: "f32".into(), shape: vec![2, 3] }];
        let rank = RankFile { file: rank_file(0), bytes: 100, crc32: crc32(7), buffers };
        Index {
            format: FORMAT,
            squall: "0.1.0".into(),
            pipeline: "p".into(),
            step: 100,
            job: JobPrint {
                world: 1,
                devices: "host".into(),
                seed: 3,
                params: [("n".to_owned(), "4".to_owned())].into(),
                contents: [("w".to_owned(), "{ init = { fill = 1 } }".to_owned())].into(),
                plan: "00ff".into(),
            },
            ranks: vec![rank],
            crc32: String::new(),
        }
    }

    #[test]
    fn every_other_byte_shows() {
        let text = index().text().unwrap();
        let read = Index::parse(&text).unwrap();
        assert_eq!((read.step, &read.ranks), (100, &index().ranks));
        for at in 0..text.len() {
            for other in [b'0', b' ', b'x', b'9'] {
                let mut bytes = text.clone().into_bytes();
                if bytes[at] != other {
                    bytes[at] = other;
                    assert!(Index::parse(&String::from_utf8(bytes).unwrap()).is_err(), "{at}");
                }
            }
            assert!(Index::parse(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_format_is_told_whatever_it_holds() {
        assert_eq!(Index::parse("{ \"format\": 2, \"new\": [] }"), Err(Unread::Format(2)));
    }

    #[test]
    fn differences_are_told_in_the_users_terms() {
        let (then, mut now) = (index(), index());
        assert_eq!(then.differences(&now), Vec::<String>::new());
        now.job.plan = "00fe".into();
        assert_eq!(then.differences(&now), ["the plan was 00ff and is 00fe"]);
        now.job.params = [("n".to_owned(), "5".to_owned()), ("m".to_owned(), "1".to_owned())].into();
        now.job.world = 2;
        assert_eq!(
            then.differences(&now),
            [
                "the world was 1 and is 2",
                "the param `m` was not there and is 1",
                "the param `n` was 4 and is 5"
            ]
        );
        let mut now = index();
        now.ranks[0].buffers.clear();
        assert_eq!(then.differences(&now).len(), 1);
        now = index();
        now.job.seed = 4;
        now.job.devices = "cuda".into();
        assert_eq!(then.differences(&now).len(), 2);
    }
}
