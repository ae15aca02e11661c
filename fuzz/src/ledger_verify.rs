//! Checks the verifier of ledgers: it returns a report for arbitrary files, and never reports them as intact.

use std::fs;
use std::path::Path;

use belljar_ledger::{LedgerPaths, VerifyOptions, verify};

pub fn check(bytes: &[u8]) {
    // The first byte selects how the other bytes are divided among the files.
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (log, other) = bytes.split_at(bytes.len() * usize::from(*cut) / 255);
    let home = std::env::temp_dir().join(format!("belljar-fuzz-{}", std::process::id()));
    let paths = LedgerPaths::under(&home);
    write(&paths.log(), log);
    for (directory, name) in [("anchor", "head"), ("anchor", "keys"), ("ledger", "salts")] {
        write(&home.join(directory).join(name), other);
    }
    let checkpoint = String::from_utf8_lossy(other).into_owned();
    let options =
        VerifyOptions { deep: true, checkpoints: &[checkpoint], ..VerifyOptions::default() };
    let report = verify(&paths, options).expect("the files are readable");
    assert!(!report.is_sound());
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("the path has a parent directory"))
        .expect("the directory can be created");
    fs::write(path, bytes).expect("the file can be written");
}
