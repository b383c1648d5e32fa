//! What this build offers: backends, libraries, kernels and ops, gathered from what is linked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::{Backend, Device, DeviceError};
use crate::kernel::KernelDef;
use crate::library_op::{Library, LibraryOp};
use crate::ops::CONTRACTS;
use crate::param::ParamDef;
use crate::task::Task;

/// Something that a crate brings. Made by the `register_…!` macros, gathered by `inventory`.
#[doc(hidden)]
pub struct Registration {
    /// The crate and version that brings it.
    pub origin: &'static str,
    /// What it brings.
    pub item: Item,
}

/// What can be registered: by the `register_…!` macros, or with [`Registry::add`].
#[derive(Clone, Copy)]
pub enum Item {
    /// A kind of device.
    Backend(&'static dyn Backend),
    /// A library that needs communicators.
    Library(&'static dyn Library),
    /// A kernel.
    Kernel(&'static KernelDef),
    /// An op, as one library serves it on one kind of device.
    Op(&'static dyn LibraryOp),
}

inventory::collect!(Registration);

#[doc(hidden)]
pub use inventory;

#[doc(hidden)]
#[macro_export]
macro_rules! register_item {
    ($kind:ident: $($item:expr),+ $(,)?) => {
        $(
            $crate::registry::inventory::submit! {
                $crate::registry::Registration {
                    origin: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")),
                    item: $crate::registry::Item::$kind($item),
                }
            }
        )+
    };
}

/// Registers backends: `register_backend!(&HOST)`.
#[macro_export]
macro_rules! register_backend {
    ($($item:expr),+ $(,)?) => { $crate::register_item!(Backend: $($item),+); };
}

/// Registers libraries that need communicators: `register_library!(&HOST_LIBRARY)`.
#[macro_export]
macro_rules! register_library {
    ($($item:expr),+ $(,)?) => { $crate::register_item!(Library: $($item),+); };
}

/// Registers kernels: `register_kernel!(&SCALE, &ADD)`.
#[macro_export]
macro_rules! register_kernel {
    ($($item:expr),+ $(,)?) => { $crate::register_item!(Kernel: $($item),+); };
}

/// Registers ops: `register_op!(&TOP_K)`.
#[macro_export]
macro_rules! register_op {
    ($($item:expr),+ $(,)?) => { $crate::register_item!(Op: $($item),+); };
}

/// Lets a library's op, a struct around one of squall's own [contracts](crate::ops), be described as that contract:
/// `described_by_contract!(NcclOp)` for `struct NcclOp(&'static Contract)`.
#[macro_export]
macro_rules! described_by_contract {
    ($op:ty) => {
        impl $crate::Task for $op {
            fn name(&self) -> &'static str {
                self.0.name()
            }

            fn summary(&self) -> &'static str {
                self.0.summary()
            }

            fn params(&self) -> &'static [$crate::ParamDef] {
                self.0.params()
            }

            fn example(&self) -> &'static str {
                self.0.example()
            }

            fn describe(&self, args: &$crate::Args<'_>) -> Result<$crate::Description, $crate::ArgError> {
                self.0.describe(args)
            }
        }
    };
}

/// Two things that cannot both be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Two of one name.
    #[error("{what} is registered twice: by {first} and by {second}")]
    Twice {
        /// What it is, with its name.
        what: String,
        /// Who brought the first.
        first: String,
        /// Who brought the second.
        second: String,
    },
    /// A library of two authors: a group is issued by the first of its ops, which must know the others.
    #[error(
        "the library `{library}` on {device} devices is brought by {first} and by {second}; a library has one author"
    )]
    Library {
        /// The library.
        library: String,
        /// The kind of device.
        device: String,
        /// Who brought it first.
        first: String,
        /// Who brought more of it.
        second: String,
    },
    /// Ops of one name that take different arguments: a manifest could not be read without knowing which is meant.
    #[error("the op `{op}` takes other arguments by {second} than by {first}")]
    Params {
        /// The op.
        op: String,
        /// Who brought the first; `squall` for an op of its own.
        first: String,
        /// Who brought the second.
        second: String,
    },
}

