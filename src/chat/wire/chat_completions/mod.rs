//! OpenAI Chat Completions, as spoken by OpenAI, OpenRouter, llama.cpp, vLLM and many more.
//!
//! `encode` writes what the strictest known server takes; `decode` reads what the sloppiest sends.
//! The request is contract section 9, the reading rules are the quirks of `openai-chat`.

mod decode;
mod encode;
mod plain;
mod reasoning;
#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::encode;

/// Reasoning comes under one of these names and goes back under the same, never another (quirks 98, 99).
const REASONING_DETAILS: &str = "reasoning_details";
const REASONING_TEXTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// Metadata of single calls, kept as an object from call id to value. Gemini signs its calls this way.
const EXTRA_CONTENT: &str = "extra_content";
