//! What a keeper and its screen say to each other.

use serde::{Deserialize, Serialize};

/// Most bytes of output in one word: well below what the socket takes at once.
pub const MAX_OUTPUT: usize = 32 * 1024;
/// Most bytes of answers in one word.
pub const MAX_ANSWER: usize = 1024;

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

impl Size {
    /// What a terminal has that nobody looks at yet.
    pub const USUAL: Self = Self { rows: 24, columns: 80 };

    /// The nearest size that a screen is kept in. Its memory grows with it.
    pub fn sane(self) -> Self {
        Self { rows: self.rows.clamp(2, 400), columns: self.columns.clamp(2, 600) }
    }

    /// The largest that fits into both.
    pub fn within(self, other: Self) -> Self {
        Self { rows: self.rows.min(other.rows), columns: self.columns.min(other.columns) }
    }
}

/// To the screen.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToScreen {
    /// The box wrote this.
    Output(Vec<u8>),
    /// Some of what it wrote before was skipped.
    Gap,
    /// The terminal of the box has another size.
    Size(Size),
    /// Somebody looks, whose socket comes with this.
    Viewer { id: u64 },
    /// Somebody's terminal shows nothing of ours any more.
    Redraw { id: u64 },
    /// Somebody looks back by so many lines; none: at what is there now.
    Scroll { id: u64, lines: Option<i32> },
    /// Somebody has left.
    Gone { id: u64 },
}

/// From the screen: what the terminal of the box answers to a question of the program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer(pub Vec<u8>);
