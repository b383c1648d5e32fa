//! `abi.rs` as text.

use syn::{Fields, Item};

/// A struct of the ABI.
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, syn::Type)>,
}

/// The structs whose fields both sides see, in the order of the file.
pub(crate) fn structs() -> Vec<Struct> {
    let of = |item: &Item| {
        let Item::Struct(item) = item else { return None };
        let Fields::Named(fields) = &item.fields else { panic!("`{}` has no named fields", item.ident) };
        let public = fields.named.iter().filter(|field| matches!(field.vis, syn::Visibility::Public(_)));
        let fields: Vec<_> =
            public.map(|field| (field.ident.as_ref().unwrap().to_string(), field.ty.clone())).collect();
        // What has none is opaque, and goes by pointer alone.
        (!fields.is_empty()).then(|| Struct { name: item.ident.to_string(), fields })
    };
    file().items.iter().filter_map(of).collect()
}

/// The constants, those in modules as `module::NAME`, in the order of the file.
pub(crate) fn constants() -> Vec<String> {
    let mut all = Vec::new();
    for item in &file().items {
        match item {
            Item::Const(item) => all.push(item.ident.to_string()),
            Item::Mod(module) => {
                for item in &module.content.as_ref().unwrap().1 {
                    let Item::Const(item) = item else { continue };
                    all.push(format!("{}::{}", module.ident, item.ident));
                }
            }
            _ => {}
        }
    }
    all
}

fn file() -> syn::File {
    syn::parse_file(include_str!("../../src/abi.rs")).unwrap()
}
