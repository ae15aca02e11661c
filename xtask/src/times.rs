//! Lists the slowest tests of a run, from the JUnit report of nextest.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::shell::target_dir;

/// The number of tests in the list of the slowest tests.
const SHOWN: usize = 10;

/// The duration in seconds and the name of every test that ran.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<(f64, String)>);

/// Returns the path of the report, as set in `.config/nextest.toml`.
pub(crate) fn report() -> Result<PathBuf> {
    Ok(target_dir()?.join("nextest/default/junit.xml"))
}

impl Times {
    /// Adds the tests of the last run. `user` distinguishes the runs of one test by different users.
    pub(crate) fn add(&mut self, user: &str) -> Result<()> {
        let path = report()?;
        let xml = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        self.0.extend(parse(&xml).map(|(took, name)| (took, format!("{name} ({user})"))));
        Ok(())
    }

    /// Returns a table of the slowest tests; empty if no test was timed.
    pub(crate) fn summary(&self) -> String {
        let mut sorted: Vec<&(f64, String)> = self.0.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut text = String::new();
        for (took, name) in sorted.into_iter().take(SHOWN) {
            text += &format!("      {took:>7.1} s  {name}\n");
        }
        if text.is_empty() { text } else { format!("slowest of {} tests\n{text}", self.0.len()) }
    }
}

/// Parses the elements `<testcase name="…" classname="…" … time="…">` of a JUnit report.
fn parse(xml: &str) -> impl Iterator<Item = (f64, String)> + '_ {
    xml.split("<testcase ").skip(1).filter_map(|rest| {
        let tag = rest.split('>').next()?;
        let value = |key: &str| {
            let (_, after) = tag.split_once(&format!("{key}=\""))?;
            Some(unescaped(after.split('"').next()?))
        };
        let name = format!("{} {}", value("classname")?, value(" name").or_else(|| value("name"))?);
        Some((value("time")?.parse().ok()?, name))
    })
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<testsuites name="run"><testsuite name="a::it" tests="2">
        <testcase name="m::quick" classname="a::it" timestamp="x" time="0.125"></testcase>
        <testcase name="m::a&lt;b&gt;" classname="a::it" timestamp="x" time="3.500">
            <failure/></testcase></testsuite></testsuites>"#;

    #[test]
    fn summary_lists_the_slowest_tests_first_and_includes_failed_tests() {
        let times = Times(parse(XML).collect());
        let expect =
            "slowest of 2 tests\n          3.5 s  a::it m::a<b>\n          0.1 s  a::it m::quick\n";
        assert_eq!(times.summary(), expect);
    }

    #[test]
    fn summary_lists_at_most_ten_tests_and_is_empty_without_tests() {
        let many = Times((0..12).map(|n| (f64::from(n), n.to_string())).collect());
        assert_eq!(many.summary().lines().count(), 11);
        assert_eq!(Times::default().summary(), "");
    }
}
