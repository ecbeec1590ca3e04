//! A chart of bars on a scale of decades: its values lie far apart.

use super::axis::Decades;
use super::svg::{Anchor, Svg};

pub const WIDTH: f64 = 760.0;
pub const LEFT: f64 = 150.0;
pub const RIGHT: f64 = 90.0;
pub const TOP: f64 = 60.0;
pub const BAR: f64 = 22.0;
pub const GAP: f64 = 8.0;

pub struct Bar {
    pub name: String,
    pub value: f64,
    pub color: &'static str,
}

/// What is drawn, and how a value is written.
pub struct Chart<'a> {
    pub title: &'a str,
    pub about: &'a str,
    pub bars: Vec<Bar>,
    pub show: &'a dyn Fn(f64) -> String,
}

impl Chart<'_> {
    /// One line for each bar; `None` if there is nothing to draw.
    pub fn draw(&self) -> Option<String> {
        let axis = Decades::around(self.bars.iter().map(|bar| bar.value))?.with_room_below();
        let mut svg = lines(self.title, self.about, self.bars.len());
        self.ticks(&mut svg, axis);
        for (line, bar) in self.bars.iter().enumerate() {
            let y = TOP + line as f64 * (BAR + GAP);
            let width = span() * axis.place(bar.value);
            svg.text(LEFT - 8.0, y + 15.0, Anchor::End, 12.0, &bar.name);
            svg.rect((LEFT, y), (width, BAR), bar.color);
            svg.text(LEFT + width + 6.0, y + 15.0, Anchor::Start, 12.0, &(self.show)(bar.value));
        }
        Some(svg.finish())
    }

    fn ticks(&self, svg: &mut Svg, axis: Decades) {
        let bottom = TOP + self.bars.len() as f64 * (BAR + GAP);
        for tick in axis.ticks() {
            let x = LEFT + span() * axis.place(tick);
            svg.rule((x, TOP), (x, bottom));
            svg.text(x, bottom + 16.0, Anchor::Middle, 11.0, &(self.show)(tick));
        }
    }
}

/// A picture with its head, and room for so many lines.
pub fn lines(title: &str, about: &str, lines: usize) -> Svg {
    let height = TOP + lines as f64 * (BAR + GAP) + 30.0;
    headed(Svg::new(WIDTH, height), title, about)
}

pub fn headed(mut svg: Svg, title: &str, about: &str) -> Svg {
    svg.text(16.0, 24.0, Anchor::Start, 16.0, title);
    svg.text(16.0, 42.0, Anchor::Start, 12.0, about);
    svg
}

fn span() -> f64 {
    WIDTH - LEFT - RIGHT
}
