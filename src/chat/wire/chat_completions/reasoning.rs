//! Reasoning of a reply: gathered as it came, never shown, sent back with its message.

use serde_json::{Value, json};

use super::{super::json, EXTRA_CONTENT, REASONING_DETAILS, REASONING_TEXTS};
use crate::{
    chat::{error::ChatError, message::Opaque},
    config::Limits,
};

/// What has come so far.
#[derive(Debug, Default)]
pub struct Reasoning {
    details: Vec<Value>,
    texts: [String; REASONING_TEXTS.len()],
    bytes: usize,
}

impl Reasoning {
    /// Keeps what has to go back, under the name it came with.
    pub fn gather(&mut self, delta: &mut Value, limits: &Limits) -> Result<(), ChatError> {
        if let Some(fragments) = delta.get_mut(REASONING_DETAILS).and_then(Value::as_array_mut) {
            self.bytes += fragments.iter().map(|fragment| fragment.to_string().len() + 1).sum::<usize>();
            self.details.append(fragments);
        }
        for (name, whole) in REASONING_TEXTS.iter().zip(&mut self.texts) {
            if let Some(text) = delta.get(name).and_then(Value::as_str) {
                self.bytes += text.len();
                whole.push_str(text);
            }
        }
        if limits.reasoning.exceeded_by(self.bytes) {
            let what = "provider reasoning details exceeded the response limit";
            return Err(ChatError::over(limits.reasoning, what));
        }
        Ok(())
    }

    /// As opaque blocks, with the metadata of the calls behind them.
    pub fn into_opaque(self, extras: Option<Value>, marked: bool) -> Vec<Opaque> {
        let details = (!self.details.is_empty()).then_some((REASONING_DETAILS, Value::Array(self.details)));
        let texts = REASONING_TEXTS.into_iter().zip(self.texts);
        let texts = texts.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, json!(text)));
        let mut all: Vec<_> = details
            .into_iter()
            .chain(texts)
            .chain(extras.map(|extras| (EXTRA_CONTENT, extras)))
            .map(|(field, value)| Opaque { field: field.to_owned(), value })
            .collect();
        if marked {
            all.iter_mut().for_each(|opaque| json::settle_value(&mut opaque.value));
        }
        all
    }
}
