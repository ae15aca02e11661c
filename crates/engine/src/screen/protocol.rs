//! The messages between a supervisor and its screen process.

use serde::{Deserialize, Serialize};

/// The maximum number of bytes of output in one message, which is below the limit of the socket.
pub const MAX_OUTPUT: usize = 32 * 1024;
/// The maximum number of bytes in one [`TerminalReply`].
pub const MAX_REPLY: usize = 1024;

/// The size of a terminal in rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

impl Size {
    /// The size of a box's terminal before the first client attaches.
    pub const DEFAULT: Self = Self { rows: 24, columns: 80 };

    /// Returns the nearest size that is allowed for a screen. The limits bound the memory of the screen.
    pub fn clamped(self) -> Self {
        Self { rows: self.rows.clamp(2, 400), columns: self.columns.clamp(2, 600) }
    }

    /// Returns the largest size that fits into both sizes.
    pub fn within(self, other: Self) -> Self {
        Self { rows: self.rows.min(other.rows), columns: self.columns.min(other.columns) }
    }
}

/// A message from the supervisor to the screen process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToScreen {
    /// Output of the box.
    Output(Vec<u8>),
    /// Reports that some output of the box was dropped before this message.
    Gap,
    /// The new size of the box's terminal.
    Size(Size),
    /// Adds a viewer. A descriptor of its socket comes with this message.
    Viewer { id: u64 },
    /// Draws the whole screen of a viewer again, since its terminal was cleared or resized.
    Redraw { id: u64 },
    /// Scrolls the view of a viewer back by a number of lines. `None` shows the newest lines.
    Scroll { id: u64, lines: Option<i32> },
    /// Removes a viewer that has disconnected.
    Gone { id: u64 },
    /// Makes the process render the log of a box. The first message, which only [`super::render_log`] sends:
    /// output follows, and after the end of the connection the process answers with [`LogText`].
    Log { has_colours: bool },
}

/// A message from the screen process: a part of the text of a rendered log.
#[derive(Debug, Serialize, Deserialize)]
pub struct LogText(pub Vec<u8>);

/// A message from the screen process: the terminal's reply to a query of the program, such as for the
/// cursor position.
#[derive(Debug, Serialize, Deserialize)]
pub struct TerminalReply(pub Vec<u8>);
