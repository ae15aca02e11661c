//! When each task of a run ran, as a picture.

use super::{Text, run::Mark, took};

const LEFT: u64 = 130;
const RIGHT: u64 = 640;
const ROW: u64 = 20;
/// More tasks are not drawn. All are in the table.
const MAX_ROWS: usize = 40;
const MAX_TICKS: u64 = 6;
/// Distances between the lines of the scale, in seconds.
const STEPS: [u64; 15] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];

/// A task that has started.
pub(super) struct Span {
    pub(super) name: Text,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) mark: Mark,
}

pub(super) struct Timeline {
    pub(super) height: u64,
    pub(super) ticks: Vec<Tick>,
    pub(super) bars: Vec<Bar>,
    pub(super) text: String,
    /// The number of tasks that are not drawn.
    pub(super) rest: usize,
}

pub(super) struct Tick {
    pub(super) x: u64,
    pub(super) text: String,
}

pub(super) struct Bar {
    pub(super) name: Text,
    pub(super) class: &'static str,
    pub(super) x: u64,
    pub(super) y: u64,
    pub(super) width: u64,
    pub(super) title: Text,
}

/// Draws the tasks between the times of the first and the last one. `None` if no task has started.
pub(super) fn draw(mut spans: Vec<Span>) -> Option<Timeline> {
    spans.sort_by_key(|span| span.from);
    let start = spans.first()?.from;
    let end = spans.iter().map(|span| span.to).max()?.max(start + 1000);
    let rest = spans.len().saturating_sub(MAX_ROWS);
    spans.truncate(MAX_ROWS);
    let scale = |time: u64| (time - start) * (RIGHT - LEFT) / (end - start);
    let bars = spans.iter().zip(0_u64..).map(|(span, row)| {
        let time = span.to.saturating_sub(span.from);
        Bar {
            name: span.name.cut(17),
            class: span.mark.bar,
            x: LEFT + scale(span.from),
            y: 16 + row * ROW,
            width: scale(span.from + time).saturating_sub(scale(span.from)).max(2),
            title: Text::from(format!("{}: {}, {}", span.name, span.mark.word, took(time))),
        }
    });
    let bars: Vec<Bar> = bars.collect();
    let rows = u64::try_from(bars.len()).unwrap_or_default();
    let seconds = (end - start) / 1000;
    let step = STEPS.into_iter().find(|step| seconds / step < MAX_TICKS);
    let step = step.unwrap_or(seconds / MAX_TICKS).max(1) * 1000;
    let ticks = (0..=(end - start) / step).map(|tick| tick * step);
    let ticks = ticks.map(|at| Tick { x: LEFT + scale(start + at), text: label(at) }).collect();
    let text = format!("When each task ran, during {}", took(end - start));
    Some(Timeline { height: 16 + rows * ROW, ticks, bars, text, rest })
}

fn label(at: u64) -> String {
    if at == 0 { "0 s".to_owned() } else { took(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Span {
        Span { name: Text::from("a"), from, to, mark: Mark::of("done") }
    }

    #[test]
    fn bars_have_the_times_of_their_tasks() {
        let drawn = draw(vec![span(5000, 10_000), span(0, 5000)]).unwrap();
        let bars: Vec<(u64, u64)> = drawn.bars.iter().map(|bar| (bar.x, bar.width)).collect();
        assert_eq!(bars, [(130, 255), (385, 255)]);
        let ticks: Vec<&str> = drawn.ticks.iter().map(|tick| tick.text.as_str()).collect();
        assert_eq!(ticks, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]);
    }

    #[test]
    fn nothing_and_very_long_times_have_a_scale() {
        assert!(draw(Vec::new()).is_none());
        assert_eq!(draw(vec![span(7, 7)]).unwrap().bars[0].width, 2);
        let long = draw(vec![span(0, 400 * 86_400_000)]).unwrap();
        assert!(long.ticks.len() <= 7);
        let many = draw((0..50).map(|at| span(at, at + 1)).collect()).unwrap();
        assert_eq!((many.bars.len(), many.rest), (40, 10));
    }
}
