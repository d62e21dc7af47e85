//! Curves over the number of threads, as an SVG file: one for each engine, with the threads marked that
//! had to share processors.

use artery_bench::results::number;
use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 470.0;
/// The field that curves are drawn in.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 410.0;
/// Least distance of two names.
const LINE: f64 = 17.0;
/// Half the width of a mark, and of the bar at an end of a range.
const MARK: f64 = 4.0;
/// Lines across, at the least.
const LINES: f64 = 4.0;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct At {
    pub(super) threads: usize,
    pub(super) value: f64,
    /// Least and greatest of the runs.
    pub(super) range: Option<(f64, f64)>,
    /// Threads had to share processors.
    pub(super) is_crowded: bool,
}

/// Curves of one figure.
pub(super) struct Curves {
    title: String,
    /// What is measured and in what unit, and what is better.
    subtitle: String,
    processors: usize,
    curves: Vec<(String, &'static str, Vec<At>)>,
}

impl Curves {
    /// A figure without curves.
    pub(super) fn new(title: &str, subtitle: &str, processors: usize) -> Curves {
        Curves { title: title.into(), subtitle: subtitle.into(), processors, curves: Vec::new() }
    }

    /// Adds a curve, from left to right, if it has points.
    pub(super) fn curve(mut self, name: &str, color: &'static str, points: Vec<At>) -> Curves {
        if !points.is_empty() {
            self.curves.push((name.into(), color, points));
        }
        self
    }

    /// The figure as an SVG file.
    pub(super) fn svg(&self) -> String {
        let field = Field::around(&self.curves);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\">\n<title>{title}</title>\n\
             {STYLE}<text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n\
             <text class=\"quiet\" x=\"16\" y=\"46\">{subtitle}</text>\n\
             <text class=\"quiet\" x=\"16\" y=\"64\">{marks}</text>\n",
            title = self.title,
            subtitle = self.subtitle,
            marks = self.marks(),
        );
        field.draw(&mut svg);
        for (_, color, points) in &self.curves {
            field.curve(&mut svg, color, points);
        }
        field.names(&mut svg, &self.curves);
        svg + "</svg>\n"
    }

