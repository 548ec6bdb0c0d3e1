//! What a run of the loop may use, and the one place that says when it is used up.
//!
//! Invariant: every budget is checked before the call it would pay for, and the end of a budget is a reason to stop,
//! never an answer.

use std::time::Duration;

use tokio::time::Instant;

use super::model::TokenUsage;
use crate::error::{Result, SkillRuntimeError};

/// The longest run that can be asked for.
const MAX_WALL_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Budgets of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Turns of the model. Default 25; CARL's `llm_max_iterations` (8) is set by the step.
    pub rounds: u32,
    /// Wall-clock time of the whole run. Default 10 minutes.
    pub wall_time: Duration,
    /// Tokens in and out, all turns together. Default: not limited.
    pub tokens: Option<u64>,
    /// Cost in the unit of [`Prices`]. Default: not limited.
    pub cost: Option<f64>,
    /// What tokens cost; needed for `cost`.
    pub prices: Option<Prices>,
    /// Tool calls, all turns together. Default 200.
    pub tool_calls: u32,
    /// Tool calls of one turn; the rest of a turn's calls are not started. Default 8.
    pub calls_per_turn: usize,
}

/// Prices of a million tokens, in any one unit.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Read.
    pub input: f64,
    /// Read from a cache.
    #[serde(default)]
    pub cached: f64,
    /// Written.
    pub output: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            rounds: 25,
            wall_time: Duration::from_secs(600),
            tokens: None,
            cost: None,
            prices: None,
            tool_calls: 200,
            calls_per_turn: 8,
        }
    }
}

impl Budget {
    /// Checks the values.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): a budget of nothing (CARL "succeeded" with zero rounds), a time
    /// over a day, a cost without prices, a number that is none.
    pub fn validate(&self) -> Result<()> {
        let bad = |text: &str| Err(SkillRuntimeError::invalid(text));
        if self.rounds == 0 || self.tool_calls == 0 || self.calls_per_turn == 0 || self.tokens == Some(0) {
            return bad("a budget of zero allows nothing; give at least 1 round, tool call and token");
        }
        if self.wall_time.is_zero() || self.wall_time > MAX_WALL_TIME {
            return bad("the time budget must be more than zero and at most 24h");
        }
        let fine = |value: f64| value.is_finite() && value >= 0.0;
        if let Some(prices) = self.prices
            && ![prices.input, prices.cached, prices.output].into_iter().all(fine)
        {
            return bad("prices must be numbers from zero up");
        }
        match self.cost {
            Some(cost) if !fine(cost) || cost == 0.0 => bad("a cost budget must be a number above zero"),
            Some(_) if self.prices.is_none() => bad("a cost budget needs prices: give what a million tokens cost"),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why a run may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spent {
    Rounds,
    Deadline,
    Tokens,
    Cost,
    ToolCalls,
}

/// What was used so far.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    budget: Budget,
    deadline: Instant,
    pub(super) rounds: u32,
    pub(super) usage: TokenUsage,
    pub(super) tool_calls: u32,
}

impl Meter {
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            deadline: Instant::now() + budget.wall_time,
            budget: budget.clone(),
            rounds: 0,
            usage: TokenUsage::default(),
            tool_calls: 0,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Before a turn of the model.
    pub(super) fn before_turn(&self) -> Option<Spent> {
        if self.rounds >= self.budget.rounds {
            return Some(Spent::Rounds);
        }
        self.before_anything()
    }

    /// Before a tool call.
    pub(super) fn before_call(&self) -> Option<Spent> {
        if self.tool_calls >= self.budget.tool_calls {
            return Some(Spent::ToolCalls);
        }
        (Instant::now() >= self.deadline).then_some(Spent::Deadline)
    }

    fn before_anything(&self) -> Option<Spent> {
        if Instant::now() >= self.deadline {
            return Some(Spent::Deadline);
        }
        if self.budget.tokens.is_some_and(|limit| self.usage.total() >= limit) {
            return Some(Spent::Tokens);
        }
        match (self.budget.cost, self.cost()) {
            (Some(limit), Some(cost)) if cost >= limit => Some(Spent::Cost),
            _ => None,
        }
    }

    /// What the tokens cost, where prices are known.
    pub(super) fn cost(&self) -> Option<f64> {
        let prices = self.budget.prices?;
        let fresh = self.usage.input.saturating_sub(self.usage.cached);
        let of = |tokens: u64, price: f64| tokens as f64 * price / 1_000_000.0;
        Some(of(fresh, prices.input) + of(self.usage.cached, prices.cached) + of(self.usage.output, prices.output))
    }

    /// Turns left, the one about to be asked for included.
    pub(super) fn rounds_left(&self) -> u32 {
        self.budget.rounds.saturating_sub(self.rounds)
    }

    /// The most tokens an answer may have, so that a stream can't run over the budget.
    pub(super) fn answer_limit(&self, model: u32) -> u32 {
        let left = self.budget.tokens.map_or(u64::MAX, |limit| limit.saturating_sub(self.usage.total()));
        u32::try_from(left).unwrap_or(u32::MAX).min(model).max(1)
    }

    pub(super) fn calls_per_turn(&self) -> usize {
        self.budget.calls_per_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_of_nothing_are_refused() {
        Budget::default().validate().unwrap();
        let prices = Some(Prices { input: 3.0, cached: 0.3, output: 15.0 });
        Budget { cost: Some(0.5), prices, ..Budget::default() }.validate().unwrap();
        for budget in [
            Budget { rounds: 0, ..Budget::default() },
            Budget { tool_calls: 0, ..Budget::default() },
            Budget { wall_time: Duration::ZERO, ..Budget::default() },
            Budget { tokens: Some(0), ..Budget::default() },
            Budget { cost: Some(1.0), ..Budget::default() },
            Budget { cost: Some(f64::NAN), prices, ..Budget::default() },
            Budget { prices: Some(Prices { input: -1.0, cached: 0.0, output: 0.0 }), ..Budget::default() },
        ] {
            assert!(budget.validate().is_err(), "{budget:?}");
        }
    }

    #[test]
    fn each_budget_ends_with_its_own_reason() {
        let prices = Some(Prices { input: 1_000_000.0, cached: 0.0, output: 0.0 });
        let budget =
            Budget { rounds: 2, tokens: Some(100), tool_calls: 1, cost: Some(50.0), prices, ..Budget::default() };
        let mut meter = Meter::new(&budget);
        assert_eq!((meter.before_turn(), meter.before_call()), (None, None));
        meter.usage.add(TokenUsage { input: 60, cached: 20, output: 10 });
        assert_eq!((meter.cost(), meter.before_turn(), meter.answer_limit(1000)), (Some(40.0), None, 30));
        meter.usage.add(TokenUsage { input: 10, cached: 0, output: 0 });
        assert_eq!(meter.before_turn(), Some(Spent::Cost));
        meter.usage.add(TokenUsage { input: 0, cached: 0, output: 20 });
        assert_eq!(meter.before_turn(), Some(Spent::Tokens));
        meter.tool_calls = 1;
        assert_eq!(meter.before_call(), Some(Spent::ToolCalls));
        meter.rounds = 2;
        assert_eq!(meter.before_turn(), Some(Spent::Rounds));
        let spent = Meter::new(&Budget { wall_time: Duration::from_nanos(1), ..Budget::default() });
        assert_eq!((spent.before_turn(), spent.before_call()), (Some(Spent::Deadline), Some(Spent::Deadline)));
    }
}
