//! Conditions on a request: what a guard of a script asks before its reply goes out.
//!
//! All keys that are given in a [`Predicate`] or a [`Check`] have to hold. JSON pointers may count
//! from the end of an array (`/messages/-1/role`). Knows the parsed request, not how it was read.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{audit::AuditCode, request::Request};

/// A condition on a whole request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Predicate {
    /// The body has something at this pointer.
    pub has: Option<String>,
    /// The body has nothing at this pointer.
    pub lacks: Option<String>,
    /// The body contains this text.
    pub text: Option<String>,
    /// The body contains these texts, their first places in this order.
    pub ordered: Option<Vec<String>>,
    /// The path matches.
    pub path: Option<Pattern>,
    /// The query matches.
    pub query: Option<Pattern>,
    /// The method is this one.
    pub method: Option<String>,
    /// The header of this name (or nothing, when absent) matches.
    pub header: Option<(String, Pattern)>,
    /// The number of this request, from 1, is in the range.
    pub n: Option<Range>,
    /// The audit found this.
    pub audit: Option<AuditCode>,
    /// All of these hold.
    pub all: Option<Vec<Predicate>>,
    /// One of these holds.
    pub any: Option<Vec<Predicate>>,
    /// This does not hold.
    pub not: Option<Box<Predicate>>,
    /// An element of an array satisfies all checks.
    pub some: Option<SomeOf>,
}

/// Both ends included; an absent end is open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The smallest.
    pub min: Option<usize>,
    /// The largest.
    pub max: Option<usize>,
}

/// An array of the body and what one of its elements must look like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SomeOf {
    /// Pointer to the array.
    #[serde(rename = "in")]
    pub array: String,
    /// Checks by pointer from the element.
    #[serde(rename = "match")]
    pub matches: BTreeMap<String, Check>,
}

/// A condition on one value, or on its absence.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Check {
    /// It equals this (null included).
    #[serde(deserialize_with = "given")]
    pub is: Option<Value>,
    /// It is there, or it is not.
    pub present: Option<bool>,
    /// It is of this type.
    #[serde(rename = "type")]
    pub kind: Option<Kind>,
    /// It is absent, null, `""`, `[]` or `{}`, or none of these.
    pub empty: Option<bool>,
    /// It is text that matches.
    pub re: Option<Pattern>,
    /// It is an array with an element that satisfies these.
    pub some: Option<BTreeMap<String, Check>>,
}

/// JSON types, and `missing`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Kind {
    String,
    Array,
    Object,
    Number,
    Bool,
    Null,
    Missing,
}

// Without this, `"is": null` would read as "no such check".
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A regular expression that may begin with `^(?!...)`, the one look-around scripts use.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    matches: Regex,
    refuses: Option<Regex>,
}

