//! Tool calls put together from fragments, however a provider numbers them (quirks 57, 68 to 79).
//!
//! The calls live in the reply from their first fragment on, so that a cancelled stream leaves them
//! behind; here is only what tells which fragment belongs to which. Knows no protocol's field names.

use serde_json::{Map, Value};

use super::{arguments, json};
use crate::{
    chat::{
        error::ChatError,
        message::{ContentBlock, ToolCall, ToolSpec},
        model::Reply,
    },
    config::{Limit, Limits},
};

/// A piece of a call. Empty strings count as absent.
#[derive(Debug, Default)]
pub struct Fragment {
    pub index: Option<i64>,
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// Metadata that goes back with the call.
    pub extra: Option<Value>,
}

impl Fragment {
    fn is_blank(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_empty()
    }
}

/// One call in progress. The n-th slot belongs to the n-th call of the reply.
#[derive(Debug)]
struct Slot {
    index: Option<i64>,
    /// The id as it came, which the call's own may differ from.
    id: String,
    extra: Option<Value>,
}

/// The calls of one reply.
#[derive(Debug)]
pub struct Calls {
    slots: Vec<Slot>,
    tools: Vec<&'static str>,
    argument_bytes: usize,
    arguments_limit: Limit,
    call_name_limit: Limit,
    calls_limit: Limit,
    seed: u64,
}

impl Calls {
    pub fn new(tools: &[ToolSpec], limits: &Limits, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            tools: tools.iter().map(|tool| tool.name).collect(),
            argument_bytes: 0,
            arguments_limit: limits.arguments,
            call_name_limit: limits.call_name,
            calls_limit: limits.calls,
            seed,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds `fragment` to the call it belongs to, or begins one.
    pub fn add(&mut self, fragment: Fragment, reply: &mut Reply) -> Result<(), ChatError> {
        self.check(&fragment)?;
        let slot = match self.slot_of(&fragment, reply) {
            Some(slot) => slot,
            // A blank entry is no call.
            None if fragment.is_blank() => return Ok(()),
            None => self.begin(&fragment, reply)?,
        };
        if !fragment.id.is_empty() && self.slots[slot].id.is_empty() {
            self.adopt_id(slot, &fragment.id, reply);
        }
        if fragment.extra.is_some() {
            self.slots[slot].extra = fragment.extra;
        }
        let Some(call) = call_mut(reply, self.slots.len(), slot) else { return Ok(()) };
        if call.name.is_empty() {
            call.name = declared_name(fragment.name, &self.tools);
        }
        call.arguments.push_str(&fragment.arguments);
        Ok(())
    }

    fn check(&mut self, fragment: &Fragment) -> Result<(), ChatError> {
        let limit = self.call_name_limit;
        if limit.exceeded_by(fragment.id.len()) {
            return Err(ChatError::over(limit, "provider tool-call id exceeded the response limit"));
        }
        if limit.exceeded_by(fragment.name.len()) {
            return Err(ChatError::over(limit, "provider tool-call name exceeded the response limit"));
        }
        self.argument_bytes += fragment.arguments.len();
        if self.arguments_limit.exceeded_by(self.argument_bytes) {
            let what = "provider tool arguments exceeded the response limit";
            return Err(ChatError::over(self.arguments_limit, what));
        }
        Ok(())
    }

    /// The call in progress that `fragment` continues.
    fn slot_of(&self, fragment: &Fragment, reply: &Reply) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let bare = fragment.id.is_empty() && fragment.name.is_empty();
        let same_index = |slot: &Slot| fragment.index.is_some() && slot.index == fragment.index;
        let same_id = |slot: &Slot| !fragment.id.is_empty() && slot.id == fragment.id;
        if let Some(slot) = self.slots.iter().rposition(|slot| same_id(slot) && same_index(slot)) {
            return Some(slot); // Quirk 72: the same id is the same call.
        }
        let candidate = match self.slots.iter().rposition(same_index) {
            Some(slot) => slot,
            // Quirk 75: without id and name it belongs to the call in progress.
            None if bare => return Some(last),
            None if fragment.index.is_some() => {
                // A known id under another index: a fragment of that call, unless it names a tool again.
                return self.slots.iter().rposition(same_id).filter(|_| fragment.name.is_empty());
            }
            None => self.slots.iter().rposition(same_id).unwrap_or(last),
        };
        let slot = &self.slots[candidate];
        // Quirk 69: another id is another call, whatever the index says.
        let other_id = !fragment.id.is_empty() && !slot.id.is_empty() && slot.id != fragment.id;
        // Quirk 68: so is a name after a finished call; quirk 73: a name alone may just be repeated.
        let brings_more = !fragment.arguments.is_empty() || (fragment.index.is_none() && !same_id(slot));
        let starts_over = !fragment.name.is_empty() && brings_more && self.is_whole(candidate, reply);
        (!other_id && !starts_over).then_some(candidate)
    }