/// No op is served as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpLookup {
    /// Nothing of that name.
    #[error("there is no op `{0}`")]
    Unknown(String),
    /// No library serves it there.
    #[error("no library serves `{op}` on {device} devices")]
    Unserved {
        /// The op.
        op: String,
        /// The kind of device.
        device: String,
    },
    /// Several libraries serve it, and neither the task nor the backend says which.
    #[error(
        "several libraries serve `{op}` on {device} devices, and none is the default: name one of {served}"
    )]
    Ambiguous {
        /// The op.
        op: String,
        /// The kind of device.
        device: String,
        /// The libraries.
        served: String,
    },
    /// It cannot be used inside another op: see [`Needs::uses`](crate::Needs::uses).
    #[error("`{user}` by the library `{library}` uses `{op}` inside itself, {why}")]
    Used {
        /// The op that uses it.
        user: String,
        /// Whose that is.
        library: String,
        /// The op that is used.
        op: String,
        /// Why it cannot be.
        why: String,
    },
    /// Not that library.
    #[error("the library `{library}` does not serve `{op}` on {device} devices; served by {served}")]
    Library {
        /// The op.
        op: String,
        /// The library asked for.
        library: String,
        /// The kind of device.
        device: String,
        /// Which do.
        served: String,
    },
}

/// An entry with who brought it.
#[derive(Clone)]
struct Entry<T> {
    item: T,
    origin: String,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("backends", &self.backends.keys())
            .field("kernels", &self.kernels.keys())
            .field("ops", &self.ops.keys())
            .finish_non_exhaustive()
    }
}

/// What can be named in a job, in order of name. Made once, then only read.
#[derive(Clone, Default)]
pub struct Registry {
    backends: BTreeMap<&'static str, Entry<&'static dyn Backend>>,
    libraries: BTreeMap<(&'static str, &'static str), Entry<&'static dyn Library>>,
    kernels: BTreeMap<&'static str, Entry<&'static KernelDef>>,
    /// By op, device kind and library.
    ops: BTreeMap<(&'static str, &'static str, &'static str), Entry<&'static dyn LibraryOp>>,
    /// Libraries in place of backends' own default, by kind of device.
    defaults: BTreeMap<&'static str, &'static str>,
}

impl Registry {
    /// All that is linked into this program. A crate that nothing refers to is not linked: name it with
    /// `use squall_host_backend as _;`.
    pub fn linked() -> Result<Registry, Conflict> {
        let mut registry = Registry::default();
        // The linker's order is arbitrary; sorting by origin makes a duplicate's report repeatable.
        let mut all: Vec<&Registration> = inventory::iter::<Registration>.into_iter().collect();
        all.sort_by_key(|r| r.origin);
        for registration in all {
            registry.add(&registration.item, registration.origin)?;
        }
        Ok(registry)
    }

    /// Adds what `origin` brings, a name and a version for listings and messages: what a program has loaded rather than linked. Called
    /// before graphs are built. Refuses a second thing of one name; a part of a library, on a kind of device, that another origin
    /// brings; and an op whose parameters differ from those of another of its name.
    pub fn add(&mut self, item: &Item, origin: &str) -> Result<(), Conflict> {
        fn put<K: Ord, T>(
            map: &mut BTreeMap<K, Entry<T>>,
            key: K,
            item: T,
            origin: &str,
            what: impl FnOnce() -> String,
        ) -> Result<(), Conflict> {
            let entry = Entry { item, origin: origin.to_string() };
            match map.get(&key) {
                Some(old) => {
                    Err(Conflict::Twice { what: what(), first: old.origin.clone(), second: entry.origin })
                }
                None => {
                    map.insert(key, entry);
                    Ok(())
                }
            }
        }
        match *item {
            Item::Backend(b) => {
                put(&mut self.backends, b.kind(), b, origin, || format!("the backend `{}`", b.kind()))
            }
            Item::Library(l) => {
                self.one_author(l.name(), l.device(), origin)?;
                put(&mut self.libraries, (l.name(), l.device()), l, origin, || {
                    format!("the library `{}` on {} devices", l.name(), l.device())
                })
            }
            Item::Kernel(k) => {
                put(&mut self.kernels, k.name, k, origin, || format!("the kernel `{}`", k.name))
            }
            Item::Op(op) => {
                self.same_params(op, origin)?;
                let key = (op.name(), op.device(), op.library());
                if !self.ops.contains_key(&key) {
                    self.one_author(op.library(), op.device(), origin)?;
                }
                put(&mut self.ops, key, op, origin, || {
                    let (name, library, device) = (op.name(), op.library(), op.device());
                    format!("the op `{name}` of the library `{library}` on {device} devices")
                })
            }
        }
    }

