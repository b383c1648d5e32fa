//! The dtypes that a kernel's parameters take.

use squall_core::{DType, ParamDef, ParamKind, Type};

/// Every combination of dtypes that the parameters allow, each with a dtype for every parameter: a parameter that is
/// [`Type::Same`] as another has that one's, through any chain of these. What is neither a buffer nor a number has `U8`, which
/// nobody looks at.
pub(crate) fn combinations(params: &[ParamDef]) -> Vec<Vec<DType>> {
    let mut all = vec![Vec::new()];
    for param in params {
        let choices = match ty(param) {
            Some(Type::In(dtypes)) => dtypes,
            Some(Type::Is(dtype)) => &[dtype],
            Some(Type::Same(_)) | None => &[DType::U8],
        };
        all = all
            .iter()
            .flat_map(|begun| choices.iter().map(|&next| [begun.as_slice(), &[next]].concat()))
            .collect();
    }
    for dtypes in &mut all {
        *dtypes = (0..params.len()).map(|place| dtypes[origin(params, place)]).collect();
    }
    all
}

/// The parameter whose dtype is that of the one at `place`.
fn origin(params: &[ParamDef], mut place: usize) -> usize {
    // A chain is no longer than the parameters are many.
    for _ in params {
        let Some(Type::Same(other)) = ty(&params[place]) else { break };
        place = params.iter().position(|param| param.name == other).unwrap_or(place);
    }
    place
}

fn ty(param: &ParamDef) -> Option<Type> {
    match param.kind {
        ParamKind::Buffer(_, ty) | ParamKind::Scalar(ty) => Some(ty),
        _ => None,
    }
}
