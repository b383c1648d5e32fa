//! Reading a plugin's tables: all is checked once, when it is loaded, so that nothing later meets a null or an unknown code.

use squall_core::ops::CONTRACTS;
use squall_core::registry::Item;
use squall_core::{
    Cover, CudaSource, DType, KernelDef, LibraryOp, Needs, ParamDef, ParamKind, Presence, ReduceOp, Task,
    Type,
};
use squall_plugin::abi::{self, MAX_PARAMS, kernel_flag, op_flag};
use squall_plugin::convert::{
    Malformed, check_header, dtypes, read_cover, read_param, reductions, slice, text,
};
use squall_plugin::field;

use super::Plugin;
use super::kernel::{Functions, HostForm};
use super::op::LoadedOp;

/// The kinds of devices that a plugin can name.
const KINDS: [&str; 2] = ["cuda", "host"];

/// Everything that a plugin brings, in the order of its tables.
///
/// # Safety
/// `table` points to a plugin's table, as of the ABI, of which all fields of the first version are there; it stays for good.
pub(super) unsafe fn items(
    table: *const abi::Plugin,
    plugin: &'static Plugin,
) -> Result<Vec<Item>, Malformed> {
    // SAFETY: the caller's.
    let (ops, kernels) = unsafe {
        let table = &*table;
        (
            slice(table.ops, table.op_count.into(), "its ops")?,
            slice(table.kernels, table.kernel_count.into(), "its kernels")?,
        )
    };
    let mut items = Vec::new();
    for &table in kernels {
        // SAFETY: the caller's.
        items.push(Item::Kernel(unsafe { kernel(table, plugin) }?));
    }
    let mut loaded: Vec<&'static LoadedOp> = Vec::new();
    for &table in ops {
        // SAFETY: the caller's.
        let op: &'static LoadedOp = Box::leak(Box::new(unsafe { op(table, plugin) }?));
        loaded.push(op);
        items.push(Item::Op(op));
    }
    // A plugin is read once.
    let _ = plugin.ops.set(loaded);
    Ok(items)
}

fn malformed(text: impl Into<String>) -> Malformed {
    Malformed(text.into())
}

