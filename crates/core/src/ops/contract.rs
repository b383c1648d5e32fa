//! What each of squall's own ops takes, touches and needs of the other ranks.

use std::ops::Range;

use crate::args::Args;
use crate::buffer::BufferRange;
use crate::dtype::DType;
use crate::ops::Call;
use crate::ops::rules::{counted, divides, same_length};
use crate::param::{Mode, ParamDef, Type};
use crate::reduce::ReduceOp;
use crate::task::{Access, ArgError, Description, Matched, Meeting, Message, Share, Signature, Task};

/// The contract of one of squall's own ops.
#[derive(Debug)]
pub struct Contract {
    name: &'static str,
    summary: &'static str,
    params: &'static [ParamDef],
    example: &'static str,
}

const ANY: Type = Type::In(DType::ALL);
const BUFFER: ParamDef = ParamDef::read_write("buffer", ANY, "the range, worked on in place").optional();
const SEND_OR: ParamDef = ParamDef::read("send", ANY, "this rank's contribution").optional();
const RECV_OR: ParamDef =
    ParamDef::write("recv", Type::Same("send"), "the result, as long as `send`").optional();
const REDUCE_PARAM: ParamDef = ParamDef::word("reduce", ReduceOp::NAMES, "how contributions combine");

macro_rules! contract {
    ($(#[$doc:meta])* $id:ident = $name:literal, $summary:literal, $params:expr, $example:literal) => {
        $(#[$doc])*
        pub static $id: Contract = Contract {
            name: $name,
            summary: $summary,
            params: $params,
            example: concat!(
                "manifest = 1\n[pipeline]\nname = \"", $name, "\"\n[world]\ndevices = \"host:0..2\"\n", $example
            ),
        };
    };
}

contract!(
    /// `all_reduce`.
    ALL_REDUCE = "all_reduce",
    "every rank gets the reduction of all ranks' elements",
    &[BUFFER, SEND_OR, RECV_OR, REDUCE_PARAM],
    r#"[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
save = "x-{rank}.npy"
[[task]]
op = "all_reduce"
args = { buffer = "x", reduce = "sum" }
"#
);
contract!(
    /// `broadcast`.
    BROADCAST = "broadcast",
    "every rank gets root's elements",
    &[BUFFER, SEND_OR, RECV_OR, ParamDef::rank("root", "the rank that gives")],
    r#"[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
save = "x-{rank}.npy"
[[task]]
op = "broadcast"
args = { buffer = "x", root = "world - 1" }
"#
);
contract!(
    /// `reduce`.
    REDUCE = "reduce",
    "root gets the reduction of all ranks' elements; other ranks' `recv` stays as it was",
    &[BUFFER, SEND_OR, RECV_OR, REDUCE_PARAM, ParamDef::rank("root", "the rank that receives")],
    r#"[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
save = "x-{rank}.npy"
[[task]]
op = "reduce"
args = { buffer = "x", reduce = "max", root = 0 }
"#
);
contract!(
    /// `all_gather`.
    ALL_GATHER = "all_gather",
    "every rank gets all ranks' blocks, in rank order",
    &[
        ParamDef::read("send", ANY, "this rank's block, of any length; may be its own block of `recv`"),
        ParamDef::write("recv", Type::Same("send"), "[sum of all ranks' send]"),
    ],
    r#"[buffer.x]
dtype = "i32"
shape = [4]
init = { fill = "rank" }
[buffer.all]
dtype = "i32"
shape = ["world", 4]
save = "all-{rank}.npy"
[[task]]
op = "all_gather"
args = { send = "x", recv = "all" }
"#
);
contract!(
    /// `reduce_scatter`.
    REDUCE_SCATTER = "reduce_scatter",
    "every rank gets its own block of the reduction of all ranks' elements",
    &[
        ParamDef::read("send", ANY, "[sum of all ranks' recv]"),
        ParamDef::write(
            "recv",
            Type::Same("send"),
            "this rank's block, of any length; may be its own block of `send`"
        ),
        REDUCE_PARAM,
    ],
    r#"[buffer.all]
dtype = "f32"
shape = ["world", 4]
init = { fill = "rank" }
[buffer.x]
dtype = "f32"
shape = [4]
save = "x-{rank}.npy"
[[task]]
op = "reduce_scatter"
args = { send = "all", recv = "x", reduce = "sum" }
"#
);
contract!(
    /// `send`.
    SEND = "send",
    "gives elements to another rank, which must receive them; waits until it does",
    &[ParamDef::read("buffer", ANY, "what is sent"), ParamDef::rank("peer", "the rank that receives")],
    r#"[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
[[task]]
op = "send"
args = { buffer = "x", peer = "rank + 1" }
when = "rank % 2 == 0 and rank + 1 < world"
[[task]]
op = "recv"
args = { buffer = "x", peer = "rank - 1" }
when = "rank % 2 == 1"
"#
);
contract!(
    /// `recv`.
    RECV = "recv",
    "takes the elements that another rank sends; waits until it does",
    &[ParamDef::write("buffer", ANY, "where they land"), ParamDef::rank("peer", "the rank that sends")],
    r#"[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
[[task]]
group = [
  { op = "send", args = { buffer = "x", peer = "rank - 1" }, when = "rank % 2 == 1" },
  { op = "recv", args = { buffer = "x", peer = "rank + 1" }, when = "rank % 2 == 0 and rank + 1 < world" },
]
"#
);
contract!(
    /// `send_recv`.
    SEND_RECV = "send_recv",
    "sends to one rank and receives from another at once",
    &[
        ParamDef::read("send", ANY, "what is sent"),
        ParamDef::rank("to", "the rank that receives it"),
        ParamDef::write("recv", ANY, "where the other's elements land; may differ from `send` in length"),
        ParamDef::rank("from", "the rank that sends them"),
    ],
    r#"[buffer.u]
dtype = "f32"
shape = [2, 4]
init = { fill = "rank" }
[[task]]
op = "send_recv"
args = { send = "u[1]", to = "(rank + 1) % world", recv = "u[0]", from = "(rank - 1) % world" }
"#
);
contract!(
    /// `all_to_all`.
    ALL_TO_ALL = "all_to_all",
    "rank r's block p goes to rank p's block r",
    &[
        ParamDef::read("send", ANY, "[world × block], block p for rank p; with counts, the sum of row `rank`"),
        ParamDef::write(
            "recv",
            Type::Same("send"),
            "[world × block], block p from rank p; with counts, the sum of column `rank`"
        ),
        ParamDef::matrix("counts", "[r][p]: how many rows, of the first axis, rank r sends to rank p").optional(),
    ],
    r#"[buffer.out]
dtype = "i32"
shape = ["world", 2]
init = { fill = "rank" }
[buffer.in]
dtype = "i32"
shape = ["world", 2]
save = "in-{rank}.npy"
[[task]]
op = "all_to_all"
args = { send = "out", recv = "in" }
"#
);
contract!(
    /// `gather`.
    GATHER = "gather",
    "root gets all ranks' blocks, in rank order",
    &[
        ParamDef::read("send", ANY, "this rank's block, of any length; on root it may be its own block of `recv`"),
        ParamDef::write("recv", Type::Same("send"), "[sum of all ranks' send] on root; untouched elsewhere"),
        ParamDef::rank("root", "the rank that receives"),
    ],
    r#"[buffer.x]
dtype = "i32"
shape = [2]
init = { fill = "rank" }
[buffer.all]
dtype = "i32"
shape = ["world", 2]
init = { fill = -1 }
save = "all-{rank}.npy"
[[task]]
op = "gather"
args = { send = "x", recv = "all", root = 0 }
"#
);
contract!(
    /// `scatter`.
    SCATTER = "scatter",
    "every rank gets its own block of root's elements",
    &[
        ParamDef::read("send", ANY, "[sum of all ranks' recv] on root; untouched elsewhere"),
        ParamDef::write(
            "recv",
            Type::Same("send"),
            "this rank's block, of any length; on root it may be its own block of `send`"
        ),
        ParamDef::rank("root", "the rank that gives"),
    ],
    r#"[buffer.all]
dtype = "i32"
shape = ["world", 2]
init = { fill = "rank" }
[buffer.x]
dtype = "i32"
shape = [2]
save = "x-{rank}.npy"
[[task]]
op = "scatter"
args = { send = "all", recv = "x", root = 0 }
"#
);

/// All contracts, by name.
pub static CONTRACTS: [&Contract; 11] = [
    &ALL_GATHER,
    &ALL_REDUCE,
    &ALL_TO_ALL,
    &BROADCAST,
    &GATHER,
    &RECV,
    &REDUCE,
    &REDUCE_SCATTER,
    &SCATTER,
    &SEND,
    &SEND_RECV,
];

impl Task for Contract {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn params(&self) -> &'static [ParamDef] {
        self.params
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        let call = Call::read(self.name, args)?;
        let mut describe =
            Describe { in_place: args.buffer("buffer").is_some(), accesses: Vec::with_capacity(2) };
        let (rank, size) = (args.comm_rank, args.comm_size);
        let meetings = match call {
            Call::AllReduce { send, recv, reduce } => {
                same_length(send, recv)?;
                describe.map(send, recv);
                vec![self.collective(send, &[("reduce", Matched::Word(reduce.name()))])]
            }
            Call::Broadcast { send, recv, root } => {
                same_length(send, recv)?;
                match (rank == root, describe.in_place || send == recv) {
                    (true, true) => describe.touch("send", send, Mode::Read),
                    (true, false) => describe.map(send, recv),
                    (false, _) => describe.touch("recv", recv, Mode::Write),
                }
                vec![self.collective(send, &[("root", Matched::Number(root.into()))])]
            }
            Call::Reduce { send, recv, reduce, root } => {
                same_length(send, recv)?;
                if rank == root {
                    describe.map(send, recv);
                } else {
                    describe.touch("send", send, Mode::Read);
                }
                let fields =
                    [("reduce", Matched::Word(reduce.name())), ("root", Matched::Number(root.into()))];
                vec![self.collective(send, &fields)]
            }
            Call::AllGather { send, recv } => {
                describe.gather(send, recv);
                vec![self.divided(("send", send), Some(("recv", recv)), vec![])]
            }
            Call::ReduceScatter { send, recv, reduce } => {
                if is_within(recv, send) {
                    describe.around("send", send, recv, Mode::Read);
                    describe.touch("recv", recv, Mode::ReadWrite);
                } else {
                    describe.touch("send", send, Mode::Read);
                    describe.touch("recv", recv, Mode::Write);
                }
                let reduce = ("reduce", Matched::Word(reduce.name()));
                vec![self.divided(("recv", recv), Some(("send", send)), vec![reduce])]
            }
            Call::Send { buffer, peer } => {
                describe.touch("buffer", buffer, Mode::Read);
                vec![Meeting::Send(message(buffer, peer))]
            }
            Call::Recv { buffer, peer } => {
                describe.touch("buffer", buffer, Mode::Write);
                vec![Meeting::Recv(message(buffer, peer))]
            }
            Call::SendRecv { send, to, recv, from } => {
                describe.touch("send", send, Mode::Read);
                describe.touch("recv", recv, Mode::Write);
                vec![Meeting::Send(message(send, to)), Meeting::Recv(message(recv, from))]
            }
            Call::AllToAll { send, recv, counts } => {
                let lengths = match counts {
                    None => {
                        same_length(send, recv)?;
                        divides("send", send.len(), size)?;
                        ("count", Matched::Number(send.len().into()))
                    }
                    Some(counts) => {
                        counted(counts, send, recv, rank, size)?;
                        ("counts", Matched::Numbers(counts.clone()))
                    }
                };
                describe.touch("send", send, Mode::Read);
                describe.touch("recv", recv, Mode::Write);
                vec![self.meeting(vec![lengths, ("dtype", Matched::DType(send.dtype))], None)]
            }
            Call::Gather { send, recv, root } => {
                if rank == root {
                    describe.gather(send, recv);
                } else {
                    describe.touch("send", send, Mode::Read);
                }
                let whole = (rank == root).then_some(("recv", recv));
                vec![self.divided(("send", send), whole, vec![("root", Matched::Number(root.into()))])]
            }
            Call::Scatter { send, recv, root } => {
                if rank != root {
                    describe.touch("recv", recv, Mode::Write);
                } else {
                    describe.touch("send", send, Mode::Read);
                    if !is_within(recv, send) {
                        describe.touch("recv", recv, Mode::Write);
                    }
                }
                let whole = (rank == root).then_some(("send", send));
                vec![self.divided(("recv", recv), whole, vec![("root", Matched::Number(root.into()))])]
            }
        };
        Ok(Description { accesses: describe.accesses, meetings })
    }
}

impl Contract {
    /// The meeting of a collective whose ranges all have the length and dtype of `block`.
    fn collective(&self, block: &BufferRange, more: &[(&'static str, Matched)]) -> Meeting {
        let mut fields = Vec::with_capacity(2 + more.len());
        fields.push(("count", Matched::Number(block.len().into())));
        fields.push(("dtype", Matched::DType(block.dtype)));
        fields.extend_from_slice(more);
        self.meeting(fields, None)
    }

    /// The meeting of a collective whose ranks divide a whole, which is there on some of them.
    fn divided(
        &self,
        part: (&'static str, &BufferRange),
        whole: Option<(&'static str, &BufferRange)>,
        mut more: Vec<(&'static str, Matched)>,
    ) -> Meeting {
        more.insert(0, ("dtype", Matched::DType(part.1.dtype)));
        let within = whole.filter(|(_, whole)| is_within(part.1, whole));
        let share = Share {
            part: (part.0, part.1.len()),
            whole: whole.map(|(param, whole)| (param, whole.len())),
            place: within.map(|(_, whole)| part.1.offset - whole.offset),
        };
        self.meeting(more, Some(share))
    }

    fn meeting(&self, fields: Vec<(&'static str, Matched)>, share: Option<Share>) -> Meeting {
        Meeting::Collective(Box::new(Signature { op: self.name, fields, share }))
    }
}

fn message(range: &BufferRange, peer: u32) -> Message {
    Message { peer, count: range.len(), dtype: range.dtype }
}

/// Collects accesses.
struct Describe {
    in_place: bool,
    accesses: Vec<Access>,
}

impl Describe {
    fn push(&mut self, param: &'static str, of: &BufferRange, range: Range<u64>, mode: Mode) {
        let param = if self.in_place { "buffer" } else { param };
        if !range.is_empty() {
            self.accesses.push(Access { param, buffer: of.buffer, range, mode });
        }
    }

    fn touch(&mut self, param: &'static str, range: &BufferRange, mode: Mode) {
        self.push(param, range, elements(range), mode);
    }

    /// `recv` becomes a function of `send` and of other ranks', element by element: both may be one range.
    fn map(&mut self, send: &BufferRange, recv: &BufferRange) {
        if (send.buffer, send.offset) == (recv.buffer, recv.offset) {
            self.touch("recv", recv, Mode::ReadWrite);
        } else {
            self.touch("send", send, Mode::Read);
            self.touch("recv", recv, Mode::Write);
        }
    }

    /// `send` becomes a block of `recv`, and may already be it.
    fn gather(&mut self, send: &BufferRange, recv: &BufferRange) {
        self.touch("send", send, Mode::Read);
        if is_within(send, recv) {
            self.around("recv", recv, send, Mode::Write);
        } else {
            self.touch("recv", recv, Mode::Write);
        }
    }

    /// `whole` without `block`.
    fn around(&mut self, param: &'static str, whole: &BufferRange, block: &BufferRange, mode: Mode) {
        let (outer, inner) = (elements(whole), elements(block));
        self.push(param, whole, outer.start..inner.start, mode);
        self.push(param, whole, inner.end..outer.end, mode);
    }
}

fn elements(range: &BufferRange) -> Range<u64> {
    range.offset..range.offset + range.len()
}

/// Whether `part` lies within `whole`. Whether that is the rank's own place in it, only verification can tell, which knows all ranks'
/// parts. An empty part lies nowhere.
fn is_within(part: &BufferRange, whole: &BufferRange) -> bool {
    let (inner, outer) = (elements(part), elements(whole));
    part.buffer == whole.buffer && !inner.is_empty() && outer.start <= inner.start && inner.end <= outer.end
}
