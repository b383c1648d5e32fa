//! Sizes, offsets and values, as the compiler has them.

use std::mem::offset_of;

use squall_plugin::abi;

/// A struct of the ABI.
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: Vec<Field>,
}

/// One of its fields.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

macro_rules! structs {
    ($($name:ident { $($field:ident),* })*) => {
        /// Every struct whose fields both sides see.
        pub(crate) fn structs() -> Vec<Struct> {
            // The pattern names every field, or does not compile.
            $(let _ = |all: abi::$name| { let abi::$name { $($field: _),* } = all; };)*
            vec![$(Struct {
                name: stringify!($name),
                size: size_of::<abi::$name>(),
                fields: vec![$(Field {
                    name: stringify!($field),
                    offset: offset_of!(abi::$name, $field),
                    size: size_of_field(|all: &abi::$name| &all.$field),
                }),*],
            }),*]
        }
    };
}

structs! {
    Header { magic, abi_major, abi_minor, struct_size }
    Error { param, member, bytes, text, help }
    Host { header, version, feature }
    Plugin { header, name, version, ops, kernels, op_count, kernel_count, init, feature }
    Param { header, name, doc, kind, mode, dtypes, presence, same, of, words, word_count, dim }
    Arg { kind, dtype, number, real, ptr, buffer, offset, len, shape, list, axes, reserved }
    Args { header, values, count, comm_rank, comm_size, reserved }
    NamedArg { name, value }
    Grid { threads, block, reserved }
    Description { header, cx, access, collective, number, real, dtype, word, numbers, share, send, recv }
    Op {
        header, name, summary, library, device, example, params, uses, data, param_count, use_count, flags, alignment, multiple,
        dtypes, reductions, reserved, describe, served_as, prepare
    }
    Call { header, op, task, args, parts, comm, reserved }
    Comm { name, members, parts, ranks, size, rank }
    Blob { bytes, len }
    Abort { header, cx, is_aborted }
    Prepare {
        header, cx, device, device_kind, abort, nanoseconds, rank, world, comms, captures, comm, alloc, alloc_staging, kernel, op,
        exchange, peer_pointers
    }
    Stream { header, cx, api, handle, enqueue, copy }
    Work { header, state, abort_state, enqueue, failure, destroy, abort }
    Cover { kind, dim, param }
    InPlace { written, read }
    Kernel {
        header, name, summary, example, params, covers, in_place, cuda_source, cuda_entry, cuda_failures, data, param_count,
        cover_count, in_place_count, flags, cuda_failure_count, cuda_scratch, check, host, host_ready
    }
}

macro_rules! constants {
    ($($name:ident)* $(; $module:ident { $($member:ident)* })*) => {
        /// Every constant that is a number, by its path in `abi`.
        pub(crate) fn constants() -> Vec<(&'static str, i128)> {
            vec![
                $((stringify!($name), i128::from(abi::$name)),)*
                $($((concat!(stringify!($module), "::", stringify!($member)), i128::from(abi::$module::$member)),)*)*
            ]
        }
    };
}

constants! {
    MAGIC ABI_MAJOR ABI_MINOR MAX_PARAMS NO_PARAM NO_PLACE;
    status { OK FAILED ABORTED DEADLINE OUT_OF_MEMORY LOST UNSUPPORTED ARGUMENT };
    dtype { F16 BF16 F32 F64 I8 U8 I32 U32 I64 U64 };
    reduction { SUM PROD MAX MIN AVG };
    param_kind { BUFFER SCALAR SIZE WORD FLAG RANK LIST MATRIX };
    mode { READ WRITE READ_WRITE };
    presence { REQUIRED OPTIONAL DIM LEN SHAPE_OF FALSE };
    arg_kind { ABSENT BUFFER INT FLOAT SIZE WORD FLAG RANK LIST };
    cover_kind { LEN SIZE DIM ANY };
    op_flag { GROUPS CAPTURES SINGLE_PROCESS };
    kernel_flag { LOOPS }
}

const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

#[test]
fn the_table_has_every_struct_field_and_constant_in_the_order_of_the_file() {
    let seen = |name: &str, fields: Vec<&str>| format!("{name} {{ {} }}", fields.join(", "));
    let table: Vec<String> =
        structs().iter().map(|s| seen(s.name, s.fields.iter().map(|field| field.name).collect())).collect();
    let source: Vec<String> = crate::source::structs()
        .iter()
        .map(|s| seen(&s.name, s.fields.iter().map(|(name, _)| name.as_str()).collect()))
        .collect();
    assert_eq!(table, source);

    let table: Vec<&str> = constants().iter().map(|&(name, _)| name).collect();
    let mut source = crate::source::constants();
    source.retain(|name| name != "ENTRY"); // text, which `header` compares
    assert_eq!(table, source);
}

#[test]
fn fields_leave_no_hole_for_a_compiler_to_fill_in_its_own_way() {
    for Struct { name, size, fields } in structs() {
        let mut end = 0;
        for field in fields {
            assert_eq!(field.offset, end, "{name}.{}", field.name);
            end += field.size;
        }
        assert_eq!(size, end, "the end of {name}");
    }
}

#[test]
fn what_has_a_header_begins_with_it() {
    for item in structs() {
        for field in item.fields.iter().filter(|field| field.name == "header") {
            assert_eq!(field.offset, 0, "{}", item.name);
        }
    }
}
