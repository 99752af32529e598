//! Weight and window along a response, drawn.

use std::path::Path;

use plotters::prelude::*;

use crate::explain::ExplainedToken;

const SIZE: (u32, u32) = (820, 420);
const WINDOW: RGBColor = RGBColor(70, 110, 190);
const WEIGHT: RGBColor = RGBColor(40, 40, 40);
const STOPPED: RGBColor = RGBColor(200, 60, 40);

/// Draws the window as a band, the weights as a line, and a dot at every token that a bound acted on.
pub(crate) fn draw(path: &Path, title: &str, tokens: &[ExplainedToken]) -> anyhow::Result<()> {
    let points = |of: &dyn Fn(&ExplainedToken) -> Option<f64>| -> Vec<(f64, f64)> {
        tokens.iter().filter_map(|token| Some((token.position as f64, of(token)?))).collect()
    };
    let weights = points(&|token| token.weight);
    let (low, high) = (points(&|token| token.low), points(&|token| token.high));
    let (bottom, top) = range(&weights, &low, &high);
    let within = |(x, y): (f64, f64)| (x, y.clamp(bottom, top));

    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let last = tokens.len().max(2) as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: weight and window by position"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(1.0..last, bottom..top)?;
    chart.configure_mesh().x_desc("position t").y_desc("importance weight").light_line_style(WHITE).draw()?;
    let band = low.iter().chain(high.iter().rev()).map(|point| within(*point)).collect::<Vec<_>>();
    if !low.is_empty() && low.len() == high.len() {
        chart.draw_series(std::iter::once(Polygon::new(band, WINDOW.mix(0.15))))?;
    }
    for bound in [low, high] {
        chart.draw_series(LineSeries::new(bound.into_iter().map(within), WINDOW.stroke_width(1)))?;
    }
    chart.draw_series(LineSeries::new(weights.iter().copied().map(within), WEIGHT.stroke_width(1)))?;
    let stopped = tokens.iter().filter(|token| !token.acts.is_empty());
    let stopped = stopped.filter_map(|token| Some(within((token.position as f64, token.weight?))));
    chart.draw_series(stopped.map(|point| Circle::new(point, 2, STOPPED.filled())))?;
    area.present()?;
    Ok(())
}

/// The range of the weights and 1, a little wider; windows are shown as far as they lie near it.
fn range(weights: &[(f64, f64)], low: &[(f64, f64)], high: &[(f64, f64)]) -> (f64, f64) {
    let values = || weights.iter().map(|(_, weight)| *weight).chain([1.0]);
    let (least, most) = values().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
    let reach = (most - least).max(0.01);
    let near = |bounds: &[(f64, f64)]| -> Vec<f64> {
        let all = bounds.iter().map(|(_, value)| *value);
        all.filter(|value| (least - reach..most + reach).contains(value)).collect()
    };
    let (bottom, top) =
        near(low).into_iter().chain(near(high)).fold((least, most), |(a, b), v| (a.min(v), b.max(v)));
    let margin = 0.05 * (top - bottom).max(0.01);
    (bottom - margin, top + margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(position: usize, weight: f64, acts: &'static str) -> ExplainedToken {
        ExplainedToken {
            position,
            token: None,
            advantage: 1.0,
            ratio: weight,
            weight: Some(weight),
            low: Some(0.8),
            high: Some(1.2),
            acts,
            coefficient: weight,
        }
    }

    #[test]
    fn the_drawing_has_a_band_a_line_and_a_dot_for_each_stopped_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        draw(&path, "grpo", &[token(1, 1.0, ""), token(2, 1.3, "high"), token(3, 0.9, "")]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("<polygon") && svg.contains("<polyline") && svg.contains("importance weight"));
        assert_eq!(svg.matches("<circle").count(), 1);
    }

    #[test]
    fn a_window_far_away_does_not_flatten_the_weights() {
        let (bottom, top) = range(&[(1.0, 1.01), (2.0, 0.99)], &[(1.0, -5.0)], &[(1.0, 40.0)]);
        assert!(bottom > 0.9 && top < 1.1, "{bottom} {top}");
    }
}
