//! Which params, buffers and expressions depend on the rank. The rest is worked out once for all ranks.

use super::names::{Symbol, Symbols};
use crate::expr::{Expr, Mention};
use crate::manifest::model::ParamValue;
use crate::manifest::place::Formula;

/// Of each param and each buffer's shape, whether it depends on the rank.
#[derive(Debug, Default)]
pub(super) struct Depends {
    params: Vec<bool>,
    buffers: Vec<bool>,
}

impl Depends {
    pub(super) fn of(symbols: &Symbols<'_>) -> Depends {
        let manifest = symbols.manifest;
        let mut depends = Depends {
            params: vec![false; manifest.params.len()],
            buffers: vec![false; manifest.buffers.len()],
        };
        // Definitions name each other in any order, without circles: repeat until nothing changes.
        loop {
            let mut changed = false;
            for (place, param) in manifest.params.iter().enumerate() {
                if !depends.params[place] && depends.value(symbols, &param.value) {
                    depends.params[place] = true;
                    changed = true;
                }
            }
            for (place, buffer) in manifest.buffers.iter().enumerate() {
                let shape = &buffer.shape.value;
                if !depends.buffers[place] && shape.iter().any(|axis| depends.expr(symbols, &axis.expr)) {
                    depends.buffers[place] = true;
                    changed = true;
                }
            }
            if !changed {
                return depends;
            }
        }
    }

    fn value(&self, symbols: &Symbols<'_>, value: &ParamValue) -> bool {
        match value {
            ParamValue::Formula(formula) => self.expr(symbols, &formula.expr),
            ParamValue::List(items) => items.iter().any(|item| self.value(symbols, item)),
        }
    }

    pub(super) fn expr(&self, symbols: &Symbols<'_>, expr: &Expr) -> bool {
        let mut depends = false;
        expr.mentions(&mut |mention, _| depends |= self.mention(symbols, mention));
        depends
    }

    /// Whether what an expression mentions does.
    pub(super) fn mention(&self, symbols: &Symbols<'_>, mention: Mention<'_>) -> bool {
        match mention {
            Mention::Name("rank") | Mention::CommRank(_) | Mention::Place => true,
            // The axes of the mesh are as long everywhere; parts of another communicator differ.
            Mention::CommSize(name) => !symbols.is_axis(name),
            Mention::Name(name) | Mention::Len(name) => match symbols.get(name) {
                Some(Symbol::Param(place)) => self.params[place],
                Some(Symbol::Buffer(place)) => self.buffers[place],
                _ => false, // `world`, `i`, loop variables
            },
        }
    }

    pub(super) fn formula(&self, symbols: &Symbols<'_>, formula: &Formula) -> bool {
        self.expr(symbols, &formula.expr)
    }

    /// Whether a param does.
    pub(super) fn param(&self, place: usize) -> bool {
        self.params.get(place).copied().unwrap_or(true)
    }

    /// Whether a buffer's shape does.
    pub(super) fn buffer(&self, place: usize) -> bool {
        self.buffers.get(place).copied().unwrap_or(true)
    }
}