    /// Whether all of a library so far comes from `origin`.
    fn one_author(&self, library: &str, device: &str, origin: &str) -> Result<(), Conflict> {
        let connected = self.libraries.iter().filter(|((name, on), _)| (*name, *on) == (library, device));
        let ops = self.ops.iter().filter(|((_, on, name), _)| (*name, *on) == (library, device));
        let mut origins = connected.map(|(_, e)| &e.origin).chain(ops.map(|(_, e)| &e.origin));
        match origins.find(|other| *other != origin) {
            None => Ok(()),
            Some(first) => Err(Conflict::Library {
                library: library.to_string(),
                device: device.to_string(),
                first: first.clone(),
                second: origin.to_string(),
            }),
        }
    }

    /// Whether an op takes what every other of its name does. What is said of a parameter may differ.
    fn same_params(&self, op: &'static dyn LibraryOp, origin: &str) -> Result<(), Conflict> {
        let own = CONTRACTS.iter().find(|c| c.name() == op.name()).map(|c| (c.params(), "squall"));
        let others = self.ops.values().filter(|e| e.item.name() == op.name());
        let mut others = own.into_iter().chain(others.map(|e| (e.item.params(), e.origin.as_str())));
        let differs = |params: &[ParamDef]| {
            let taken = |p: &ParamDef| (p.name, p.kind, p.presence);
            !params.iter().map(taken).eq(op.params().iter().map(taken))
        };
        match others.find(|(params, _)| differs(params)) {
            None => Ok(()),
            Some((_, first)) => Err(Conflict::Params {
                op: op.name().to_string(),
                first: first.to_string(),
                second: origin.to_string(),
            }),
        }
    }

    /// Whether anything of that origin is there: whether a plugin was loaded.
    pub fn brings(&self, origin: &str) -> bool {
        self.backends.values().any(|entry| entry.origin == origin)
            || self.libraries.values().any(|entry| entry.origin == origin)
            || self.kernels.values().any(|entry| entry.origin == origin)
            || self.ops.values().any(|entry| entry.origin == origin)
    }

    /// Has a library serve ops on a kind of device unless a task names another, in place of
    /// [`Backend::default_library`]: for jobs whose ranks the default cannot join. Called before graphs are built.
    pub fn serve_by(&mut self, device: &'static str, library: &'static str) {
        self.defaults.insert(device, library);
    }

    /// The library that serves ops on a kind of device unless a task names another.
    pub fn default_library(&self, device: &str) -> Option<&'static str> {
        let chosen = self.defaults.get(device).copied();
        chosen.or_else(|| self.backend(device).map(Backend::default_library))
    }

