//! Buffers: their shapes on each rank, and when they go to and from the host.

use std::cell::RefCell;
use std::sync::Arc;

use squall_core::{BufferDecl, Diagnostic, Download, GraphBuilder, Label, Upload};

use super::env::RankEnv;
use super::names::Symbols;
use crate::codes;
use crate::manifest::model::{self, Buffer, SaveRanks, WatchEvery};

/// How the buffers are declared on each rank.
pub(super) struct Plan<'s, 'm> {
    symbols: &'s Symbols<'m>,
    /// Of each buffer, whether a watched value reads it.
    watched: Vec<Vec<&'m model::Watch>>,
    /// The buffers that `stop_when` reads.
    judged: Vec<usize>,
    /// Whether any declaration differs between ranks.
    depends: bool,
}

/// A warning for each buffer whose `download` nothing comes of: that is neither saved nor watched, nor judged between steps.
pub(super) fn unread(symbols: &Symbols<'_>) -> Vec<Diagnostic> {
    let manifest = symbols.manifest;
    let watched = manifest.watches.iter().flat_map(|watch| super::watch::buffers(symbols, watch));
    let judged = manifest.pipeline.stop.iter().flat_map(|stop| super::stop::buffers(symbols, stop));
    let read: Vec<usize> = watched.chain(judged).collect();
    let buffers = manifest.buffers.iter().enumerate();
    let unread = buffers.filter(|(place, buffer)| {
        buffer.download.value != model::Download::Never && buffer.save.is_none() && !read.contains(place)
    });
    let warning = |(_, buffer): (_, &Buffer)| {
        let text = format!("`{}` is downloaded, and is neither saved nor watched", buffer.name.value);
        let help =
            "give it a `save`, or a `[[watch]]`, which download what they need; or leave `download` out";
        Diagnostic::warning(codes::UNREAD_DOWNLOAD, text, Label::at(buffer.download.span, "")).with_help(help)
    };
    unread.map(warning).collect()
}

impl<'s, 'm> Plan<'s, 'm> {
    pub(super) fn new(symbols: &'s Symbols<'m>, problems: &RefCell<Vec<Diagnostic>>) -> Plan<'s, 'm> {
        let manifest = symbols.manifest;
        let mut watched = vec![Vec::new(); manifest.buffers.len()];
        for watch in &manifest.watches {
            for place in super::watch::buffers(symbols, watch) {
                watched[place].push(watch);
            }
        }
        for buffer in &manifest.buffers {
            if buffer.init.is_some() && buffer.feed.is_some() {
                let message = format!("`{}` has both `init` and `feed`", buffer.name.value);
                let label =
                    Label::at(buffer.feed.as_ref().and_then(|f| f.span), "the feed gives it in every step");
                let report = Diagnostic::error(codes::CONFLICTING_KEYS, message, label)
                    .with_related(Label::at(buffer.init.as_ref().and_then(|i| i.span), "the init"));
                problems.borrow_mut().push(report.with_help("keep one of them"));
            }
        }
        let one_rank = |buffer: &Buffer| {
            buffer.save.as_ref().is_some_and(|save| matches!(save.value.ranks, SaveRanks::One(_)))
        };
        let depends = (0..manifest.buffers.len())
            .any(|place| symbols.depends.buffer(place) || one_rank(&manifest.buffers[place]))
            || manifest.watches.iter().any(|w| !super::watch::buffers(symbols, w).is_empty());
        let judged = manifest.pipeline.stop.as_ref().map(|stop| super::stop::buffers(symbols, stop));
        Plan { symbols, watched, judged: judged.unwrap_or_default(), depends }
    }

    /// Declares the buffers of one rank; `before` are those of the rank before.
    pub(super) fn declare(
        &self,
        env: &RankEnv<'_>,
        builder: &mut GraphBuilder<'_>,
        before: Option<&Arc<Vec<BufferDecl>>>,
        problems: &RefCell<Vec<Diagnostic>>,
    ) {
        if let Some(before) = before.filter(|_| !self.depends) {
            builder.share_buffers(before.clone());
            return;
        }
        let mut decls = Vec::with_capacity(self.symbols.manifest.buffers.len());
        for (place, buffer) in self.symbols.manifest.buffers.iter().enumerate() {
            match self.one(env, place, buffer) {
                Ok(decl) => decls.push(decl),
                Err(problem) => problems.borrow_mut().extend(problem.map(|p| *p)),
            }
        }
        match before {
            Some(before) if **before == decls => builder.share_buffers(before.clone()),
            _ => decls.into_iter().for_each(|decl| {
                builder.buffer(decl);
            }),
        }
    }

    /// One declaration; the error is `None` when the fault was kept in `env`.
    fn one(
        &self,
        env: &RankEnv<'_>,
        place: usize,
        buffer: &Buffer,
    ) -> Result<BufferDecl, Option<Box<Diagnostic>>> {
        let mut shape = Vec::with_capacity(buffer.shape.value.len());
        for (axis, formula) in buffer.shape.value.iter().enumerate() {
            let length = env.int(formula).ok_or(None)?;
            shape.push(u64::try_from(length).map_err(|_| {
                let message =
                    format!("axis {axis} of `{}` is {length} long on rank {}", buffer.name.value, env.rank());
                let label =
                    Label::at(formula.place.span(), "a length cannot be negative").on_rank(env.rank());
                Some(Box::new(Diagnostic::error(codes::SHAPE, message, label)))
            })?);
        }
        let upload = match (buffer.upload.value, buffer.init.is_some(), buffer.feed.is_some()) {
            (model::Upload::Never, ..) | (_, false, false) => Upload::Never,
            (_, _, true) | (model::Upload::Every, ..) => Upload::Every,
            (model::Upload::First, ..) => Upload::First,
        };
        let saved = buffer.save.as_ref().is_some_and(|save| match &save.value.ranks {
            SaveRanks::Each | SaveRanks::Gather => true,
            SaveRanks::One(rank) => env.int(rank) == Some(env.rank().into()),
        });
        let here = |watch: &&&model::Watch| super::watch::rank(watch, env) == Some(env.rank());
        let watched = self.watched[place].iter().any(|watch| here(&watch));
        let between = self.watched[place]
            .iter()
            .any(|watch| matches!(watch.every.value, WatchEvery::Steps(_)) && here(&watch));
        let download = match buffer.download.value {
            model::Download::Every => Download::Every,
            _ if between || self.judged.contains(&place) => Download::Asked,
            model::Download::Last => Download::Last,
            model::Download::Never if saved || watched => Download::Last,
            model::Download::Never => Download::Never,
        };
        let mut decl =
            BufferDecl::new(&buffer.name.value, buffer.dtype.value, shape).upload(upload).download(download);
        decl.span = buffer.name.span;
        Ok(decl)
    }
}