/// # Safety
/// `table` is null or an op's table that stays for good.
unsafe fn op(table: *const abi::Op, plugin: &'static Plugin) -> Result<LoadedOp, Malformed> {
    // SAFETY: the caller's. `prepare` is the last field of the first version.
    let (table_of, prepare) = unsafe {
        check_header(table, "an op's table")?;
        let prepare = field!(Op, table, prepare).ok_or_else(|| malformed("an op's table is too short"))?;
        (&*table, prepare)
    };
    // SAFETY: the caller's: text that stays for good.
    let name: &'static str = unsafe { text(table_of.name, "an op's name") }?;
    let of_this = |error: Malformed| malformed(format!("its op `{name}`: {error}"));
    let read = || -> Result<LoadedOp, Malformed> {
        named(name, "an op")?;
        let prepare = prepare.ok_or_else(|| malformed("it has no `prepare`"))?;
        // SAFETY: the caller's: text that stays for good.
        let (summary, library, device, example) = unsafe {
            (
                text(table_of.summary, "its summary")?,
                text(table_of.library, "its library's name")?,
                text(table_of.device, "its kind of device")?,
                text(table_of.example, "its example")?,
            )
        };
        named(library, "a library")?;
        if !KINDS.contains(&device) {
            return Err(malformed(format!("`{device}` is no kind of device; one of {}", KINDS.join(", "))));
        }
        let contract = CONTRACTS.iter().copied().find(|contract| contract.name() == name);
        let params = match contract {
            None => {
                // SAFETY: the caller's.
                unsafe { params(table_of.params, table_of.param_count) }?
            }
            Some(_) if table_of.param_count != 0 || table_of.describe.is_some() => {
                let text = "it has the name of one of squall's own ops, whose parameters and rules it takes: `params` and \
                            `describe` must be null";
                return Err(malformed(text));
            }
            Some(contract) => contract.params(),
        };
        // SAFETY: the caller's.
        let uses = unsafe { slice(table_of.uses, table_of.use_count.into(), "the ops that it uses") }?;
        // SAFETY: the caller's: text that stays for good.
        let uses = uses.iter().map(|&used| unsafe { text(used, "the name of an op that it uses") });
        let uses: Vec<&'static str> = uses.collect::<Result<_, _>>()?;
        let known = op_flag::GROUPS | op_flag::CAPTURES | op_flag::SINGLE_PROCESS;
        // Flags of a later version say what this one cannot honour.
        if table_of.flags & !known != 0 {
            return Err(malformed(format!(
                "its flags {:#b} have bits that stand for nothing here",
                table_of.flags
            )));
        }
        let flag = |flag| table_of.flags & flag != 0;
        let needs = Needs {
            alignment: u64::from(table_of.alignment.max(1)),
            multiple: u64::from(table_of.multiple.max(1)),
            dtypes: match table_of.dtypes {
                0 => DType::ALL,
                set => dtypes(set)?.leak(),
            },
            reductions: match table_of.reductions {
                0 => ReduceOp::ALL,
                set => reductions(set)?.leak(),
            },
            groups: flag(op_flag::GROUPS),
            captures: flag(op_flag::CAPTURES),
            single_process: flag(op_flag::SINGLE_PROCESS),
            uses: uses.leak(),
        };
        Ok(LoadedOp {
            table,
            plugin,
            name,
            summary,
            library,
            device,
            example,
            params,
            needs,
            contract,
            describe: table_of.describe,
            served_as: table_of.served_as,
            prepare,
        })
    };
    read().map_err(of_this)
}

/// The kernel of a table, read once.
///
/// # Safety
/// `table` is null or a kernel's table that stays for good.
pub(super) unsafe fn kernel(
    table: *const abi::Kernel,
    plugin: &'static Plugin,
) -> Result<&'static KernelDef, Malformed> {
    let mut known = plugin.kernels();
    if let Some(def) = known.get(&(table as usize)) {
        return Ok(def);
    }
    // SAFETY: the caller's.
    let def: &'static KernelDef = Box::leak(Box::new(unsafe { read_kernel(table, plugin) }?));
    known.insert(table as usize, def);
    Ok(def)
}

