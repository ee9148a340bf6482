//! Reads `name` and `description` from the block between two `---` lines that a skill begins with.
//!
//! YAML first. Many published skills are not YAML, most often for `description: Use when: ...`; their
//! lines are then read as they stand. Works on bytes alone and never fails but with a reason.

use serde::Deserialize;

/// How much of a skill is looked at. A block that does not end in it is none.
pub const BYTES_MAX: u64 = 16 * 1024;

const YAML_EVENTS_MAX: usize = 4096;
const YAML_ALIASES_MAX: usize = 64;

/// What the catalog shows of a skill, one line each, never empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Frontmatter {
    pub name: String,
    pub description: String,
}

/// Reads the first [`BYTES_MAX`] bytes of a file, or says why it is not a skill.
pub fn parse(bytes: &[u8]) -> Result<Frontmatter, &'static str> {
    let block = block(text(bytes)?)?;
    let fields = Fields::from_yaml(&block).unwrap_or_else(|| Fields::by_line(&block));
    let name = one_line(&fields.name.unwrap_or_default());
    let description = one_line(&fields.description.unwrap_or_default());
    match () {
        () if name.is_empty() => Err("frontmatter has no name"),
        () if description.is_empty() => Err("frontmatter has no description"),
        () => Ok(Frontmatter { name, description }),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    name: Option<String>,
    description: Option<String>,
}

impl Fields {
    /// Within bounds that fit a block of this size: aliases can make much of little.
    fn from_yaml(block: &str) -> Option<Self> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_events: YAML_EVENTS_MAX, max_aliases: YAML_ALIASES_MAX },
        };
        serde_saphyr::from_str_with_options(block, options).ok()
    }

    fn by_line(block: &str) -> Self {
        Self { name: value_of(block, "name"), description: value_of(block, "description") }
    }
}

/// The text without a byte order mark, or what of it was read: a character torn by [`BYTES_MAX`] is
/// not the writer's fault.
fn text(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && bytes.len() as u64 >= BYTES_MAX => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err("not UTF-8 text"),
    };
    Ok(text.trim_start_matches('\u{feff}'))
}

/// The lines between the first line, `---`, and the next of its kind, with plain line ends.
fn block(text: &str) -> Result<String, &'static str> {
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Err("no frontmatter");
    }
    let mut block = String::new();
    for line in lines {
        if line.trim_end() == "---" {
            return Ok(block);
        }
        block.push_str(line);
        block.push('\n');
    }
    Err("frontmatter has no end")
}

