//! The steps of a long command. Each step is announced and timed; the first failure ends the command.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The completed steps of a command, with their durations.
#[derive(Debug)]
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(String, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new() }
    }

    /// Runs one step and records its duration. A failed step is not part of [`Steps::summary`].
    pub(crate) fn step<T>(&mut self, name: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {}. {name}", self.done.len() + 1);
        let started = Instant::now();
        let value = action().with_context(|| format!("step `{name}` failed"))?;
        let took = started.elapsed();
        println!("=== {name}: done in {:.1} s", took.as_secs_f64());
        self.done.push((name.to_owned(), took));
        Ok(value)
    }

    /// Returns a table of the completed steps with their durations.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (name, took) in &self.done {
            text += &format!("  ok  {:>7.1} s  {name}\n", took.as_secs_f64());
        }
        text + &format!("      {:>7.1} s  total\n", self.started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_is_named_in_the_error_and_left_out_of_the_summary() {
        let mut steps = Steps::new();
        assert_eq!(steps.step("first", || Ok(7)).unwrap(), 7);
        let error = steps.step("second", || -> Result<()> { anyhow::bail!("no") }).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `second` failed: no");
        let summary = steps.summary();
        assert!(summary.contains("first") && !summary.contains("second"), "{summary}");
    }
}
