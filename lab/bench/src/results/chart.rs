//! Bar charts in SVG, readable on light and dark ground by a style sheet, which plotting crates don't write.

use super::table::number;
use std::fmt::Write as _;

/// Width of the longest bar, in SVG units.
const LENGTH: f64 = 400.0;
/// Room for a figure behind it.
const FIGURES: f64 = 110.0;
/// Room around, and between a label and its bar.
const MARGIN: f64 = 16.0;
/// A character of a label, on average; a little more than fonts take.
const CHARACTER: f64 = 7.0;
/// The least width, so that titles have room.
const WIDTH: f64 = 760.0;
const BAR: f64 = 20.0;
const STEP: f64 = 30.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 14.0;

/// A chart of horizontal bars, one below the other.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    subtitle: String,
    bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
struct Bar {
    label: String,
    value: f64,
    /// Least and greatest of the runs.
    range: Option<(f64, f64)>,
    /// Whether it is what the others are compared with.
    is_reference: bool,
}

impl Chart {
    /// A chart without bars; the subtitle says the unit and what is better.
    pub fn new(title: &str, subtitle: &str) -> Chart {
        Chart { title: title.into(), subtitle: subtitle.into(), bars: Vec::new() }
    }
    /// Adds a bar with a thin line from the least to the greatest of the runs.
    pub fn bar(mut self, label: &str, value: f64, range: Option<(f64, f64)>) -> Chart {
        self.bars.push(Bar { label: label.into(), value, range, is_reference: false });
        self
    }
    /// Adds a bar that the others are compared with.
    pub fn reference(mut self, label: &str, value: f64) -> Chart {
        self.bars.push(Bar { label: label.into(), value, range: None, is_reference: true });
        self
    }

    /// The chart as an SVG file.
    pub fn svg(&self) -> String {
        let start = self.start();
        let width = start + LENGTH + FIGURES;
        let height = TOP + STEP * self.bars.len() as f64 + BOTTOM;
        let greatest =
            self.bars.iter().map(|bar| bar.range.map_or(bar.value, |range| range.1.max(bar.value)));
        let greatest = greatest.fold(f64::MIN_POSITIVE, f64::max);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n{STYLE}\
             <text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n\
             <text class=\"quiet\" x=\"16\" y=\"46\">{subtitle}</text>\n",
            title = escape(&self.title),
            subtitle = escape(&self.subtitle()),
        );
        let bottom = height - BOTTOM;
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{start}\" y1=\"{TOP}\" x2=\"{start}\" y2=\"{bottom}\"/>"
        );
        for (index, bar) in self.bars.iter().enumerate() {
            svg += &bar.svg(TOP + STEP * index as f64 + (STEP - BAR) / 2.0, start, LENGTH / greatest);
        }
        svg + "</svg>\n"
    }

    /// Where bars begin: behind the longest label.
    fn start(&self) -> f64 {
        let longest = self.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        (2.0 * MARGIN + CHARACTER * longest as f64).max(WIDTH - LENGTH - FIGURES)
    }

    fn subtitle(&self) -> String {
        let explained = if self.bars.iter().any(|bar| bar.range.is_some()) {
            "; thin lines: least to greatest run"
        } else {
            ""
        };
        format!("{}{explained}", self.subtitle)
    }
}

const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #6e7781 }
.bar { fill: #3b7ea1 }
.reference { fill: #9aa4ad }
.axis { stroke: #6e7781; stroke-width: 1 }
.range { stroke: #24292f; stroke-width: 1.5; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9aa4ad } .bar { fill: #3b7ea1 } .range { stroke: #e6edf3 }
}
</style>
";

impl Bar {
    fn svg(&self, top: f64, start: f64, scale: f64) -> String {
        let length = |value: f64| if value.is_finite() { value.max(0.0) * scale } else { 0.0 };
        let (middle, text) = (top + BAR / 2.0, top + BAR / 2.0 + 4.5);
        let class = if self.is_reference { "reference" } else { "bar" };
        let mut end = start + length(self.value);
        let mut svg = format!(
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\n\
             <rect class=\"{class}\" x=\"{start}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\n",
            start - MARGIN / 2.0,
            escape(&self.label),
            length(self.value),
        );
        if let Some((least, greatest)) = self.range {
            let (from, to) = (start + length(least), start + length(greatest));
            end = end.max(to);
            let (above, below) = (middle - 4.0, middle + 4.0);
            let _ = writeln!(
                svg,
                "<path class=\"range\" d=\"M{from:.1} {above}V{below}M{from:.1} {middle}H{to:.1}M{to:.1} \
                 {above}V{below}\"/>"
            );
        }
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{text}\">{}</text>", end + 8.0, number(self.value));
        svg
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_labels_are_escaped() {
        let chart = Chart::new("a & b", "ns").bar("half <x>", 50.0, None).reference("whole", 100.0);
        let svg = chart.svg();
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("half &lt;x&gt;"), "{svg}");
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[1] - LENGTH).abs() < 0.1 && (widths[0] * 2.0 - widths[1]).abs() < 0.2, "{widths:?}");
    }

    #[test]
    fn long_labels_have_room_and_ranges_are_explained() {
        let label = "x".repeat(70);
        let svg = Chart::new("", "ns").bar(&label, 1.0, Some((1.0, 2.0))).svg();
        let anchor: f64 = svg.split("<text x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(anchor > 70.0 * CHARACTER, "{svg}");
        assert!(svg.contains(">ns; thin lines: least to greatest run<"), "{svg}");
        assert!(svg.contains("class=\"range\""), "{svg}");
    }

    #[test]
    fn a_chart_of_nothing_and_of_no_number_is_still_a_chart() {
        assert!(Chart::new("", "").svg().ends_with("</svg>\n"));
        let svg = Chart::new("", "").bar("lost", f64::NAN, Some((f64::NAN, f64::INFINITY))).svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
