//! Replays the seeds of every fuzz target with the project's toolchain.
//!
//! Fuzzing itself needs a nightly toolchain and libFuzzer: `cargo xtask fuzz`.

#[cfg(test)]
#[path = "../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets are another crate")]
mod checks;

#[cfg(test)]
mod seeds {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::checks::CHECKS;

    fn fuzz(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name)
    }

    /// Returns the names of the files in a directory, without extensions.
    fn names(dir: &Path) -> BTreeSet<String> {
        let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        fs::read_dir(dir).unwrap().map(|entry| name(entry.unwrap().path())).collect()
    }

    #[test]
    fn every_fuzz_seed_passes_the_check_of_its_target() {
        for (name, check) in CHECKS {
            let mut seeds = 0;
            for entry in fs::read_dir(fuzz("seeds").join(name)).unwrap() {
                let path = entry.unwrap().path();
                println!("{}", path.display()); // on failure, the last printed path is the cause
                let bytes = fs::read(&path).unwrap();
                check(&bytes);
                // Half of a seed is another input, which most parsers meet in practice.
                check(&bytes[..bytes.len() / 2]);
                seeds += 1;
            }
            assert!(seeds > 0, "{name} has no seed");
        }
        // Files of the check `ledger_verify`.
        let files = std::env::temp_dir().join(format!("belljar-fuzz-{}", std::process::id()));
        fs::remove_dir_all(files).unwrap();
    }

    #[test]
    fn every_fuzz_target_has_a_check_and_calls_it() {
        let checks: BTreeSet<String> = CHECKS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names(&fuzz("fuzz_targets")), checks);
        assert_eq!(names(&fuzz("seeds")), checks);
        for name in checks {
            let text = fs::read_to_string(fuzz("fuzz_targets").join(format!("{name}.rs"))).unwrap();
            let expect = format!(
                "//! Fuzzes `belljar_fuzz::{name}`.\n#![no_main]\n\n\
                 libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::{name}::check(bytes));\n"
            );
            assert_eq!(text, expect, "{name}");
        }
    }
}
