//! Invalid arguments of code mode: `belljar skill`, `api`, `mcp` and `code`.

use crate::{lab, transcript};

#[test]
fn skill_and_api_commands_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "skill save ../a LAB/file",
        "skill save a LAB/file --lang py",
        "skill edit a --search x",
        "api add 'a b'",
        "api add a --base-url nowhere",
        "api show a --search x --types",
    ]), @r##"
$ belljar skill save ../a LAB/file
belljar: invalid value '../a' for '<NAME>': invalid name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter

For more information, try '--help'.
[exit 2]

$ belljar skill save a LAB/file --lang py
belljar: invalid value 'py' for '--lang <LANG>'
  [possible values: ts, js]

For more information, try '--help'.
[exit 2]

$ belljar skill edit a --search x
belljar: the following required arguments were not provided:
  --replace <TEXT>

Usage: belljar skill edit --search <TEXT> --replace <TEXT> <NAME>

For more information, try '--help'.
[exit 2]

$ belljar api add 'a b'
belljar: invalid value 'a b' for '<NAME>': invalid name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter

For more information, try '--help'.
[exit 2]

$ belljar api add a --base-url nowhere
belljar: invalid value 'nowhere' for '--base-url <URL>': invalid URL; write https://HOST or https://HOST/PATH

For more information, try '--help'.
[exit 2]

$ belljar api show a --search x --types
belljar: the argument '--search <WORDS>' cannot be used with '--types'

Usage: belljar api show --search <WORDS> <NAME>

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn mcp_and_code_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "mcp install emacs",
        "mcp --tls-cert x",
        "mcp --http nowhere",
        "code --lang cobol",
        "code --input {",
        "code --timeout 0",
        "code --mode overlay",
        "code --languages --json",
    ]), @r##"
$ belljar mcp install emacs
belljar: invalid value 'emacs' for '<CLIENT>'
  [possible values: claude, codex, gemini, opencode, vscode]

For more information, try '--help'.
[exit 2]

$ belljar mcp --tls-cert x
belljar: the following required arguments were not provided:
  --http <ADDR:PORT>
  --tls-key <FILE>

Usage: belljar mcp --http <ADDR:PORT> --tls-cert <FILE> --tls-key <FILE>

For more information, try '--help'.
[exit 2]

$ belljar mcp --http nowhere
belljar: invalid value 'nowhere' for '--http <ADDR:PORT>': invalid socket address syntax

For more information, try '--help'.
[exit 2]

$ belljar code --lang cobol
belljar: invalid value 'cobol' for '--lang <LANG>': unknown language "cobol"; the known languages are ts, js, py, sh, deno, node

For more information, try '--help'.
[exit 2]

$ belljar code --input {
belljar: --input is not valid JSON: EOF while parsing an object at line 1 column 1
[exit 2]

$ belljar code --timeout 0
belljar: `timeout` must be from 1 to 600 seconds
[exit 2]

$ belljar code --mode overlay
belljar: the following required arguments were not provided:
  --workspace <DIR>

Usage: belljar code --workspace <DIR> --mode <MODE> [FILE]

For more information, try '--help'.
[exit 2]

$ belljar code --languages --json
belljar: the argument '--languages' cannot be used with one or more of the other specified arguments

Usage: belljar code [OPTIONS] [FILE]

For more information, try '--help'.
[exit 2]
"##);
}