    /// The backends, by kind.
    pub fn backends(&self) -> impl Iterator<Item = &'static dyn Backend> {
        self.backends.values().map(|e| e.item)
    }

    /// The backend of that kind.
    pub fn backend(&self, kind: &str) -> Option<&'static dyn Backend> {
        self.backends.get(kind).map(|e| e.item)
    }

    /// Opens device `index` of that kind.
    pub fn open(&self, kind: &str, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let missing = || DeviceError::Unsupported(format!("this build has no `{kind}` backend"));
        self.backend(kind).ok_or_else(missing)?.open(index)
    }

    /// The library of that name on that kind of device, if it needs communicators.
    pub fn library(&self, name: &str, device: &str) -> Option<&'static dyn Library> {
        self.libraries.values().map(|e| e.item).find(|l| l.name() == name && l.device() == device)
    }

    /// The libraries that need communicators, by name and kind of device.
    pub fn libraries(&self) -> impl Iterator<Item = &'static dyn Library> {
        self.libraries.values().map(|e| e.item)
    }

    /// The kernels, by name, each with who brought it.
    pub fn kernels(&self) -> impl Iterator<Item = (&'static KernelDef, &str)> {
        self.kernels.values().map(|e| (e.item, e.origin.as_str()))
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&'static KernelDef> {
        self.kernels.get(name).map(|e| e.item)
    }

    /// The ops as libraries serve them, by op, device and library, each with who brought it.
    pub fn ops(&self) -> impl Iterator<Item = (&'static dyn LibraryOp, &str)> {
        self.ops.values().map(|e| (e.item, e.origin.as_str()))
    }

    /// The description of an op, whoever serves it.
    pub fn contract(&self, name: &str) -> Option<&'static dyn Task> {
        let own = CONTRACTS.iter().copied().find(|c| c.name() == name).map(|c| c as &'static dyn Task);
        own.or_else(|| self.ops().map(|(op, _)| op as &'static dyn Task).find(|op| op.name() == name))
    }

    /// Every op's description, by name.
    pub fn contracts(&self) -> Vec<&'static dyn Task> {
        let mut all: BTreeMap<&str, &'static dyn Task> =
            self.ops().map(|(op, _)| (op.name(), op as &'static dyn Task)).collect();
        all.extend(CONTRACTS.iter().map(|&c| (c.name(), c as &'static dyn Task)));
        all.into_values().collect()
    }

    /// The op `name` on devices of `device`'s kind, by `library` or else by the backend's default library, or else
    /// by the only one that serves it.
    pub fn op(
        &self,
        name: &str,
        device: &str,
        library: Option<&str>,
    ) -> Result<&'static dyn LibraryOp, OpLookup> {
        let ops: &BTreeMap<(&str, &str, &str), _> = &self.ops;
        let serving: Vec<&'static dyn LibraryOp> = ops
            .range((name, device, "")..)
            .take_while(|((op, on, _), _)| (*op, *on) == (name, device))
            .map(|(_, entry)| entry.item)
            .collect();
        if serving.is_empty() {
            let (op, device) = (name.to_string(), device.to_string());
            return Err(match self.contract(name) {
                Some(_) => OpLookup::Unserved { op, device },
                None => OpLookup::Unknown(op),
            });
        }
        let wanted = library.or_else(|| self.default_library(device));
        if let Some(op) = serving.iter().find(|op| Some(op.library()) == wanted) {
            return Ok(*op);
        }
        if let (None, [only]) = (library, serving.as_slice()) {
            return Ok(*only);
        }
        let names: Vec<String> = serving.iter().map(|op| format!("`{}`", op.library())).collect();
        let (op, device, served) = (name.to_string(), device.to_string(), names.join(", "));
        Err(match wanted {
            Some(library) => OpLookup::Library { op, library: library.to_string(), device, served },
            None => OpLookup::Ambiguous { op, device, served },
        })
    }

    /// What `user` uses inside itself, in the order of its [`Needs::uses`](crate::Needs::uses): squall's own ops, by the default library of
    /// its device.
    pub fn used_by(&self, user: &dyn LibraryOp) -> Result<Vec<&'static dyn LibraryOp>, OpLookup> {
        let used = |name: &&'static str| {
            let refused = |why: String| OpLookup::Used {
                user: user.name().to_string(),
                library: user.library().to_string(),
                op: name.to_string(),
                why,
            };
            if !CONTRACTS.iter().any(|contract| contract.name() == *name) {
                return Err(refused("which is not one of squall's own ops".to_string()));
            }
            let default = self.default_library(user.device());
            let op =
                self.op(name, user.device(), default).map_err(|error| refused(format!("but {error}")))?;
            if op.library() == user.library() {
                return Err(refused("which is of its own library".to_string()));
            }
            if !op.needs().uses.is_empty() {
                return Err(refused("which is made of other ops itself".to_string()));
            }
            Ok(op)
        };
        user.needs().uses.iter().map(used).collect()
    }
}