    /// Whether the arguments of `slot` are complete.
    fn is_whole(&self, slot: usize, reply: &Reply) -> bool {
        call(reply, self.slots.len(), slot).is_some_and(|call| {
            call.arguments.trim_end().ends_with('}') && arguments::is_object(&call.arguments)
        })
    }

    fn begin(&mut self, fragment: &Fragment, reply: &mut Reply) -> Result<usize, ChatError> {
        if self.calls_limit.exceeded_by(self.slots.len() + 1) {
            return Err(ChatError::over(self.calls_limit, "provider response exceeded the tool-call limit"));
        }
        let id = self.unique_id(&fragment.id, reply);
        reply.blocks.push(ContentBlock::ToolCall(ToolCall { id, ..ToolCall::default() }));
        self.slots.push(Slot { index: fragment.index, id: fragment.id.clone(), extra: None });
        Ok(self.slots.len() - 1)
    }

    /// An id that came late replaces the made-up one.
    fn adopt_id(&mut self, slot: usize, id: &str, reply: &mut Reply) {
        let unique = self.unique_id(id, reply);
        self.slots[slot].id = id.to_owned();
        if let Some(call) = call_mut(reply, self.slots.len(), slot) {
            call.id = unique;
        }
    }

    /// `wanted`, unless it is empty or taken: results are paired by id within a message (quirks 71, 78).
    /// Nine letters and digits pass everywhere (quirk 102).
    fn unique_id(&mut self, wanted: &str, reply: &Reply) -> String {
        let taken = |id: &str| reply.calls().any(|call| call.id == id);
        let mut id = wanted.to_owned();
        while id.is_empty() || taken(&id) {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.seed;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            id.clear();
            for _ in 0..9 {
                let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
                id.push(digits[(bits % 62) as usize] as char);
                bits /= 62;
            }
        }
        id
    }

    /// The reply is complete: arguments in order, calls in index order. Gives the metadata by call id.
    /// `marked` tells that strings may hold marks of `json`.
    pub fn finish(&mut self, reply: &mut Reply, marked: bool) -> Option<Value> {
        let first = reply.blocks.len() - self.slots.len();
        let mut calls: Vec<_> =
            std::mem::take(&mut self.slots).into_iter().zip(reply.blocks.drain(first..)).collect();
        calls.sort_by_key(|(slot, _)| slot.index);
        let mut extras = Map::new();
        for (slot, mut block) in calls {
            if let ContentBlock::ToolCall(call) = &mut block {
                let text = std::mem::take(&mut call.arguments);
                call.arguments = arguments::normalise(if marked { json::settle(&text) } else { text });
                if marked {
                    call.id = json::settle(&call.id);
                    call.name = json::settle(&call.name);
                }
                extras.extend(slot.extra.map(|extra| (call.id.clone(), extra)));
            }
            reply.blocks.push(block);
        }
        (!extras.is_empty()).then_some(Value::Object(extras))
    }
}

fn call(reply: &Reply, slots: usize, slot: usize) -> Option<&ToolCall> {
    match reply.blocks.get(reply.blocks.len().checked_sub(slots)? + slot)? {
        ContentBlock::ToolCall(call) => Some(call),
        _ => None,
    }
}

fn call_mut(reply: &mut Reply, slots: usize, slot: usize) -> Option<&mut ToolCall> {
    let first = reply.blocks.len().checked_sub(slots)?;
    match reply.blocks.get_mut(first + slot)? {
        ContentBlock::ToolCall(call) => Some(call),
        _ => None,
    }
}

/// `name` without what models hang on it, if that leaves a declared tool (quirk 79).
fn declared_name(name: String, tools: &[&str]) -> String {
    let known = |name: &str| tools.contains(&name);
    if name.is_empty() || known(&name) {
        return name;
    }
    let bare = name.split("<|").next().unwrap_or("").trim();
    let prefixes = ["functions", "function", "default_api", "tools", "tool"];
    let rest = bare
        .split_once(['.', ':'])
        .filter(|(prefix, _)| prefixes.contains(prefix))
        .map_or(bare, |(_, rest)| rest);
    if known(rest) { rest.to_owned() } else { name }
}
