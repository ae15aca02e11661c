//! Repositories in sh, awk, C, Perl and JavaScript, with tests that print the name of the failing function.

use super::{By, Case, Find, LookUp, Mistake};
use crate::plan_fixes::protocol::Protocol;

/// The beginning of a test in sh: `check NAME FOUND EXPECTED`.
macro_rules! sh_test {
    ($text:literal) => {
        concat!(
            "check() { [ \"$2\" = \"$3\" ] || { echo \"FAIL: test_$1: $3 is expected, but $2 is found\"; exit 1; }; }\n",
            $text
        )
    };
}

pub(super) const CASES: [Case; 10] = [
    Case {
        name: "leap",
        protocol: Protocol::Chat,
        files: &[
            (
                "lib/calendar.awk",
                "function leap(year) {\n    return year % 4 == 0 && year % 100 != 0\n}\n\n{ print leap($1) ? \"leap\" : \"common\" }\n",
            ),
            (
                "tests/run.sh",
                sh_test!(
                    "check leap__2024 \"$(echo 2024 | awk -f lib/calendar.awk)\" leap\ncheck leap__1900 \"$(echo 1900 | awk -f lib/calendar.awk)\" common\ncheck leap__2000 \"$(echo 2000 | awk -f lib/calendar.awk)\" leap\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "[ \"$(printf '1600\\n2100\\n2023\\n' | awk -f lib/calendar.awk | tr '\\n' ' ')\" = 'leap common common ' ]",
        find: Find::Shell,
        by: By::Shell,
        repairs: &[("year % 100 != 0", "year % 100 != 0 || year % {value} == 0")],
        look_up: Some(LookUp::Page("A year is a leap year again if it is divisible by: 400\n")),
        mistake: None,
        changed: &["lib/calendar.awk"],
    },
    Case {
        name: "total",
        protocol: Protocol::Chat,
        files: &[
            ("awk/total.awk", "BEGIN { FS = \",\" }\nNR > 1 { sum += $2 }\nEND { print sum }\n"),
            ("data/orders.csv", "name,count,price\npen,3,1.25\nbook,1,10.5\n"),
            (
                "tests/run.sh",
                sh_test!(
                    "found=$(awk -f awk/total.awk data/orders.csv)\ncheck total__column \"${found%.*}\" 11\ncheck total__format \"$found\" 11.75\nprintf 'name,count,price\\npen,1,2\\n' > /tmp/one.csv\ncheck total__two_digits \"$(awk -f awk/total.awk /tmp/one.csv)\" 2.00\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "[ \"$(printf 'a,b,c\\nx,9,0.1\\ny,9,0.2\\n' | awk -f awk/total.awk)\" = 0.30 ]",
        find: Find::Glob,
        by: By::Write,
        repairs: &[("sum += $2", "sum += $3"), ("print sum", "printf \"%.2f\\n\", sum")],
        look_up: None,
        mistake: None,
        changed: &["awk/total.awk"],
    },
    Case {
        name: "words",
        protocol: Protocol::Responses,
        files: &[
            (
                "awk/words.awk",
                "function words(line, parts, n, i) {\n    n = split(line, parts, \" \")\n    for (i = 1; i <= n; i++) count[parts[i]]++\n}\n\n{ words($0) }\nEND { for (word in count) print count[word], word }\n",
            ),
            (
                "tests/run.sh",
                sh_test!(
                    "check words__case \"$(echo 'The the END' | awk -f awk/words.awk | sort | tr '\\n' ';')\" '1 end;2 the;'\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "[ \"$(printf 'A b\\na B a\\n' | awk -f awk/words.awk | sort | tr '\\n' ';')\" = '2 b;3 a;' ]",
        find: Find::Shell,
        by: By::Edit,
        repairs: &[("count[parts[i]]++", "count[tolower(parts[i])]++")],
        look_up: None,
        mistake: Some(Mistake::WrongArguments),
        changed: &["awk/words.awk"],
    },
    Case {
        name: "gcd",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "src/gcd.c",
                "int gcd(int a, int b) {\n    while (b != 0) {\n        int rest = a % b;\n        a = rest;\n        b = a;\n    }\n    return a;\n}\n",
            ),
            (
                "tests/main.c",
                "#include <stdio.h>\nint gcd(int, int);\nint main(void) {\n    if (gcd(12, 18) != 6) { puts(\"FAIL: test_gcd__of_two\"); return 1; }\n    if (gcd(7, 0) != 7) { puts(\"FAIL: test_gcd__of_zero\"); return 1; }\n    return 0;\n}\n",
            ),
        ],
        tests: "cc -o /tmp/gcd src/gcd.c tests/main.c && /tmp/gcd",
        hidden: "echo 'int gcd(int, int); int main(void) { return !(gcd(270, 192) == 6 && gcd(17, 5) == 1); }' > /tmp/m.c && cc -o /tmp/m src/gcd.c /tmp/m.c && /tmp/m",
        find: Find::Shell,
        by: By::Edit,
        repairs: &[("a = rest;\n        b = a;", "a = b;\n        b = rest;")],
        look_up: None,
        mistake: Some(Mistake::FailingCommand),
        changed: &["src/gcd.c"],
    },
    Case {
        name: "reverse",
        protocol: Protocol::Chat,
        files: &[
            (
                "src/text.c",
                "#include \"text.h\"\n\nvoid upper(char *text, int length) {\n    for (int i = 0; i < length; i++) {\n        if (text[i] >= 'a' && text[i] <= 'z') text[i] -= 32;\n    }\n}\n\nvoid reverse(char *text, int length) {\n    for (int i = 0; i < length; i++) {\n        char kept = text[i];\n        text[i] = text[length - 1 - i];\n        text[length - 1 - i] = kept;\n    }\n}\n",
            ),
            ("src/text.h", "void upper(char *, int);\nvoid reverse(char *, int);\n"),
            (
                "tests/main.c",
                "#include <stdio.h>\n#include <string.h>\n#include \"../src/text.h\"\nint main(void) {\n    char text[] = \"abc\";\n    upper(text, 3);\n    if (strcmp(text, \"ABC\")) { puts(\"FAIL: test_upper\"); return 1; }\n    reverse(text, 3);\n    if (strcmp(text, \"CBA\")) { puts(\"FAIL: test_reverse__odd\"); return 1; }\n    return 0;\n}\n",
            ),
        ],
        tests: "cc -o /tmp/text src/text.c tests/main.c && /tmp/text",
        hidden: "printf '#include <string.h>\\n#include \"src/text.h\"\\nint main(void) { char t[] = \"wxyz\"; reverse(t, 4); upper(t, 4); return strcmp(t, \"ZYXW\") != 0; }' > /tmp/m.c && cc -I. -o /tmp/m src/text.c /tmp/m.c && /tmp/m",
        find: Find::Grep,
        // The same line is in two functions, so that an edit needs more context.
        by: By::Edit,
        repairs: &[("i < length; i++", "i < length / 2; i++")],
        look_up: None,
        mistake: None,
        changed: &["src/text.c"],
    },
    Case {
        name: "join",
        protocol: Protocol::Chat,
        files: &[
            ("lib/paths.sh", "join_path() {\n    echo \"$1/$2\"\n}\n"),
            (
                "tests/run.sh",
                sh_test!(
                    ". lib/paths.sh\ncheck join_path__plain \"$(join_path a b)\" a/b\ncheck join_path__slash \"$(join_path a/ b)\" a/b\ncheck join_path__both \"$(join_path a/ /b)\" a/b\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "[ \"$(sh -c '. lib/paths.sh; join_path /x/ y/z; join_path q /r')\" = '/x/y/z\nq/r' ]",
        find: Find::Shell,
        by: By::Edit,
        // The first repair passes only two of three tests.
        repairs: &[("\"$1/$2\"", "\"${1%/}/$2\""), ("\"${1%/}/$2\"", "\"${1%/}/${2#/}\"")],
        look_up: None,
        mistake: Some(Mistake::DeniedCommand),
        changed: &["lib/paths.sh"],
    },
    Case {
        name: "newer",
        protocol: Protocol::Responses,
        files: &[
            (
                "lib/newer.sh",
                "# Succeeds if the first version is newer than the second one.\nnewer() {\n    [ \"$1\" \\> \"$2\" ]\n}\n",
            ),
            (
                "tests/run.sh",
                sh_test!(
                    ". lib/newer.sh\nshow() { newer \"$1\" \"$2\" && echo yes || echo no; }\ncheck newer__minor \"$(show 1.3.0 1.2.0)\" yes\ncheck newer__same \"$(show 1.2.0 1.2.0)\" no\ncheck newer__ten \"$(show 1.10.0 1.9.0)\" yes\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "sh -c '. lib/newer.sh; newer 10.0 9.9 && ! newer 2.0.9 2.0.10 && ! newer 3 3'",
        find: Find::Glob,
        by: By::Write,
        repairs: &[(
            "[ \"$1\" \\> \"$2\" ]",
            "[ \"$1\" != \"$2\" ] && [ \"$(printf '%s\\n' \"$1\" \"$2\" | sort -V | tail -n 1)\" = \"$1\" ]",
        )],
        look_up: None,
        mistake: None,
        changed: &["lib/newer.sh"],
    },
    Case {
        name: "trim",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "lib/Text.pm",
                "package Text;\nuse strict;\n\nsub trim {\n    my ($text) = @_;\n    $text =~ s/^\\s+//;\n    return $text;\n}\n\n1;\n",
            ),
            (
                "tests/run.pl",
                "use lib 'lib';\nuse Text;\nmy %expected = (' a' => 'a', 'b ' => 'b', \" c d\\n\" => 'c d');\nfor my $text (sort keys %expected) {\n    my $found = Text::trim($text);\n    die \"FAIL: test_trim__$expected{$text}\\n\" if $found ne $expected{$text};\n}\n",
            ),
        ],
        tests: "perl tests/run.pl",
        hidden: "perl -Ilib -MText -e 'exit(Text::trim(\"\\t x  y \\t\") ne \"x  y\" || Text::trim(\" \") ne \"\")'",
        find: Find::Shell,
        by: By::Code,
        repairs: &[("s/^\\s+//", "s/^\\s+|\\s+$//g")],
        look_up: None,
        mistake: Some(Mistake::ThrowingCode),
        changed: &["lib/Text.pm"],
    },
    Case {
        name: "queue",
        protocol: Protocol::Responses,
        files: &[
            (
                "lib/queue.js",
                "class Queue {\n  constructor() {\n    this.items = [];\n  }\n  put(item) {\n    this.items.push(item);\n  }\n  take() {\n    return this.items.pop();\n  }\n}\n\nmodule.exports = { Queue };\n",
            ),
            (
                "tests/run.js",
                "const { Queue } = require(\"../lib/queue.js\");\nconst queue = new Queue();\nqueue.put(1);\nqueue.put(2);\nif (queue.take() !== 1) {\n  console.log(\"FAIL: test_take__first\");\n  process.exit(1);\n}\n",
            ),
        ],
        tests: "node tests/run.js",
        hidden: "node -e 'const { Queue } = require(\"./lib/queue.js\"); const q = new Queue(); [1, 2, 3].forEach((n) => q.put(n)); process.exit([q.take(), q.take(), q.take(), q.take()].join() === \"1,2,3,\" ? 0 : 1)'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[("this.items.pop()", "this.items.shift()")],
        look_up: None,
        mistake: Some(Mistake::PathOutside),
        changed: &["lib/queue.js"],
    },
    Case {
        name: "units",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "lib/kilometers.sh",
                "kilometers() {\n    awk \"BEGIN { printf \\\"%.2f\\\", $1 * 1.5 }\"\n}\n",
            ),
            (
                "tests/run.sh",
                sh_test!(
                    ". lib/kilometers.sh\ncheck kilometers__of_ten \"$(kilometers 10)\" 16.09\n"
                ),
            ),
        ],
        tests: "sh tests/run.sh",
        hidden: "[ \"$(sh -c '. lib/kilometers.sh; kilometers 26.2')\" = 42.16 ]",
        find: Find::Glob,
        by: By::Edit,
        repairs: &[("$1 * 1.5", "$1 * {value}")],
        look_up: Some(LookUp::Page("Miles\nKilometers of one mile: 1.609344\n")),
        mistake: Some(Mistake::OtherHost),
        changed: &["lib/kilometers.sh"],
    },
];