impl Pattern {
    /// Whether the pattern is found in `text`.
    pub fn found_in(&self, text: &str) -> bool {
        self.refuses.as_ref().is_none_or(|refused| !refused.is_match(text)) && self.matches.is_match(text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(pattern: String) -> Result<Self, String> {
        let compile = |text: &str| Regex::new(text).map_err(|error| format!("not a pattern: {error}"));
        let Some(refused) = pattern.strip_prefix("^(?!") else {
            return Ok(Self { matches: compile(&pattern)?, refuses: None });
        };
        let end = closing(refused).ok_or("not a pattern: unclosed group")?;
        let (refused, rest) = (&refused[..end], &refused[end + 1..]);
        Ok(Self {
            matches: compile(&format!("^(?:{rest})"))?,
            refuses: Some(compile(&format!("^(?:{refused})"))?),
        })
    }
}

/// Where the group closes that opened before `pattern`. Classes with a parenthesis are not looked
/// into; the pattern then fails to compile, which says so.
fn closing(pattern: &str) -> Option<usize> {
    let (mut depth, mut escaped) = (0, false);
    for (at, byte) in pattern.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

impl Predicate {
    /// Whether everything that is asked holds for the request.
    pub(super) fn holds(&self, request: &Request) -> bool {
        fn ok<T: ?Sized>(asked: Option<&T>, test: impl FnOnce(&T) -> bool) -> bool {
            asked.is_none_or(test)
        }
        let at = |path: &str| request.body.as_ref().and_then(|body| pointer(body, path));
        ok(self.has.as_ref(), |path| at(path).is_some())
            && ok(self.lacks.as_ref(), |path| at(path).is_none())
            && ok(self.text.as_ref(), |part| request.text.contains(part.as_str()))
            && ok(self.ordered.as_ref(), |parts| in_order(&request.text, parts))
            && ok(self.path.as_ref(), |pattern| pattern.found_in(&request.path))
            && ok(self.query.as_ref(), |pattern| pattern.found_in(&request.query))
            && ok(self.method.as_ref(), |method| *method == request.method)
            && ok(self.header.as_ref(), |(name, pattern)| pattern.found_in(request.header(name)))
            && ok(self.n.as_ref(), |range| range.contains(request.n))
            && ok(self.audit.as_ref(), |code| request.audit.contains(code))
            && ok(self.all.as_ref(), |all| all.iter().all(|each| each.holds(request)))
            && ok(self.any.as_ref(), |any| any.iter().any(|each| each.holds(request)))
            && ok(self.not.as_ref(), |not| !not.holds(request))
            && ok(self.some.as_ref(), |some| any_element(at(&some.array), &some.matches))
    }
}

fn in_order(text: &str, parts: &[String]) -> bool {
    let places: Option<Vec<_>> = parts.iter().map(|part| text.find(part.as_str())).collect();
    places.is_some_and(|places| places.is_sorted())
}

impl Range {
    fn contains(&self, n: usize) -> bool {
        self.min.is_none_or(|min| min <= n) && self.max.is_none_or(|max| n <= max)
    }
}

fn any_element(array: Option<&Value>, matches: &BTreeMap<String, Check>) -> bool {
    let fits = |element| matches.iter().all(|(path, check)| check.holds(pointer(element, path)));
    array.and_then(Value::as_array).is_some_and(|elements| elements.iter().any(fits))
}

impl Check {
    fn holds(&self, value: Option<&Value>) -> bool {
        self.is.as_ref().is_none_or(|want| value.is_some_and(|value| equal(value, want)))
            && self.present.is_none_or(|want| value.is_some() == want)
            && self.kind.is_none_or(|want| kind(value) == want)
            && self.empty.is_none_or(|want| is_empty(value) == want)
            && self.re.as_ref().is_none_or(|re| value.and_then(Value::as_str).is_some_and(|s| re.found_in(s)))
            && self.some.as_ref().is_none_or(|matches| any_element(value, matches))
    }
}

/// Equality as people read JSON: 1 and 1.0 are the same number.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn kind(value: Option<&Value>) -> Kind {
    match value {
        None => Kind::Missing,
        Some(Value::Null) => Kind::Null,
        Some(Value::Bool(_)) => Kind::Bool,
        Some(Value::Number(_)) => Kind::Number,
        Some(Value::String(_)) => Kind::String,
        Some(Value::Array(_)) => Kind::Array,
        Some(Value::Object(_)) => Kind::Object,
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(members)) => members.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => false,
    }
}

/// What `path` leads to. Array places may be negative, from the end; `""` and `"/"` are the document.
pub(super) fn pointer<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.trim_start_matches('/');
    if path.is_empty() {
        return Some(document);
    }
    path.split('/').try_fold(document, |value, part| match value {
        Value::Object(members) => members.get(&part.replace("~1", "/").replace("~0", "~")),
        Value::Array(items) => {
            let place: isize = part.parse().ok()?;
            let place = if place < 0 { items.len().checked_add_signed(place)? } else { place as usize };
            items.get(place)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request() -> Request {
        let body = json!({
            "model": "m", "n": 1, "nothing": null, "a/b": {"c~d": 1},
            "messages": [{"role": "user", "content": "hi"}, {"role": "tool", "tags": [{"k": 2}], "content": ""}],
        });
        let mut request = Request::post("/v1/chat/completions?api-version=7", body.to_string().into_bytes());
        request.headers.insert("x-tag".into(), "blue".into());
        request.n = 3;
        request
    }

    fn check(predicate: Value, expected: bool) {
        let parsed: Predicate = serde_json::from_value(predicate.clone()).expect("a predicate");
        assert_eq!(parsed.holds(&request()), expected, "{predicate}");
    }

    #[test]
    fn whole_request() {
        check(json!({}), true);
        check(json!({"has": "/model"}), true);
        check(json!({"has": "/nothing"}), true);
        check(json!({"has": "/messages/-1/role"}), true);
        check(json!({"has": "/messages/-3"}), false);
        check(json!({"has": "/messages/x"}), false);
        check(json!({"has": "/a~1b/c~0d"}), true);
        check(json!({"has": ""}), true);
        check(json!({"lacks": "/stream"}), true);
        check(json!({"text": "\"role\":\"tool\""}), true);
        check(json!({"ordered": ["user", "tool"]}), true);
        check(json!({"ordered": ["tool", "user"]}), false);
        check(json!({"ordered": ["user", "nowhere"]}), false);
        check(json!({"path": "^/v1/chat/"}), true);
        check(json!({"query": "(^|&)api-version=7$"}), true);
        check(json!({"method": "GET"}), false);
        check(json!({"header": ["X-Tag", "^bl"]}), true);
        check(json!({"header": ["absent", "."]}), false);
        check(json!({"n": {"min": 3, "max": 3}}), true);
        check(json!({"n": {"min": 4}}), false);
        check(json!({"audit": "no_auth"}), true);
        check(json!({"audit": "not_json"}), false);
        check(json!({"has": "/model", "lacks": "/model"}), false);
        check(json!({"all": [{"has": "/model"}, {"not": {"has": "/stream"}}]}), true);
        check(json!({"any": [{"has": "/stream"}, {"has": "/nope"}]}), false);
    }

    #[test]
    fn one_element() {
        let some = |matches: Value, expected| {
            check(json!({"some": {"in": "/messages", "match": matches}}), expected)
        };
        some(json!({"/role": {"is": "tool"}}), true);
        some(json!({"/role": {"is": "tool"}, "/content": {"empty": false}}), false);
        some(json!({"/content": {"empty": true, "type": "string"}}), true);
        some(json!({"/gone": {"present": false, "type": "missing", "empty": true}}), true);
        some(json!({"/gone": {"is": null}}), false);
        some(json!({"/role": {"re": "^u"}}), true);
        some(json!({"/tags": {"some": {"/k": {"is": 2.0, "type": "number"}}}}), true);
        some(json!({"": {"type": "object"}}), true);
        check(json!({"some": {"in": "/model", "match": {}}}), false);
    }

    #[test]
    fn misspelt_keys_are_errors() {
        for text in [r#"{"hass":"/x"}"#, r#"{"some":{"in":"/x","match":{"":{"iss":1}}}}"#, r#"{"path":"("}"#]
        {
            assert!(serde_json::from_str::<Predicate>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_may_refuse_a_beginning() {
        let found = |pattern: &str, text| Pattern::try_from(pattern.to_string()).unwrap().found_in(text);
        assert!(found("^(?![a-z]{3}$)", "abcd") && !found("^(?![a-z]{3}$)", "abc"));
        assert!(found(r"^(?!(a|b)\)$)x?", "c)") && !found(r"^(?!(a|b)\)$)", "b)"));
        assert!(Pattern::try_from("^(?!x".to_string()).is_err());
    }
}