/// # Safety
/// As of [`kernel`].
unsafe fn read_kernel(table: *const abi::Kernel, plugin: &'static Plugin) -> Result<KernelDef, Malformed> {
    // SAFETY: the caller's. `host_ready` is the last field of the first version.
    let (table_of, host_ready) = unsafe {
        check_header(table, "a kernel's table")?;
        let ready =
            field!(Kernel, table, host_ready).ok_or_else(|| malformed("a kernel's table is too short"))?;
        (&*table, ready)
    };
    // SAFETY: the caller's: text that stays for good.
    let name: &'static str = unsafe { text(table_of.name, "a kernel's name") }?;
    let of_this = |error: Malformed| malformed(format!("its kernel `{name}`: {error}"));
    let read = || -> Result<KernelDef, Malformed> {
        named(name, "a kernel")?;
        // SAFETY: the caller's: text that stays for good.
        let (summary, example) =
            unsafe { (text(table_of.summary, "its summary")?, text(table_of.example, "its example")?) };
        // SAFETY: the caller's.
        let params = unsafe { params(table_of.params, table_of.param_count) }?;
        let kind = |name: &str| params.iter().find(|param| param.name == name).map(|param| param.kind);
        let is_buffer = |name: &str| matches!(kind(name), Some(ParamKind::Buffer(..)));
        let is_size = |name: &str| kind(name) == Some(ParamKind::Size);
        let refers = |name: &'static str, what: &str| match kind(name).is_some() {
            true => Ok(name),
            false => Err(malformed(format!("{what} `{name}`, which is no parameter"))),
        };
        if table_of.cover_count > 3 {
            return Err(malformed(format!("its grid covers {} axes, and there are 3", table_of.cover_count)));
        }
        // SAFETY: the caller's.
        let covers = unsafe { slice(table_of.covers, table_of.cover_count.into(), "what its grid covers") }?;
        // SAFETY: the caller's.
        let covers = covers.iter().map(|cover| unsafe { read_cover(cover) });
        let covers: Vec<Cover> = covers.collect::<Result<_, _>>()?;
        for cover in &covers {
            let (param, right, wanted) = match cover {
                Cover::Len(param) | Cover::Dim(param, _) => (param, is_buffer(param), "a buffer"),
                Cover::Size(param) => (param, is_size(param), "a size"),
                Cover::Any => continue,
            };
            refers(param, "its grid covers")?;
            if !right {
                return Err(malformed(format!("its grid covers `{param}` as if that were {wanted}")));
            }
        }
        // SAFETY: the caller's.
        let pairs =
            unsafe { slice(table_of.in_place, table_of.in_place_count.into(), "its in-place pairs") }?;
        let mut in_place = Vec::new();
        for pair in pairs {
            // SAFETY: the caller's: text that stays for good.
            let (written, read) =
                unsafe { (text(pair.written, "an in-place pair")?, text(pair.read, "an in-place pair")?) };
            for param in [written, read] {
                refers(param, "it may be in place in")?;
                if !is_buffer(param) {
                    return Err(malformed(format!("it may be in place in `{param}`, which is no buffer")));
                }
            }
            in_place.push((written, read));
        }
        let functions = Functions { table, plugin };
        let host: Option<HostForm> = match (table_of.host, host_ready) {
            (None, None) => None,
            (Some(launch), None) => Some(HostForm::Launched(functions, launch)),
            (None, Some(ready)) => Some(HostForm::Ready(functions, ready)),
            (Some(_), Some(_)) => {
                return Err(malformed("it has both `host` and `host_ready`, which exclude each other"));
            }
        };
        if table_of.flags & !kernel_flag::LOOPS != 0 {
            return Err(malformed(format!(
                "its flags {:#b} have bits that stand for nothing here",
                table_of.flags
            )));
        }
        // SAFETY: the caller's.
        let cuda = unsafe { cuda(table_of) }?;
        if host.is_none() && cuda.is_none() {
            return Err(malformed(
                "it has no form for any device: `host`, `host_ready` and `cuda_source` are null",
            ));
        }
        Ok(KernelDef {
            name,
            summary,
            params,
            covers: covers.leak(),
            in_place: in_place.leak(),
            check: match table_of.check {
                Some(check) => {
                    Box::leak(Box::new(move |args: &squall_core::Args<'_>| functions.check(check, args)))
                }
                None => KernelDef::EMPTY.check,
            },
            example,
            host: host.map(|form| &*Box::leak(Box::new(form)) as _),
            cuda,
        })
    };
    read().map_err(of_this)
}

/// # Safety
/// As of [`kernel`].
unsafe fn cuda(table: &abi::Kernel) -> Result<Option<CudaSource>, Malformed> {
    if table.cuda_source.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's: text that stays for good.
    let (source, entry) = unsafe {
        (text(table.cuda_source, "its CUDA source")?, text(table.cuda_entry, "the entry of its CUDA source")?)
    };
    // SAFETY: the caller's.
    let failures = unsafe { slice(table.cuda_failures, table.cuda_failure_count.into(), "its failures") }?;
    // SAFETY: the caller's: text that stays for good.
    let failures = failures.iter().map(|&failure| unsafe { text(failure, "a failure") });
    let failures: Vec<&'static str> = failures.collect::<Result<_, _>>()?;
    let loops = table.flags & kernel_flag::LOOPS != 0;
    Ok(Some(CudaSource { source, entry, loops, failures: failures.leak(), scratch: table.cuda_scratch }))
}

/// # Safety
/// `first` is null or points to so many tables that stay for good.
unsafe fn params(first: *const *const abi::Param, count: u32) -> Result<&'static [ParamDef], Malformed> {
    if count > MAX_PARAMS {
        return Err(malformed(format!("it has {count} parameters; the most are {MAX_PARAMS}")));
    }
    // SAFETY: the caller's.
    let tables = unsafe { slice(first, count.into(), "its parameters") }?;
    // SAFETY: the caller's.
    let params = tables.iter().map(|&table| unsafe { read_param(table) });
    let params: Vec<ParamDef> = params.collect::<Result<_, _>>()?;
    for (index, param) in params.iter().enumerate() {
        named(param.name, "a parameter")?;
        let this = |text: String| malformed(format!("the parameter `{}` {text}", param.name));
        if params[..index].iter().any(|other| other.name == param.name) {
            return Err(this("is there twice".to_string()));
        }
        let buffer = |of: &str| {
            let found = params.iter().find(|other| other.name == of);
            match found.map(|other| other.kind) {
                Some(ParamKind::Buffer(..)) => Ok(()),
                Some(_) => Err(this(format!("refers to `{of}`, which is no buffer"))),
                None => Err(this(format!("refers to `{of}`, which is no parameter"))),
            }
        };
        if let ParamKind::Buffer(_, Type::Same(of)) | ParamKind::Scalar(Type::Same(of)) = param.kind {
            buffer(of)?;
            // From one to the next; a circle has no end within as many as there are.
            let dtype_of = |name: &str| match params.iter().find(|other| other.name == name)?.kind {
                ParamKind::Buffer(_, Type::Same(of)) => Some(of),
                _ => None,
            };
            let mut next = Some(of);
            for _ in &params {
                next = next.and_then(dtype_of);
            }
            if next.is_some() {
                return Err(this(format!("has the dtype of `{of}`, which leads back to where it began")));
            }
        }
        if let ParamKind::Word(words) = param.kind {
            let twice = words.iter().enumerate().find(|(index, word)| words[..*index].contains(word));
            match twice {
                _ if words.is_empty() => return Err(this("takes a word, and there are none".to_string())),
                _ if words.contains(&"") => return Err(this("has a word without letters".to_string())),
                Some((_, word)) => return Err(this(format!("has the word `{word}` twice"))),
                None => {}
            }
        }
        if let Presence::Dim(of, _) | Presence::Len(of) | Presence::ShapeOf(of) = param.presence {
            buffer(of)?;
        }
        let fits = match param.presence {
            Presence::Required | Presence::Optional => true,
            Presence::Dim(..) | Presence::Len(_) => param.kind == ParamKind::Size,
            Presence::ShapeOf(_) => param.kind == ParamKind::List,
            Presence::False => param.kind == ParamKind::Flag,
        };
        if !fits {
            return Err(this(format!(
                "is {:?} and defaults to {:?}, which is of another kind",
                param.kind, param.presence
            )));
        }
    }
    Ok(params.leak())
}

/// Names are what a manifest can say without quotes.
fn named(name: &str, what: &str) -> Result<(), Malformed> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(legal) {
        true => Ok(()),
        false => {
            Err(malformed(format!("{name:?} is no name for {what}: it has letters, digits, `_` and `-`")))
        }
    }
}

/// The table of an op, if it is one of the plugin's.
pub(super) fn table_of(plugin: &Plugin, op: &'static dyn LibraryOp) -> Option<*const abi::Op> {
    let own = plugin
        .ops
        .get()?
        .iter()
        .find(|own| std::ptr::addr_eq(std::ptr::from_ref(**own), std::ptr::from_ref(op)));
    own.map(|own| own.table)
}
