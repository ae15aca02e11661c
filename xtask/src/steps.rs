//! The steps of a long command: each announced, timed, and the first failure ends it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// What was done so far and how long it took.
#[derive(Debug)]
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(String, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new() }
    }

    /// Does one step. After a failure the caller stops; [`Steps::summary`] then says how far it came.
    pub(crate) fn step<T>(&mut self, name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {}. {name}", self.done.len() + 1);
        let started = Instant::now();
        let value = act().with_context(|| format!("step `{name}`"))?;
        let took = started.elapsed();
        println!("=== {name}: done in {:.1} s", took.as_secs_f64());
        self.done.push((name.to_owned(), took));
        Ok(value)
    }

    /// The table at the end.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (name, took) in &self.done {
            text += &format!("  ok  {:>7.1} s  {name}\n", took.as_secs_f64());
        }
        text + &format!("      {:>7.1} s  in all\n", self.started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_named_and_is_not_in_the_summary() {
        let mut steps = Steps::new();
        assert_eq!(steps.step("first", || Ok(7)).unwrap(), 7);
        let error = steps.step("second", || -> Result<()> { anyhow::bail!("no") }).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `second`: no");
        let summary = steps.summary();
        assert!(summary.contains("first") && !summary.contains("second"), "{summary}");
    }
}
