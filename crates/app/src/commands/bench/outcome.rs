//! The measured figures and their table.

use crate::item::Item;
use crate::output::{Column, Lines, OutputArgs, TerminalStyle, View, print};
use everwatch_core::clock;
use serde::Serialize;
use std::fmt;

const FIGURES: View<Outcome> = View {
    noun: "figures",
    name: |it| it.what.clone(),
    key: |it| it.what.clone(),
    columns: &[
        Column::<Outcome>::new("MEASURED", |it, _| it.what.clone()),
        Column::<Outcome>::new("UNIT", |it, _| it.unit.to_owned()),
        Column::<Outcome>::new("EVERWATCH", |it, _| number(it.everwatch)).right(),
        Column::<Outcome>::new("BARE BROKER", |it, _| it.broker.map_or_else(String::new, number)).right(),
        Column::<Outcome>::new("RATIO", |it, _| it.ratio.map_or_else(String::new, number)).right(),
        Column::<Outcome>::new("AIM", |it, _| it.aim.map_or_else(String::new, |aim| aim.to_string())),
        Column::<Outcome>::new("MET", |it, _| {
            it.is_met().map_or("", |met| if met { "yes" } else { "no" }).to_owned()
        }),
    ],
};

/// The target of a figure.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) if *least >= 100.0 => write!(f, "≥ {}", number(*least)),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// One figure of Everwatch, with the broker's figure if there is one.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) everwatch: f64,
    pub(super) broker: Option<f64>,
    /// The value that the target refers to: the ratio to the broker's figure, or the figure itself if the
    /// broker has none.
    pub(super) ratio: Option<f64>,
    pub(super) aim: Option<Aim>,
}

impl Outcome {
    pub(super) fn beside(what: String, unit: &'static str, (everwatch, broker): (f64, f64)) -> Self {
        Self { what, unit, everwatch, broker: Some(broker), ratio: Some(everwatch / broker), aim: None }
    }
    pub(super) fn alone(what: String, unit: &'static str, everwatch: f64) -> Self {
        Self { what, unit, everwatch, broker: None, ratio: None, aim: None }
    }
    pub(super) fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    fn is_met(&self) -> Option<bool> {
        let figure = self.ratio.unwrap_or(self.everwatch);
        self.aim.map(|aim| match aim {
            Aim::AtLeast(least) => figure >= least,
            Aim::AtMost(most) => figure <= most,
        })
    }
}

pub(super) fn table(outcomes: &[Outcome]) -> anyhow::Result<()> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let rows = outcomes.iter().cloned().map(Item::new).collect::<anyhow::Result<Vec<_>>>()?;
    print(&Lines::new(&FIGURES, &OutputArgs::default(), TerminalStyle::stdout()).page(&rows, clock::now()));
    Ok(())
}

pub(super) fn json(outcomes: &[Outcome]) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(outcomes)?);
    Ok(())
}

/// Formats a value with about three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        big if big >= 100.0 => format!("{value:.0}"),
        some if some >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The median. Of an even number of values, the worse of the middle two, because the better one would flatter
/// the result.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_about_the_ratio_where_there_is_one() {
        let beside = Outcome::beside("x".to_owned(), "s", (3.0, 2.0));
        assert_eq!(beside.clone().aim(Aim::AtMost(1.5)).is_met(), Some(true));
        assert_eq!(beside.aim(Aim::AtMost(1.4)).is_met(), Some(false));
        let alone = Outcome::alone("x".to_owned(), "KiB", 3.0);
        assert_eq!(alone.clone().is_met(), None);
        assert_eq!(alone.aim(Aim::AtLeast(4.0)).is_met(), Some(false));
    }

    #[test]
    fn the_median_is_the_middle_or_the_worse_of_the_middle_two() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn numbers_show_about_three_digits() {
        assert_eq!([1234.5, 12.34, 0.123].map(number), ["1234", "12.3", "0.12"]);
    }
}
