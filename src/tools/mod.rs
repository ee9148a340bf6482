//! stand-in
use crate::{
    cancel::CancelToken,
    chat::message::{ToolCall, ToolSpec},
};
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutput {
    Command(String),
}
impl ToolOutput {
    pub fn to_content(&self) -> String {
        let Self::Command(s) = self;
        s.clone()
    }
    pub fn from_content(s: &str) -> Self {
        Self::Command(s.into())
    }
    pub fn map_text(self, f: impl Fn(String) -> String) -> Self {
        let Self::Command(s) = self;
        Self::Command(f(s))
    }
    pub fn canceled_before(call: &ToolCall) -> Self {
        Self::Command(call.id.clone())
    }
}
pub struct ToolSet;
impl ToolSet {
    pub fn specs(&self) -> &[ToolSpec] {
        &[]
    }
    pub fn accepts(&self, _c: &ToolCall) -> bool {
        true
    }
    pub async fn run(&self, c: &ToolCall, _t: &CancelToken) -> ToolOutput {
        ToolOutput::Command(c.id.clone())
    }
}
