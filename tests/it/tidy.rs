//! The rooms' arrows: who may import whom (ARCHITECTURE.md, "Rooms").

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each room and what it may reach with `crate::`.
const ROOMS: &[(&str, &[&str])] = &[
    ("cancel", &[]),
    ("config", &[]),
    ("chat", &["config", "cancel"]),
    ("context", &["config", "chat::message", "cancel"]),
    ("shell", &["config", "chat::message", "cancel"]),
    ("tools", &["shell", "context", "chat", "config", "cancel"]),
    ("session", &["tools", "shell", "context", "chat", "config", "cancel"]),
    ("demo", &["cancel"]),
    ("ui", &["session", "demo", "tools", "shell", "context", "chat", "config", "cancel"]),
];

#[test]
fn imports_follow_the_arrows() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for (room, allowed) in ROOMS {
        for file in files(&src, room) {
            let text = fs::read_to_string(&file).unwrap();
            for import in imports(&text) {
                let fits = |room: &str| import == room || import.starts_with(&format!("{room}::"));
                if !fits(room) && !allowed.iter().any(|room| fits(room)) {
                    wrong.push(format!("{}: {import}", file.display()));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The room's own file, or every file of its folder.
fn files(src: &Path, room: &str) -> Vec<PathBuf> {
    let single = src.join(format!("{room}.rs"));
    if single.exists() {
        return vec![single];
    }
    let mut found = Vec::new();
    let mut folders = vec![src.join(room)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "{room} has moved");
    found
}

/// The paths after `crate::`, with the entries of `crate::{...}` taken apart one level deep.
fn imports(text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            found.extend(entries(list));
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect());
        }
    }
    found
}

fn entries(list: &str) -> Vec<String> {
    let (mut depth, mut entry, mut found) = (0, String::new(), Vec::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => found.push(std::mem::take(&mut entry)),
            c if depth == 0 && !c.is_whitespace() => entry.push(c),
            _ => {}
        }
    }
    found.push(entry);
    found.retain(|entry| !entry.is_empty());
    found
}

#[test]
fn imports_are_read_as_written() {
    let text =
        "use crate::{\n    cancel::{self, A},\n    chat::message::B,\n};\nuse crate::shell;\n// crate::not\n";
    assert_eq!(imports(text), ["cancel::", "chat::message::B", "shell"]);
}
