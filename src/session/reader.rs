//! Reads a session file line by line: what is sound, what is damaged, what a crash tore.
//!
//! Sound records are handed on one at a time, so a long file is never held whole. Damage in the middle
//! is counted, not fatal; a key in the file is (contract sections 0 and 7).

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt,
    io::{self, BufRead, BufReader, Read},
};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{
    log::Tail,
    lucy_log::{Decoded, decode},
    record::{Header, Record},
};

/// A file that cannot be resumed; the published messages.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("unable to read session file: {0}")]
    Io(#[from] io::Error),
    #[error("session has no header")]
    NoHeader,
    #[error("invalid session header")]
    InvalidHeader,
    #[error("invalid session record at line {0}")]
    InvalidRecord(usize),
    #[error("session message precedes header")]
    MessagePrecedesHeader,
    #[error("session interruption precedes header")]
    InterruptionPrecedesHeader,
    #[error("session header rejected")]
    SecretInHeader,
    #[error("session record rejected")]
    SecretInRecord,
}

/// A file as it was found.
#[derive(Debug)]
pub struct Found {
    pub header: Header,
    /// Numbers of the lines that could not be used, counted from 1.
    pub damaged: Vec<usize>,
    /// Lines of kinds this program does not know.
    pub unknown: usize,
    pub tail: Tail,
    /// Unix milliseconds of the last record, or of the header.
    pub updated_at: u64,
}

/// Reads the file of session `id` and hands each sound record to `each`. The header says which key
/// variable was in use, so `secret_in` is asked for what must not be found, as written or as meant.
pub fn read(
    source: impl Read,
    id: &str,
    mut secret_in: impl FnMut(&Header) -> Vec<Vec<u8>>,
    mut each: impl FnMut(Record),
) -> Result<Found, ReadError> {
    let mut lines =
        Lines { source: BufReader::with_capacity(64 * 1024, source), line: Vec::new(), number: 0 };
    let mut found: Option<Found> = None;
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    while let Some((number, line, terminated)) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let decoded = match (audit(line, &secrets), std::str::from_utf8(line)) {
            (Audit::HoldsSecret, _) => return Err(ReadError::SecretInRecord),
            (Audit::Sound, Ok(text)) => decode(text),
            _ => None,
        };
        let Some(so_far) = &mut found else {
            let header = first(decoded, number, terminated)?;
            if header.session_id != id {
                return Err(ReadError::InvalidHeader);
            }
            secrets = secret_in(&header);
            if let Audit::HoldsSecret = audit(line, &secrets) {
                return Err(ReadError::SecretInHeader);
            }
            let updated_at = header.created_at;
            let tail = if terminated { Tail::None } else { Tail::Unterminated };
            found = Some(Found { header, damaged: Vec::new(), unknown: 0, tail, updated_at });
            continue;
        };
        match decoded {
            Some(Decoded::Record { timestamp, record }) => {
                so_far.updated_at = timestamp;
                each(record);
            }
            Some(Decoded::Unknown) => so_far.unknown += 1,
            // A crash ends a file in the middle of a line; anywhere else it is damage.
            None if !terminated => {
                so_far.tail = Tail::Torn { bytes: line.len() as u64 };
                continue;
            }
            Some(Decoded::Header(_)) | None => so_far.damaged.push(number),
        }
        if !terminated {
            so_far.tail = Tail::Unterminated;
        }
    }
    found.ok_or(ReadError::NoHeader)
}

/// The header, out of the first line that is not blank.
fn first(decoded: Option<Decoded>, number: usize, terminated: bool) -> Result<Header, ReadError> {
    match decoded {
        Some(Decoded::Header(header)) => Ok(header),
        Some(Decoded::Record { record: Record::Interruption(_), .. }) => {
            Err(ReadError::InterruptionPrecedesHeader)
        }
        Some(Decoded::Record { .. }) => Err(ReadError::MessagePrecedesHeader),
        Some(Decoded::Unknown) => Err(ReadError::InvalidHeader),
        None if !terminated => Err(ReadError::NoHeader),
        None => Err(ReadError::InvalidRecord(number)),
    }
}

struct Lines<R> {
    source: BufReader<R>,
    line: Vec<u8>,
    number: usize,
}

