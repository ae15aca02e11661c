//! Repositories in Python, with tests by `unittest`.

use super::{By, Case, Find, LookUp, Mistake};
use crate::plan_fixes::protocol::Protocol;

/// The tests of a repository in Python. They leave no compiled files behind.
const TESTS: &str = "PYTHONPATH=. python3 -B -m unittest discover -s tests";

pub(super) const CASES: [Case; 10] = [
    Case {
        name: "median",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "stats.py",
                "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]\n",
            ),
            (
                "tests/test_stats.py",
                "import unittest\nfrom stats import median\n\nclass Stats(unittest.TestCase):\n    def test_median__odd(self):\n        self.assertEqual(median([3, 1, 2]), 2)\n\n    def test_median__even(self):\n        self.assertEqual(median([4, 1, 3, 2]), 2.5)\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from stats import *; assert median([10, 20]) == 15 and median([5]) == 5 and mean([1, 3]) == 2'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[(
            "return ordered[len(ordered) // 2]",
            "middle = len(ordered) // 2\n    if len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1] + ordered[middle]) / 2",
        )],
        look_up: None,
        mistake: Some(Mistake::WrongOldText),
        changed: &["stats.py"],
    },
    Case {
        name: "slug",
        protocol: Protocol::Chat,
        files: &[
            ("text/__init__.py", ""),
            (
                "text/slug.py",
                "import re\n\n\ndef slug(title):\n    return re.sub(\" \", \"-\", title)\n",
            ),
            (
                "tests/test_slug.py",
                "import unittest\nfrom text.slug import slug\n\nclass Slug(unittest.TestCase):\n    def test_slug__case(self):\n        self.assertEqual(slug(\"Hello World\"), \"hello-world\")\n\n    def test_slug__punctuation(self):\n        self.assertEqual(slug(\"What, again?\"), \"what-again\")\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from text.slug import slug; assert slug(\"  A  b: C!\") == \"a-b-c\"'",
        find: Find::Glob,
        by: By::Edit,
        // The first repair is not enough.
        repairs: &[
            ("re.sub(\" \", \"-\", title)", "re.sub(\" \", \"-\", title.lower())"),
            (
                "re.sub(\" \", \"-\", title.lower())",
                "re.sub(\"[^a-z0-9]+\", \"-\", title.lower()).strip(\"-\")",
            ),
        ],
        look_up: None,
        mistake: Some(Mistake::UnknownTool),
        changed: &["text/slug.py"],
    },
    Case {
        name: "roman",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "numerals.py",
                "PAIRS = [(100, \"C\"), (90, \"XC\"), (50, \"L\"), (40, \"XL\"), (10, \"X\"), (5, \"V\"), (4, \"IV\"), (1, \"I\")]\n\n\ndef roman(number):\n    text = \"\"\n    for value, letters in PAIRS:\n        while number >= value:\n            text += letters\n            number -= value\n    return text\n",
            ),
            (
                "tests/test_numerals.py",
                "import unittest\nfrom numerals import roman\n\nclass Numerals(unittest.TestCase):\n    def test_roman__four(self):\n        self.assertEqual(roman(44), \"XLIV\")\n\n    def test_roman__nine(self):\n        self.assertEqual(roman(9), \"IX\")\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from numerals import roman; assert roman(99) == \"XCIX\" and roman(8) == \"VIII\"'",
        find: Find::Grep,
        by: By::Write,
        repairs: &[("(5, \"V\")", "(9, \"IX\"), (5, \"V\")")],
        look_up: None,
        mistake: None,
        changed: &["numerals.py"],
    },
    Case {
        name: "intervals",
        protocol: Protocol::Anthropic,
        files: &[
            (
                "intervals.py",
                "def merge(intervals):\n    merged = []\n    for start, end in sorted(intervals):\n        if merged and start < merged[-1][1]:\n            merged[-1] = (merged[-1][0], end)\n        else:\n            merged.append((start, end))\n    return merged\n",
            ),
            (
                "tests/test_intervals.py",
                "import unittest\nfrom intervals import merge\n\nclass Intervals(unittest.TestCase):\n    def test_merge__inner(self):\n        self.assertEqual(merge([(1, 9), (2, 3)]), [(1, 9)])\n\n    def test_merge__touching(self):\n        self.assertEqual(merge([(1, 2), (2, 3)]), [(1, 3)])\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from intervals import merge; assert merge([(5, 6), (1, 4), (2, 3), (4, 5)]) == [(1, 6)] and merge([(1, 2), (3, 4)]) == [(1, 2), (3, 4)]'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[
            ("(merged[-1][0], end)", "(merged[-1][0], max(merged[-1][1], end))"),
            ("start < merged", "start <= merged"),
        ],
        look_up: None,
        mistake: Some(Mistake::ChangedTest),
        changed: &["intervals.py"],
    },
    Case {
        name: "luhn",
        protocol: Protocol::Chat,
        files: &[
            (
                "cards/number.py",
                "def is_valid(number):\n    total = 0\n    for index, digit in enumerate(number):\n        value = int(digit)\n        if index % 2 == 1:\n            value *= 2\n        total += value\n    return total % 10 == 0\n",
            ),
            ("cards/__init__.py", ""),
            (
                "tests/test_number.py",
                "import unittest\nfrom cards.number import is_valid\n\nclass Number(unittest.TestCase):\n    def test_is_valid__right(self):\n        self.assertTrue(is_valid(\"4539578763621486\"))\n\n    def test_is_valid__odd_length(self):\n        self.assertTrue(is_valid(\"79927398713\"))\n\n    def test_is_valid__wrong(self):\n        self.assertFalse(is_valid(\"79927398714\"))\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from cards.number import is_valid; assert is_valid(\"5555555555554444\") and is_valid(\"378282246310005\") and not is_valid(\"378282246310006\")'",
        find: Find::Grep,
        by: By::Code,
        repairs: &[
            ("enumerate(number)", "enumerate(reversed(number))"),
            ("value *= 2", "value = value * 2 - 9 * (value > 4)"),
        ],
        look_up: None,
        mistake: None,
        changed: &["cards/number.py"],
    },
    Case {
        name: "cache",
        protocol: Protocol::Responses,
        files: &[
            (
                "cache.py",
                "from settings import capacity\n\n\nclass Cache:\n    def __init__(self):\n        self.items = {}\n\n    def put(self, key, value):\n        self.items.pop(key, None)\n        self.items[key] = value\n        if len(self.items) > capacity():\n            self.evict()\n\n    def evict(self):\n        self.items.pop(next(reversed(self.items)))\n",
            ),
            ("settings.py", "def capacity():\n    return 20\n"),
            (
                "tests/test_cache.py",
                "import unittest\nfrom cache import Cache\nfrom settings import capacity\n\nclass Caches(unittest.TestCase):\n    def test_capacity__is_documented(self):\n        self.assertEqual(capacity(), 2)\n\n    def test_evict__oldest(self):\n        cache = Cache()\n        for key in \"abc\":\n            cache.put(key, 1)\n            if len(cache.items) > 2: cache.evict()\n        self.assertEqual(list(cache.items), [\"b\", \"c\"])\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from cache import Cache; c = Cache(); [c.put(k, k) for k in (1, 2, 1, 3)]; assert list(c.items) == [1, 3]'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[
            ("return 20", "return 2"),
            ("next(reversed(self.items))", "next(iter(self.items))"),
        ],
        look_up: None,
        mistake: None,
        changed: &["cache.py", "settings.py"],
    },
    Case {
        name: "tax",
        protocol: Protocol::Responses,
        files: &[
            (
                "shop/tax.py",
                "RATES = {\"full\": 0.19, \"reduced\": 0.17}\n\n\ndef tax(price, kind):\n    return round(price * RATES[kind], 2)\n",
            ),
            ("shop/__init__.py", ""),
            (
                "tests/test_tax.py",
                "import unittest\nfrom shop.tax import tax\n\nclass Tax(unittest.TestCase):\n    def test_tax__full(self):\n        self.assertEqual(tax(100, \"full\"), 19)\n\n    def test_tax__reduced(self):\n        self.assertEqual(tax(100, \"reduced\"), 7)\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'from shop.tax import tax; assert tax(250, \"reduced\") == 17.5 and tax(10, \"full\") == 1.9'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[("\"reduced\": 0.17", "\"reduced\": {value}")],
        look_up: Some(LookUp::Page("Rates of tax\nThe reduced rate is: 0.07\n")),
        mistake: None,
        changed: &["shop/tax.py"],
    },
    Case {
        name: "status",
        protocol: Protocol::Chat,
        files: &[
            (
                "web/status.py",
                "{filler}\n\ndef status(name):\n    return {\"ok\": 200, \"created\": 201, \"missing\": 405}[name]\n",
            ),
            (
                "tests/test_status.py",
                "import sys, unittest\nsys.path.insert(0, \"web\")\nfrom status import status\n\nclass Status(unittest.TestCase):\n    def test_status__missing(self):\n        self.assertEqual(status(\"missing\"), 404)\n",
            ),
        ],
        tests: TESTS,
        hidden: "cd web && python3 -B -c 'from status import status; assert [status(n) for n in (\"ok\", \"created\", \"missing\")] == [200, 201, 404]'",
        // The wrong line is behind the first page of the file.
        find: Find::Glob,
        by: By::Edit,
        repairs: &[("\"missing\": 405", "\"missing\": 404")],
        look_up: None,
        mistake: None,
        changed: &["web/status.py"],
    },
    Case {
        name: "checksum",
        protocol: Protocol::Responses,
        files: &[
            (
                "checksum.py",
                "# The reversed form of the polynomial 0x04C11DB7.\nPOLYNOMIAL = 0xEDB88230\n\n\ndef checksum(data):\n    crc = 0xFFFFFFFF\n    for byte in data:\n        crc ^= byte\n        for _ in range(8):\n            crc = (crc >> 1) ^ POLYNOMIAL if crc & 1 else crc >> 1\n    return crc ^ 0xFFFFFFFF\n",
            ),
            (
                "tests/test_checksum.py",
                "import unittest, zlib\nfrom checksum import checksum\n\nclass Checksum(unittest.TestCase):\n    def test_checksum__abc(self):\n        self.assertEqual(checksum(b\"abc\"), zlib.crc32(b\"abc\"))\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'import zlib; from checksum import checksum; assert all(checksum(d) == zlib.crc32(d) for d in (b\"\", b\"\\x00\", bytes(range(256))))'",
        find: Find::Grep,
        by: By::Edit,
        repairs: &[("0xEDB88230", "0x{value}")],
        look_up: Some(LookUp::Code(
            "const bits: string = (0x04c11db7).toString(2).padStart(32, '0');\nexport default parseInt([...bits].reverse().join(''), 2).toString(16);",
        )),
        mistake: None,
        changed: &["checksum.py"],
    },
    Case {
        name: "settings",
        protocol: Protocol::Anthropic,
        files: &[
            ("config/settings.json", "{\n  \"retries\": 3,\n  \"hosts\": [\"a\", \"b\"],\n}\n"),
            (
                "tests/test_config.py",
                "import json, unittest\n\nclass Config(unittest.TestCase):\n    def test_settings__are_valid(self):\n        with open(\"config/settings.json\") as file:\n            self.assertEqual(json.load(file)[\"retries\"], 3)\n",
            ),
        ],
        tests: TESTS,
        hidden: "python3 -B -c 'import json; assert json.load(open(\"config/settings.json\")) == {\"retries\": 3, \"hosts\": [\"a\", \"b\"]}'",
        find: Find::Glob,
        by: By::Write,
        repairs: &[("],\n}", "]\n}")],
        look_up: None,
        mistake: None,
        changed: &["config/settings.json"],
    },
];