/// The value after `key:` and the deeper lines that follow. Where the key comes twice, the least
/// indented is meant: others belong to a nested table.
fn value_of(block: &str, key: &str) -> Option<String> {
    let lines: Vec<_> = block.lines().map(|line| (indent(line), line.trim())).collect();
    let value = |line: &'_ str| line.strip_prefix(key)?.trim_start().strip_prefix(':').map(str::len);
    let (at, depth, len) = lines
        .iter()
        .enumerate()
        .filter_map(|(at, &(depth, line))| Some((at, depth, value(line)?)))
        .min_by_key(|&(_, depth, _)| depth)?;
    let first = lines[at].1;
    let more = lines[at + 1..].iter().take_while(|&&(deeper, line)| deeper > depth || line.is_empty());
    let text = more.fold(first[first.len() - len..].trim().to_owned(), |text, (_, line)| text + "\n" + line);
    Some(plain(&text).to_owned())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A value without its quotes or its block mark.
fn plain(value: &str) -> &str {
    let value = value.trim();
    let quoted = |quote| value.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    if let Some(inner) = quoted('"').or_else(|| quoted('\'')) {
        return inner;
    }
    match value.split_once('\n') {
        Some((mark, rest)) if mark.starts_with(['|', '>']) && mark.len() <= 3 => rest,
        _ => value,
    }
}

/// One line of single spaces, without control characters: a catalog entry must not look like another.
fn one_line(value: &str) -> String {
    let words = value.split_whitespace().map(|word| word.replace(char::is_control, ""));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str, description: &str) {
        let expected = Frontmatter { name: name.into(), description: description.into() };
        assert_eq!(parse(text.as_bytes()), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_refused(text: impl AsRef<[u8]>, reason: &str) {
        assert_eq!(parse(text.as_ref()), Err(reason));
    }

    #[test]
    fn yaml_is_read() {
        check("---\nname: a\ndescription: b\n---\nbody", "a", "b");
        check("\u{feff}---\r\nname: a\r\ndescription: b c\r\n---\r\n", "a", "b c");
        check("--- \ndescription: \"b: \\u00fc\"\nname: 'a'\n--- \n", "a", "b: ü");
        check("---\nname: a\ndescription: >-\n  b\n  c\n\n  d\n---\n", "a", "b c d");
        check("---\nname: a\ndescription: |\n  b\n  c\nlicense: MIT\n---\n", "a", "b c");
        check("---\nname: a\ndescription: b\n  c\nmetadata:\n  name: x\ntags: [x, y]\n---\n", "a", "b c");
        check("---\nname: 7\ndescription: true\n---\n", "7", "true");
        check("---\n  name: a\n  description: b\n---", "a", "b");
    }

    #[test]
    fn lines_that_are_not_yaml_are_read_as_they_stand() {
        check("---\nname: a\ndescription: Use when: you b\n---\n", "a", "Use when: you b");
        check(
            "---\nname: a\ndescription: Use when: b\n  and c: d\n\n  e\nother: x\n---\n",
            "a",
            "Use when: b and c: d e",
        );
        check("---\nname: \"a\"\ndescription: 'b' and: c\n---\n", "a", "'b' and: c");
        check("---\nmeta:\n  name: x\nname : a\ndescription: >\n  b\n  c\nbad: x: y\n---\n", "a", "b c");
        check("---\nname: a\nname: x\ndescription: b\n---\n", "a", "b");
        check("---\nname: a\ndescription: [b] c\n---\n", "a", "[b] c");
        check("---\nname: a\ndescription: @b `c`\n---\n", "a", "@b `c`");
    }

    #[test]
    fn values_become_one_clean_line() {
        check(
            "---\nname: \"a\\u0007\\eb\"\ndescription: \"b\\n- name:\\t x \\u0000 y\"\n---\n",
            "ab",
            "b - name: x y",
        );
        check("---\nname: a\ndescription: b: \u{1b}[31mc\u{2028}d\n---\n", "a", "b: [31mc d");
    }

    #[test]
    fn what_is_not_a_skill_has_a_reason() {
        check_refused("", "no frontmatter");
        check_refused("# Skill\n---\nname: a\n---\n", "no frontmatter");
        check_refused("---\nname: a\ndescription: b\n", "frontmatter has no end");
        check_refused("---\n---\n", "frontmatter has no name");
        check_refused("---\nname:\ndescription: b\n---\n", "frontmatter has no name");
        check_refused("---\nname: \"\\u0001\"\ndescription: b\n---\n", "frontmatter has no name");
        check_refused("---\nname: a\n---\n", "frontmatter has no description");
        check_refused("---\nname: a\ndescription: ''\n---\n", "frontmatter has no description");
        check_refused(b"---\nname: \xff\n---\n", "not UTF-8 text");
        check_refused(b"---\nname: \xc3", "not UTF-8 text");
    }

    #[test]
    fn only_the_beginning_counts() {
        let mut bytes = b"---\nname: a\ndescription: b\n---\n".to_vec();
        bytes.resize(BYTES_MAX as usize - 1, b'x');
        bytes.push(0xc3);
        assert!(parse(&bytes).is_ok());
    }

    #[test]
    fn an_alias_bomb_is_cheap() {
        let bomb: String =
            (1..40).map(|n| format!("x{n}: &x{n} [{}]\n", format!("*x{}, ", n - 1).repeat(9))).collect();
        check(&format!("---\nname: a\ndescription: b\nx0: &x0 [x]\n{bomb}---\n"), "a", "b");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_block_panics(block in "([ \\t]{0,3}(name|description|x)?[:|>\"' *&!\\[{,#-]{0,4}.{0,12}\n){0,8}") {
            if let Ok(front) = parse(format!("---\n{block}\n---\n").as_bytes()) {
                let clean = |text: &str| !text.is_empty() && !text.contains(char::is_control);
                proptest::prop_assert!(clean(&front.name) && clean(&front.description));
            }
        }
    }
}
