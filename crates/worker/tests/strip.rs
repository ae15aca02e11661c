//! The stripper against TypeScript itself, on code of many shapes.
//!
//! What is left after stripping has to mean to TypeScript what the whole meant to it; what was
//! rewritten has to give the same values when it runs. Snippets of one file are separated by `//---`.

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test starts the program that it compares with")]
mod strip {
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use belljar_wire::Dialect;
    use belljar_worker::runtime::strip::strip;
    use serde_json::json;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strip")
    }

    fn snippets(file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(corpus().join(file)).unwrap();
        text.split("//---\n").map(str::to_owned).collect()
    }

    /// Asks TypeScript about pairs of texts.
    fn ask(how: &str, pairs: &[(String, String)]) {
        let modules =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/typescript");
        assert!(modules.is_dir(), "no {}: `cargo xtask test` installs it", modules.display());
        let mut node = Command::new("node")
            .arg(corpus().join("compare.mjs"))
            .args([modules.as_os_str(), how.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = node.stdin.take().unwrap();
        serde_json::to_writer(input, &json!(pairs)).unwrap();
        let output = node.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.trim(), format!("{} alike", pairs.len()));
    }

    #[test]
    fn what_is_left_means_what_the_whole_meant() {
        let files = ["annotations.ts", "classes.ts", "modules.ts", "hazards.ts", "long.ts"];
        let all: Vec<String> = files.iter().flat_map(|file| snippets(file)).collect();
        assert!(all.len() >= 60, "only {} snippets", all.len());
        let pairs = all.into_iter().map(|source| {
            let stripped = strip(&source, Dialect::Ts, "main.ts");
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{trouble:?}:\n{source}"));
            stays_in_place(&source, &stripped.code);
            (source, stripped.code)
        });
        ask("same", &pairs.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_rewritten_gives_the_same_values() {
        let pairs = snippets("rewritten.ts").into_iter().map(|source| {
            let stripped = strip(&source, Dialect::Ts, "main.ts");
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{trouble:?}:\n{source}"));
            (source, stripped.code)
        });
        ask("values", &pairs.collect::<Vec<_>>());
    }

    #[test]
    fn of_declarations_nothing_is_left() {
        let modules =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/typescript");
        let lib = modules.join("node_modules/typescript/lib");
        for name in
            ["lib.es5.d.ts", "lib.dom.d.ts", "lib.es2015.collection.d.ts", "typescript.d.ts"]
        {
            let source = std::fs::read_to_string(lib.join(name)).unwrap();
            // Without the word, which means that they are ambient already.
            let ambient = source.replace("export default ", "export ").replace("export = ts;", "");
            let stripped = strip(&ambient, Dialect::Ts, name);
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{name}: {trouble:?}"));
            stays_in_place(&ambient, &stripped.code);
            ask("nothing", &[(String::new(), stripped.code)]);
        }
    }

    /// Every byte is the one that was there, a space, or one of the few that keep the meaning.
    #[track_caller]
    fn stays_in_place(source: &str, stripped: &str) {
        assert_eq!(source.len(), stripped.len(), "{stripped}");
        for (at, (was, is)) in source.bytes().zip(stripped.bytes()).enumerate() {
            let fits = was == is || (was != b'\n' && matches!(is, b' ' | b';' | b'(' | b')'));
            assert!(fits, "at {at}: {:?}", &stripped[at.saturating_sub(20)..]);
        }
    }
}
