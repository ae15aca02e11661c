//! Invalid arguments of `belljar net` and `belljar secret set`.

use crate::{lab, transcript};

#[test]
fn net_commands_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "net explain",
        "net explain 'https://a b/'",
        "net explain https://a.example.com --method 'GET /'",
        "net log --all x",
    ]), @r##"
$ belljar net explain
belljar: the following required arguments were not provided:
  <URL>

Usage: belljar net explain <URL>

For more information, try '--help'.
[exit 2]

$ belljar net explain 'https://a b/'
belljar: invalid URL https://a b/: a host name can contain only letters, digits, hyphens and dots
[exit 2]

$ belljar net explain https://a.example.com --method 'GET /'
belljar: invalid value 'GET /' for '--method <METHOD>': invalid HTTP method; write for example GET or POST

For more information, try '--help'.
[exit 2]

$ belljar net log --all x
belljar: the argument '--all' cannot be used with '[RUN]'

Usage: belljar net log --all [RUN]

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn secret_set_refuses_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "secret set",
        "secret set 'a b'",
        "secret set a --from-env A --from-file b",
    ]), @r##"
$ belljar secret set
belljar: the following required arguments were not provided:
  <NAME>

Usage: belljar secret set <NAME>

For more information, try '--help'.
[exit 2]

$ belljar secret set 'a b'
belljar: invalid value 'a b' for '<NAME>': invalid secret name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter or digit

For more information, try '--help'.
[exit 2]

$ belljar secret set a --from-env A --from-file b
belljar: the argument '--from-env <VAR>' cannot be used with '--from-file <FILE>'

Usage: belljar secret set --from-env <VAR> <NAME>

For more information, try '--help'.
[exit 2]
"##);
}
