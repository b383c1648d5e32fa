//! `squall_plugin.h` says what `abi.rs` says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use syn::{Expr, GenericArgument, Lit, PathArguments, PointerMutability, ReturnType, Type};

use crate::{source, table};

const HEADER: &str = include_str!("../../include/squall_plugin.h");

/// Compiles `text`, which includes the header, and returns what the compiler says if it refuses it.
fn compile(compiler: &str, language: &str, standard: &str, text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("abi.c");
    fs::write(&file, text).unwrap();
    let output = Command::new(compiler)
        .args(["-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(file)
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "`{compiler}` did not start ({error}): install a compiler for C and C++, such as gcc and g++"
            )
        });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

/// Assertions of every size, offset and constant.
fn assertions(assert: &str) -> String {
    let mut text = String::from("#include \"squall_plugin.h\"\n");
    for table::Struct { name, size, fields } in table::structs() {
        let c = c_struct(name);
        writeln!(text, "{assert}(sizeof({c}) == {size}, \"size of {c}\");").unwrap();
        for field in fields {
            let name = field.name;
            writeln!(text, "{assert}(offsetof({c}, {name}) == {}, \"offset of {c}.{name}\");", field.offset)
                .unwrap();
        }
    }
    for (name, value) in table::constants() {
        let c = c_constant(name);
        // Larger ones are no plain literal of C.
        let value = if value > i128::from(u32::MAX) { format!("{value}u") } else { value.to_string() };
        writeln!(text, "{assert}({c} == {value}, \"{c}\");").unwrap();
    }
    text
}

/// Assertions of every field's type, in C++.
fn types() -> String {
    let mut text = String::from("#include <type_traits>\n#include \"squall_plugin.h\"\n");
    for source::Struct { name, fields } in source::structs() {
        for (field, of) in fields {
            let (c, of) = (c_struct(&name), c_type(&of));
            writeln!(
                text,
                "static_assert(std::is_same<decltype((({c} *)0)->{field}), {of}>::value, \"{name}.{field}\");"
            )
            .unwrap();
        }
    }
    text
}

/// `NamedArg` is `squall_named_arg`.
fn c_struct(name: &str) -> String {
    let mut c = String::from("squall");
    for letter in name.chars() {
        if letter.is_uppercase() {
            c.push('_');
        }
        c.push(letter.to_ascii_lowercase());
    }
    // The entry function has this name too.
    if c == "squall_plugin" { format!("struct {c}") } else { c }
}

/// `dtype::F32` is `SQUALL_DTYPE_F32`, `status::OK` is `SQUALL_OK`.
fn c_constant(name: &str) -> String {
    format!("SQUALL_{}", name.trim_start_matches("status::").replace("::", "_").to_uppercase())
}

/// The type as C and C++ write it.
pub(crate) fn c_type(of: &Type) -> String {
    match of {
        Type::Ptr(pointer) => {
            let constant =
                if matches!(pointer.mutability, PointerMutability::Const(_)) { " const" } else { "" };
            format!("{}{constant} *", c_type(&pointer.elem))
        }
        Type::Array(array) => {
            let Expr::Lit(len) = &array.len else { panic!("a length that is no literal") };
            let Lit::Int(len) = &len.lit else { panic!("a length that is no number") };
            format!("{}[{len}]", c_type(&array.elem))
        }
        Type::FnPtr(function) => {
            let inputs: Vec<String> = function.inputs.iter().map(|input| c_type(&input.ty)).collect();
            let output = match &function.output {
                ReturnType::Default => "void".to_owned(),
                ReturnType::Type(_, of) => c_type(of),
            };
            format!("{output} (*)({})", inputs.join(", "))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            match (last.ident.to_string().as_str(), &last.arguments) {
                ("Option", PathArguments::AngleBracketed(arguments)) => match &arguments.args[0] {
                    GenericArgument::Type(of) => c_type(of),
                    _ => panic!("an option of no type"),
                },
                ("c_void", _) => "void".to_owned(),
                ("c_char", _) => "char".to_owned(),
                ("f64", _) => "double".to_owned(),
                (name @ ("u32" | "i32" | "u64" | "i64"), _) => {
                    name.replace('u', "uint").replace('i', "int").replace("uintnt", "uint") + "_t"
                }
                (name, _) => c_struct(name),
            }
        }
        _ => panic!("a type that C does not have"),
    }
}

#[test]
fn sizes_offsets_and_constants_agree_in_c() {
    compile("cc", "c", "-std=c11", &assertions("_Static_assert")).unwrap();
}

#[test]
fn sizes_offsets_and_constants_agree_in_cpp() {
    compile("c++", "c++", "-std=c++17", &assertions("static_assert")).unwrap();
}

#[test]
fn types_agree() {
    compile("c++", "c++", "-std=c++17", &types()).unwrap();
}

#[test]
fn a_difference_is_found() {
    let wrong = assertions("_Static_assert").replace("SQUALL_OK == 0", "SQUALL_OK == 1");
    assert!(compile("cc", "c", "-std=c11", &wrong).unwrap_err().contains("SQUALL_OK"));
    let wrong = types().replace("->number), uint64_t", "->number), int64_t");
    assert!(compile("c++", "c++", "-std=c++17", &wrong).unwrap_err().contains("Arg.number"));
}

#[test]
fn the_header_has_no_constant_of_its_own() {
    let words = HEADER.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let written: BTreeSet<&str> =
        words.filter(|word| word.starts_with("SQUALL_") && !word.ends_with('_')).collect();
    let mut known: BTreeSet<String> = table::constants().iter().map(|(name, _)| c_constant(name)).collect();
    for macro_name in ["ENTRY", "EXPORT", "HEADER", "HAS", "BIT", "PLUGIN_H"] {
        known.insert(format!("SQUALL_{macro_name}"));
    }
    assert_eq!(written, known.iter().map(String::as_str).collect());
    assert!(HEADER.contains(&format!("#define SQUALL_ENTRY \"{}\"", squall_plugin::abi::ENTRY)));
    assert!(HEADER.contains(&format!("struct squall_plugin *{}(", squall_plugin::abi::ENTRY)));
}

#[test]
fn the_smallest_plugin_in_the_header_compiles() {
    let lines = HEADER.lines().filter_map(|line| line.strip_prefix(" *     "));
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with("cc ")).collect();
    assert!(text.len() > 5, "{text:?}");
    compile("cc", "c", "-std=c11", &text.join("\n")).unwrap();
}

#[test]
fn the_macros_work_in_both_languages() {
    let text = r#"#include "squall_plugin.h"
int32_t use(const squall_host *host, squall_error *error);
int32_t use(const squall_host *host, squall_error *error) {
    static const squall_host mine = {SQUALL_HEADER(squall_host), "0.1.0", 0};
    if (SQUALL_HAS(host, feature) && host->feature) return SQUALL_OK;
    return squall_fail(error, SQUALL_FAILED, "%s, %u", mine.version, SQUALL_BIT(SQUALL_DTYPE_F32));
}
"#;
    compile("cc", "c", "-std=c11", text).unwrap();
    compile("c++", "c++", "-std=c++17", text).unwrap();
    // The words are checked against what they are given.
    assert!(compile("cc", "c", "-std=c11", &text.replace("%u", "%s")).unwrap_err().contains("format"));
}
