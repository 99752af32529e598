//! Policy objectives as parts: importance estimators, clip schedules, gates, advantages, aggregation
