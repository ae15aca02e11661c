//! Compares the type stripper with the TypeScript compiler on many snippets.
//!
//! TypeScript must compile stripped code and original code to the same JavaScript. Rewritten code must
//! produce the same values when it runs. Snippets of one file are separated by `//---`.

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

    /// Compares pairs of original and stripped code with the TypeScript compiler.
    fn compare(how: &str, pairs: &[(String, String)]) {
        let modules =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/typescript");
        assert!(
            modules.is_dir(),
            "{} is missing: `cargo xtask test` installs it",
            modules.display()
        );
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
    fn stripped_typescript_compiles_to_the_same_javascript() {
        let files = ["annotations.ts", "classes.ts", "modules.ts", "hazards.ts", "long.ts"];
        let all: Vec<String> = files.iter().flat_map(|file| snippets(file)).collect();
        assert!(all.len() >= 60, "only {} snippets", all.len());
        let pairs = all.into_iter().map(|source| {
            let stripped = strip(&source, Dialect::Ts, "main.ts");
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{trouble:?}:\n{source}"));
            stays_in_place(&source, &stripped.code);
            (source, stripped.code)
        });
        compare("same", &pairs.collect::<Vec<_>>());
    }

    #[test]
    fn rewritten_typescript_produces_the_same_values_as_the_original() {
        let pairs = snippets("rewritten.ts").into_iter().map(|source| {
            let stripped = strip(&source, Dialect::Ts, "main.ts");
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{trouble:?}:\n{source}"));
            (source, stripped.code)
        });
        compare("values", &pairs.collect::<Vec<_>>());
    }

    #[test]
    fn typescript_declaration_files_are_stripped_completely() {
        let modules =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/typescript");
        let lib = modules.join("node_modules/typescript/lib");
        for name in
            ["lib.es5.d.ts", "lib.dom.d.ts", "lib.es2015.collection.d.ts", "typescript.d.ts"]
        {
            let source = std::fs::read_to_string(lib.join(name)).unwrap();
            // Without `declare`, because declarations in such a file are ambient already.
            let ambient = source.replace("export default ", "export ").replace("export = ts;", "");
            let stripped = strip(&ambient, Dialect::Ts, name);
            let stripped = stripped.unwrap_or_else(|trouble| panic!("{name}: {trouble:?}"));
            stays_in_place(&ambient, &stripped.code);
            compare("nothing", &[(String::new(), stripped.code)]);
        }
    }

    /// Checks that stripping changed each byte only to a space or one of the few allowed
    /// replacements.
    #[track_caller]
    fn stays_in_place(source: &str, stripped: &str) {
        assert_eq!(source.len(), stripped.len(), "{stripped}");
        for (at, (was, is)) in source.bytes().zip(stripped.bytes()).enumerate() {
            let fits = was == is || (was != b'\n' && matches!(is, b' ' | b';' | b'(' | b')'));
            assert!(fits, "at {at}: {:?}", &stripped[at.saturating_sub(20)..]);
        }
    }
}
