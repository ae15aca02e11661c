//! Checks the display functions: their output contains no terminal control characters, whatever a box wrote.

use belljar_model::display;

pub fn check(bytes: &[u8]) {
    for line in [display::safe(bytes), display::safe_line(bytes)] {
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    let text = display::safe_multiline(bytes);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}
