//! The picture of a plan: layers from the dependencies of the tasks, drawn from left to right.
//!
//! A dependency that passes a layer has a place in it, so that no line is drawn across a task.

use std::collections::HashMap;

/// The size of a task.
pub(super) const WIDTH: usize = 190;
pub(super) const HEIGHT: usize = 54;
const GAP: usize = 40;
const MARGIN: usize = 12;
const LINE_HEIGHT: usize = 8;
const SPACE: usize = 20;
/// A larger plan is shown as a table only.
const MAX_TASKS: usize = 150;
const MAX_PLACES: usize = 600;
/// How often the order in the layers is improved.
const SWEEPS: usize = 4;

/// A drawn plan.
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    /// The position of each task.
    pub(super) places: Vec<Place>,
    pub(super) edges: Vec<Edge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) x: usize,
    pub(super) y: usize,
}

/// A dependency. `path` and `arrow` are paths of SVG.
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) path: String,
    pub(super) arrow: String,
}

/// A place in a layer: a task, or a line that passes.
#[derive(Clone, Copy)]
struct Slot {
    is_task: bool,
    layer: usize,
    y: usize,
}

struct Graph {
    slots: Vec<Slot>,
    layers: Vec<Vec<usize>>,
    /// For each dependency, the slots from the first task to the second.
    chains: Vec<Vec<usize>>,
}

/// Draws tasks. `before` has the positions of the tasks that each one waits for. `None` if there are too many.
pub(super) fn draw(before: &[Vec<usize>]) -> Option<Picture> {
    if before.is_empty() || before.len() > MAX_TASKS {
        return None;
    }
    let mut graph = Graph::of(before)?;
    for sweep in 0..SWEEPS {
        graph.order(sweep % 2 == 0);
    }
    let height = graph.set_heights();
    let places = graph.slots.iter().take(before.len());
    let places = places.map(|slot| Place { x: left(slot.layer), y: slot.y }).collect();
    let edges = graph.chains.iter().filter_map(|chain| graph.edge(chain)).collect();
    let width = left(graph.layers.len()) - GAP + MARGIN;
    Some(Picture { width, height, places, edges })
}

const fn left(layer: usize) -> usize {
    MARGIN + layer * (WIDTH + GAP)
}

