//! Stub.
use firebrick_core::{ResponseTerms, ResponseTokens};
/// Stub.
#[derive(Debug, Default, Clone)]
pub struct PositionDiagnostics {}
/// Stub.
#[derive(Debug, Default, Clone, PartialEq, serde::Serialize)]
pub struct PositionReport {}
impl PositionDiagnostics {
    /// Stub.
    pub fn add(&mut self, _: &ResponseTokens<'_>, _: &ResponseTerms) {}
    /// Stub.
    pub fn merge(&mut self, _: &Self) {}
    /// Stub.
    pub fn report(&self) -> PositionReport {
        PositionReport {}
    }
}
impl PositionReport {
    /// Stub.
    pub fn scalars(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
