//! Whatever is in the files of a ledger, the verifier answers, and calls none of it sound.

use std::fs;
use std::path::Path;

use belljar_ledger::{Asked, Places, verify};

pub fn check(bytes: &[u8]) {
    // The first byte says how the rest is divided among the files.
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (log, other) = bytes.split_at(bytes.len() * usize::from(*cut) / 255);
    let home = std::env::temp_dir().join(format!("belljar-fuzz-{}", std::process::id()));
    let places = Places::under(&home);
    write(&places.log(), log);
    for (directory, name) in [("anchor", "head"), ("anchor", "keys"), ("ledger", "salts")] {
        write(&home.join(directory).join(name), other);
    }
    let checkpoint = String::from_utf8_lossy(other).into_owned();
    let asked = Asked { deep: true, checkpoints: &[checkpoint], ..Asked::default() };
    let report = verify(&places, asked).expect("files that can be read");
    assert!(!report.is_sound());
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("make a directory");
    fs::write(path, bytes).expect("write a file");
}