/// Returns the layer of each task: one more than the last of those before it.
fn layers(before: &[Vec<usize>]) -> Vec<usize> {
    let mut layers = vec![0; before.len()];
    // A plan has no cycle. The limit ends the loop in any case.
    for _ in 0..before.len() {
        let mut is_done = true;
        for (task, before) in before.iter().enumerate() {
            let last = before.iter().filter_map(|it| layers.get(*it)).max();
            let layer = last.map_or(0, |last| last + 1);
            if let Some(known) = layers.get_mut(task).filter(|known| **known != layer) {
                *known = layer;
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    layers
}

impl Graph {
    fn of(before: &[Vec<usize>]) -> Option<Self> {
        let of_tasks = layers(before);
        let slot = |layer: &usize| Slot { is_task: true, layer: *layer, y: 0 };
        let mut slots: Vec<Slot> = of_tasks.iter().map(slot).collect();
        let mut chains = Vec::new();
        for (to, before) in before.iter().enumerate() {
            for from in before {
                let (first, last) = (*of_tasks.get(*from)?, *of_tasks.get(to)?);
                let mut chain = vec![*from];
                for layer in first + 1..last {
                    chain.push(slots.len());
                    slots.push(Slot { is_task: false, layer, y: 0 });
                }
                chain.push(to);
                chains.push(chain);
            }
            if slots.len() > MAX_PLACES {
                return None;
            }
        }
        let count = of_tasks.iter().max().map_or(0, |last| last + 1);
        let mut layers = vec![Vec::new(); count];
        for (position, slot) in slots.iter().enumerate() {
            layers.get_mut(slot.layer)?.push(position);
        }
        Some(Self { slots, layers, chains })
    }

    /// Sorts each layer by the middle of the neighbours on one side.
    fn order(&mut self, is_forward: bool) {
        let mut neighbours: HashMap<usize, Vec<usize>> = HashMap::new();
        for pair in self.chains.iter().flat_map(|chain| chain.windows(2)) {
            if let [from, to] = *pair {
                let (of, next) = if is_forward { (to, from) } else { (from, to) };
                neighbours.entry(of).or_default().push(next);
            }
        }
        let count = self.layers.len();
        for step in 0..count {
            let layer = if is_forward { step } else { count - 1 - step };
            let positions: HashMap<usize, usize> = self
                .layers
                .iter()
                .flat_map(|it| it.iter().copied().enumerate())
                .map(|(at, slot)| (slot, at))
                .collect();
            let middle = |slot: &usize| {
                let known = neighbours.get(slot).into_iter().flatten();
                let known: Vec<usize> = known.filter_map(|it| positions.get(it).copied()).collect();
                let own = positions.get(slot).copied().unwrap_or_default();
                // In thousandths, because positions are whole numbers.
                (known.iter().sum::<usize>() * 1000).checked_div(known.len()).unwrap_or(own * 1000)
            };
            if let Some(slots) = self.layers.get_mut(layer) {
                slots.sort_by_cached_key(middle);
            }
        }
    }

    /// Sets the vertical positions, with each layer in the middle. Returns the height of the picture.
    fn set_heights(&mut self) -> usize {
        let height = |slots: &[Slot], layer: &[usize]| {
            let slots = layer.iter().filter_map(|it| slots.get(*it));
            slots.map(|slot| size(*slot) + SPACE).sum::<usize>().saturating_sub(SPACE)
        };
        let tallest = self.layers.iter().map(|layer| height(&self.slots, layer)).max().unwrap_or(0);
        for layer in &self.layers {
            let mut y = MARGIN + (tallest - height(&self.slots, layer)) / 2;
            for slot in layer {
                if let Some(slot) = self.slots.get_mut(*slot) {
                    slot.y = y;
                    y += size(*slot) + SPACE;
                }
            }
        }
        tallest + 2 * MARGIN
    }

    /// Draws a dependency from the right side of a task to the left side of another one.
    fn edge(&self, chain: &[usize]) -> Option<Edge> {
        let first = self.slots.get(*chain.first()?)?;
        let (mut x, mut y) = (left(first.layer) + WIDTH, middle(*first));
        let mut path = format!("M{x} {y}");
        for (position, slot) in chain.iter().enumerate().skip(1) {
            let slot = self.slots.get(*slot)?;
            let is_last = position + 1 == chain.len();
            let end = left(slot.layer) - if is_last { 7 } else { 0 };
            let (half, to) = (usize::midpoint(x, end), middle(*slot));
            path.push_str(&format!("C{half} {y} {half} {to} {end} {to}"));
            (x, y) = (end, to);
            if !is_last {
                x += WIDTH;
                path.push_str(&format!("H{x}"));
            }
        }
        let arrow = format!("M{x} {}L{} {y}L{x} {}z", y - 4, x + 7, y + 4);
        Some(Edge { to: *chain.last()?, path, arrow })
    }
}

const fn size(slot: Slot) -> usize {
    if slot.is_task { HEIGHT } else { LINE_HEIGHT }
}

const fn middle(slot: Slot) -> usize {
    slot.y + size(slot) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_is_right_of_all_tasks_before_it() {
        let before = [vec![], vec![0], vec![0, 1], vec![], vec![2, 3]];
        let picture = draw(&before).unwrap();
        let columns: Vec<usize> = picture.places.iter().map(|it| it.x / (WIDTH + GAP)).collect();
        assert_eq!(columns, [0, 1, 2, 0, 3]);
        assert_eq!(picture.edges.len(), 5);
        assert!(picture.places.iter().all(|it| it.x + WIDTH <= picture.width));
        assert!(picture.places.iter().all(|it| it.y + HEIGHT <= picture.height));
    }

    #[test]
    fn tasks_of_a_layer_do_not_overlap_and_lines_do_not_cross_if_they_need_not() {
        let picture = draw(&[vec![], vec![], vec![1], vec![0]]).unwrap();
        let [first, second, of_second, of_first] = picture.places[..] else { panic!() };
        assert!(first.y + HEIGHT <= second.y);
        assert_eq!((first.y, second.y), (of_first.y, of_second.y));
    }

    #[test]
    fn large_plans_and_cycles_have_no_endless_picture() {
        assert!(draw(&[]).is_none());
        assert!(draw(&vec![vec![]; MAX_TASKS + 1]).is_none());
        let all: Vec<Vec<usize>> = (0..MAX_TASKS).map(|task| (0..task).collect()).collect();
        assert!(draw(&all).is_none(), "too many lines");
        drop(draw(&[vec![1], vec![0]]));
        assert!(draw(&[vec![7]]).is_none(), "an unknown task");
    }
}
