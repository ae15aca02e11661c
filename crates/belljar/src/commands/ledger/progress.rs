//! The progress display of long operations.

use std::time::{Duration, Instant};

use crate::print;

/// A progress display, which appears if an operation takes longer than half a second.
#[derive(Debug)]
pub(super) struct Progress {
    label: &'static str,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// Creates a hidden progress display.
    pub(super) fn new(label: &'static str) -> Self {
        Self { label, next: Instant::now() + Duration::from_millis(500), is_shown: false }
    }

    /// Updates the bar and the percentage, at most ten times per second.
    pub(super) fn update(&mut self, done: u64, total: u64) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(100);
        self.is_shown = true;
        print::progress(&line(self.label, done, total));
    }

    /// Removes the progress display from the screen.
    pub(super) fn clear(&self) {
        if self.is_shown {
            print::progress("");
        }
    }
}

/// Returns the label, a bar of 20 characters and the percentage.
fn line(label: &str, done: u64, total: u64) -> String {
    let of = |parts: u128| u128::from(done.min(total)) * parts / u128::from(total.max(1));
    let full = usize::try_from(of(20)).unwrap_or(0);
    format!("{label} [{:<20}] {} %", "#".repeat(full), of(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_a_bar_and_a_percentage_for_any_size() {
        assert_eq!(line("checked", 0, 0), "checked [                    ] 0 %");
        assert_eq!(line("checked", 37, 100), "checked [#######             ] 37 %");
        assert_eq!(line("checked", u64::MAX, u64::MAX), "checked [####################] 100 %");
        assert_eq!(line("checked", 5, 4), "checked [####################] 100 %");
    }
}
