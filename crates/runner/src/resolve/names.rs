//! What each name of a manifest stands for, by its place in its table.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use squall_core::CommId;

use super::depends::Depends;
use crate::expr::Value;
use crate::manifest::Manifest;
use crate::manifest::place::Formula;

/// A named thing of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// An entry of `[params]`.
    Param(usize),
    /// A communicator; its id in the world.
    Communicator(CommId),
    /// A buffer; its place is its id.
    Buffer(usize),
}

/// The names of a manifest, and which of them depend on the rank. For one world.
#[derive(Debug)]
pub struct Symbols<'m> {
    /// The manifest.
    pub manifest: &'m Manifest,
    table: BTreeMap<&'m str, Symbol>,
    /// What depends on the rank.
    pub(super) depends: Depends,
    /// The values of params that are the same on all ranks, each once it is worked out. A matrix of counts is long.
    pub(super) shared: Vec<OnceLock<Value>>,
}

impl<'m> Symbols<'m> {
    /// Reads the names off a manifest.
    pub fn new(manifest: &'m Manifest) -> Symbols<'m> {
        let mut table = BTreeMap::new();
        for (place, param) in manifest.params.iter().enumerate() {
            table.insert(param.name.value.as_str(), Symbol::Param(place));
        }
        // The world is communicator 0; the axes of the mesh come next, then the others in file order.
        let axes = manifest.world.mesh.iter().flat_map(|mesh| &mesh.axes).map(|axis| &axis.name);
        let communicators = manifest.communicators.iter().map(|communicator| &communicator.name);
        for (place, name) in axes.chain(communicators).enumerate() {
            table.insert(name.value.as_str(), Symbol::Communicator(CommId(place as u32 + 1)));
        }
        for (place, buffer) in manifest.buffers.iter().enumerate() {
            table.insert(buffer.name.value.as_str(), Symbol::Buffer(place));
        }
        let shared = vec![OnceLock::new(); manifest.params.len()];
        let mut symbols = Symbols { manifest, table, depends: Depends::default(), shared };
        symbols.depends = Depends::of(&symbols);
        symbols
    }

    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.table.get(name).copied()
    }

    /// Whether a name is that of an axis of the mesh.
    pub(super) fn is_axis(&self, name: &str) -> bool {
        let axes = self.manifest.world.mesh.as_ref().map_or(0, |mesh| mesh.axes.len());
        matches!(self.get(name), Some(Symbol::Communicator(comm)) if comm.0 as usize <= axes)
    }

    /// Whether a value may differ between ranks.
    pub(crate) fn depends_on_rank(&self, formula: &Formula) -> bool {
        self.depends.formula(self, formula)
    }

    /// The place of the buffer of that name.
    pub fn buffer(&self, name: &str) -> Option<usize> {
        match self.get(name) {
            Some(Symbol::Buffer(place)) => Some(place),
            _ => None,
        }
    }
}
