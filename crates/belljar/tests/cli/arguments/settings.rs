//! Invalid arguments of `belljar doctor`, `template`, `policy` and `agent`.

use crate::{lab, transcript};

#[test]
fn doctor_template_policy_and_agent_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "doctor --only C10",
        "doctor --prove --only none",
        "template show large",
        "policy explain --template large",
        "agent show nobody",
    ]), @r##"
$ belljar doctor --only C10
belljar: the following required arguments were not provided:
  --prove

Usage: belljar doctor --prove --only <ID>

For more information, try '--help'.
[exit 2]

$ belljar doctor --prove --only none
belljar: --only: unknown attack none; docs/threat-model.md lists the ids
[exit 2]

$ belljar template show large
belljar: unknown template "large"; known templates: default
[exit 2]

$ belljar policy explain --template large
belljar: --template: unknown template "large"; the known templates are: default
[exit 2]

$ belljar agent show nobody
belljar: unknown agent nobody; known agents: aider, claude, codex, gemini, opencode
[exit 2]
"##);
}