    /// What marks mean, as far as there are such.
    fn marks(&self) -> String {
        let points = || self.curves.iter().flat_map(|(.., points)| points);
        let ranges = points().any(|at| at.range.is_some()).then(|| "bars: least to greatest run".to_string());
        let crowded = points().any(|at| at.is_crowded);
        let crowded =
            crowded.then(|| format!("hollow, dashed: more threads than the {} processors", self.processors));
        [ranges, crowded].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #6e7781 }
.grid { stroke: #6e7781; stroke-opacity: 0.25 }
.axis { stroke: #6e7781 }
.curve { fill: none; stroke-width: 2 }
.lead { stroke-width: 1; stroke-opacity: 0.5; fill: none }
.hollow { fill: #ffffff; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9aa4ad } .hollow { fill: #0d1117 }
}
</style>
";

/// Where numbers are in the picture.
struct Field {
    /// First and last number of threads.
    threads: [usize; 2],
    /// From one line across to the next, and the value at the top.
    step: f64,
    top: f64,
}

impl Field {
    /// One that all curves have room in.
    fn around(curves: &[(String, &'static str, Vec<At>)]) -> Field {
        let points = || curves.iter().flat_map(|(.., points)| points);
        let greatest = points().map(|at| at.range.map_or(at.value, |range| range.1.max(at.value)));
        let greatest = greatest.filter(|value| value.is_finite()).fold(1e-9, f64::max);
        let step = round_step(greatest / LINES);
        let first = points().map(|at| at.threads).min().unwrap_or(1);
        let last = points().map(|at| at.threads).max().unwrap_or(1);
        Field { threads: [first, last], step, top: (greatest / step).ceil() * step }
    }

    fn x(&self, threads: usize) -> f64 {
        let [first, last] = self.threads;
        LEFT + 12.0 + (RIGHT - LEFT - 24.0) * (threads - first) as f64 / (last - first).max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
        BOTTOM - (BOTTOM - TOP) * (value / self.top).min(1.0)
    }

    /// Lines across with their values, and threads below.
    fn draw(&self, svg: &mut String) {
        for line in 0..=(self.top / self.step).round() as u32 {
            let (value, class) = (f64::from(line) * self.step, if line == 0 { "axis" } else { "grid" });
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\n\
                 <text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                number(value)
            );
        }
        for threads in self.threads[0]..=self.threads[1] {
            let _ = writeln!(
                svg,
                "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{threads}</text>",
                self.x(threads),
                BOTTOM + 20.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">threads that send</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + 42.0
        );
    }

    fn curve(&self, svg: &mut String, color: &str, points: &[At]) {
        for pair in points.windows(2) {
            let dash = if pair[1].is_crowded { " stroke-dasharray=\"4 4\"" } else { "" };
            let [(x1, y1), (x2, y2)] = [pair[0], pair[1]].map(|at| (self.x(at.threads), self.y(at.value)));
            let _ = writeln!(
                svg,
                "<line class=\"curve\" stroke=\"{color}\"{dash} x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" \
                 y2=\"{y2:.1}\"/>"
            );
        }
        for at in points {
            self.mark(svg, color, at);
        }
    }

    fn mark(&self, svg: &mut String, color: &str, at: &At) {
        let (x, y) = (self.x(at.threads), self.y(at.value));
        if let Some((least, greatest)) = at.range {
            let (low, high, left, right) = (self.y(least), self.y(greatest), x - MARK, x + MARK);
            let _ = writeln!(
                svg,
                "<path class=\"range\" stroke=\"{color}\" d=\"M{left:.1} {low:.1}H{right:.1}M{x:.1} \
                 {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
            );
        }
        let class = if at.is_crowded { "class=\"hollow\"".into() } else { format!("fill=\"{color}\"") };
        let _ =
            writeln!(svg, "<circle {class} stroke=\"{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{MARK}\"/>");
    }

    /// Names at the ends of curves, moved apart where these are close, each with its last value.
    fn names(&self, svg: &mut String, curves: &[(String, &'static str, Vec<At>)]) {
        let mut ends: Vec<_> = curves.iter().filter_map(|curve| Some((curve, *curve.2.last()?))).collect();
        ends.sort_by(|(_, a), (_, b)| b.value.total_cmp(&a.value));
        let wanted: Vec<f64> = ends.iter().map(|(_, at)| self.y(at.value)).collect();
        for (((name, color, _), at), y) in ends.iter().map(|(curve, at)| (*curve, at)).zip(apart(&wanted)) {
            let (x, from) = (RIGHT + 24.0, self.y(at.value));
            let _ = writeln!(
                svg,
                "<path class=\"lead\" stroke=\"{color}\" d=\"M{:.1} {from:.1}L{:.1} {y:.1}\"/>\n\
                 <circle fill=\"{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{MARK}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\">{name}: {}</text>",
                self.x(at.threads) + 7.0,
                x - 7.0,
                x + 10.0,
                y + 4.5,
                number(at.value)
            );
        }
    }
}

/// A step of lines: 1, 2 or 5 times a power of ten, and not less than this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|times| times * power).into_iter().find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// Places as wanted, from above, but a line apart at least and above the bottom.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    for y in wanted {
        places.push(places.last().map_or(*y, |above: &f64| y.max(above + LINE)));
    }
    let mut below = BOTTOM + LINE;
    for y in places.iter_mut().rev() {
        *y = y.min(below - LINE);
        below = *y;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(threads: usize, value: f64, is_crowded: bool) -> At {
        At { threads, value, range: Some((value * 0.9, value * 1.1)), is_crowded }
    }

    #[test]
    fn points_are_to_scale_and_those_with_too_many_threads_are_hollow() {
        let curves = Curves::new("t", "Mpps", 2);
        let svg = curves.curve("A", "#000", vec![at(1, 10.0, false), at(3, 20.0, true)]).svg();
        let centers: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<circle"))
            .map(|line| line.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(((BOTTOM - centers[1]) / (BOTTOM - centers[0]) - 2.0).abs() < 0.01, "{centers:?}");
        assert_eq!(svg.matches("class=\"hollow\"").count(), 1);
        assert!(svg.contains("more threads than the 2 processors") && svg.contains(">A: 20.0<"), "{svg}");
        let svg = Curves::new("t", "Mpps", 2).curve("A", "#000", vec![at(1, 10.0, false)]).svg();
        assert!(!svg.contains("hollow,") && !svg.contains("class=\"hollow\""), "{svg}");
    }

    #[test]
    fn names_do_not_cover_each_other_and_stay_in_the_picture() {
        for wanted in [vec![400.0; 8], vec![84.0, 85.0, 86.0, 300.0, 301.0, 410.0, 410.0], vec![]] {
            let places = apart(&wanted);
            assert_eq!(places.len(), wanted.len());
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LINE - 1e-9), "{places:?}");
            assert!(places.iter().all(|y| (TOP..=BOTTOM).contains(y)), "{places:?}");
        }
    }

    #[test]
    fn lines_across_are_at_round_values() {
        for (least, step) in [(0.9, 1.0), (1.1, 2.0), (3.0, 5.0), (6.0, 10.0), (83.0, 100.0), (0.03, 0.05)] {
            assert!((round_step(least) / step - 1.0).abs() < 1e-9, "{least}: {}", round_step(least));
        }
    }

    #[test]
    fn a_figure_of_nothing_and_of_no_number_is_still_one() {
        assert!(Curves::new("", "", 1).svg().ends_with("</svg>\n"));
        let lost =
            At { threads: 1, value: f64::NAN, range: Some((f64::NAN, f64::INFINITY)), is_crowded: false };
        let svg = Curves::new("", "", 1).curve("lost", "#000", vec![lost]).svg();
        assert!(!svg.contains("=\"NaN") && !svg.contains("inf"), "{svg}");
    }
}