impl<R: Read> Lines<R> {
    /// The next line without its LF, its number, and whether it had one.
    fn next(&mut self) -> io::Result<Option<(usize, &[u8], bool)>> {
        self.line.clear();
        if self.source.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let terminated = self.line.last() == Some(&b'\n');
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some((self.number, line, terminated)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audit {
    Sound,
    /// Not JSON, or an object with one key twice.
    Damaged,
    HoldsSecret,
}

/// Whether a line is strict JSON and free of `secrets`, also where escapes hide them.
fn audit(line: &[u8], secrets: &[Vec<u8>]) -> Audit {
    let mut auditor = Auditor { secrets, found: false };
    if auditor.holds_secret(line) {
        return Audit::HoldsSecret;
    }
    let mut json = serde_json::Deserializer::from_slice(line);
    let sound = (&mut auditor).deserialize(&mut json).and_then(|()| json.end()).is_ok();
    match (auditor.found, sound) {
        (true, _) => Audit::HoldsSecret,
        (false, true) => Audit::Sound,
        (false, false) => Audit::Damaged,
    }
}

struct Auditor<'a> {
    secrets: &'a [Vec<u8>],
    found: bool,
}

impl Auditor<'_> {
    fn holds_secret(&self, bytes: &[u8]) -> bool {
        self.secrets.iter().any(|secret| memchr::memmem::find(bytes, secret).is_some())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Auditor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Auditor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    /// A string without escapes stands in the line as it is, and was looked at there.
    fn visit_borrowed_str<E>(self, _: &'de str) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found |= self.holds_secret(text.as_bytes());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(Key(key)) = members.next_key()? {
            if let Cow::Owned(key) = &key {
                self.found |= self.holds_secret(key.as_bytes());
            }
            if !seen.insert(key) {
                return Err(A::Error::custom("duplicate key"));
            }
            members.next_value_seed(&mut *self)?;
        }
        Ok(())
    }
}

/// A key, borrowed from the line where it holds no escapes.
#[derive(PartialEq, Eq, Hash, serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = r#"{"record":"session","version":1,"session_id":"1-2-3","created_at":5,"cwd":"/w","boot_system_prompt":"p","llm":{"base_url":"http://h/v1","model":"m","api_key_env":"K"}}"#;
    const USER: &str = r#"{"record":"message","timestamp":7,"message":{"role":"user","content":"hi"}}"#;

    fn load(text: &str) -> Result<(Found, usize), ReadError> {
        let mut records = 0;
        let found = read(text.as_bytes(), "1-2-3", |_| vec![b"sk-invented".to_vec()], |_| records += 1)?;
        Ok((found, records))
    }

    fn check_error(text: &str, expected: &str) {
        assert_eq!(load(text).map(|_| ()).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn sound_files_are_counted() {
        let (found, records) = load(&format!("{HEADER}\n\n{USER}\n{USER}\n")).unwrap();
        assert_eq!((records, found.damaged.len(), found.tail, found.updated_at), (2, 0, Tail::None, 7));
        let (found, records) = load(&format!("{HEADER}\n{USER}")).unwrap();
        assert_eq!((records, found.tail), (1, Tail::Unterminated));
        assert_eq!(load(HEADER).unwrap().0.tail, Tail::Unterminated);
    }

    #[test]
    fn damage_in_the_middle_is_named_and_survived() {
        let twice = r#"{"record":"message","record":"message","timestamp":7}"#;
        let nested = r#"{"record":"message","timestamp":7,"message":{"role":"user","content":"x","more":{"a":1,"a":2}}}"#;
        let (found, records) = load(&format!("{HEADER}\n{{\n{twice}\n{nested}\n{HEADER}\n{USER}\n")).unwrap();
        assert_eq!((records, found.damaged), (1, vec![2, 3, 4, 5]));
    }

    #[test]
    fn a_torn_end_is_measured() {
        let (found, records) = load(&format!("{HEADER}\n{USER}\n{{\"record\":\"mess")).unwrap();
        assert_eq!((records, found.tail), (1, Tail::Torn { bytes: 15 }));
    }

    #[test]
    fn unknown_records_and_fields_are_skipped() {
        let (found, records) = load(&format!("{HEADER}\n{{\"record\":\"new\",\"x\":1}}\n{USER}\n")).unwrap();
        assert_eq!((records, found.unknown), (1, 1));
    }

    #[test]
    fn fatal_files() {
        check_error("", "session has no header");
        check_error("{\"record\":\"sess", "session has no header");
        check_error(&format!("{USER}\n{HEADER}\n"), "session message precedes header");
        check_error("{}\n", "invalid session record at line 1");
        check_error(&format!("{}\n", HEADER.replace("1-2-3", "other")), "invalid session header");
        check_error(
            &format!("{}\n", HEADER.replace("\"version\":1", "\"version\":2")),
            "invalid session header",
        );
        check_error(
            r#"{"record":"interruption","timestamp":1,"reason":"user_cancelled","phase":"cmd"}"#,
            "session interruption precedes header",
        );
    }

    #[test]
    fn keys_are_found_behind_escapes() {
        check_error(
            &format!("{HEADER}\n{}\n", USER.replace("hi", "x sk-invented")),
            "session record rejected",
        );
        check_error(
            &format!("{HEADER}\n{}\n", USER.replace("hi", "\\u0073k-invented")),
            "session record rejected",
        );
        check_error(&format!("{HEADER}\n{{\"\\u0073k-invented\":1}}\n"), "session record rejected");
        check_error(&format!("{}\n", HEADER.replace("/w", "sk-invented")), "session header rejected");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = format!("{HEADER}\n").into_bytes();
            file.extend(bytes);
            let _ = read(&file[..], "1-2-3", |_| Vec::new(), |_| ());
        }

        /// Cut anywhere, the file still opens once its header is whole, and loses at most one record.
        #[test]
        fn any_cut_resumes(cut in 0usize..400) {
            let whole = format!("{HEADER}\n{USER}\n{USER}\n");
            let cut = cut.min(whole.len());
            let result = load(&whole[..cut]);
            prop_assert_eq!(result.is_ok(), cut >= HEADER.len());
        }
    }
}
