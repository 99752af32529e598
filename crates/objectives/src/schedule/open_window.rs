//! No window.

use firebrick_core::{Bounds, ClipSchedule, ResponseTokens};
use serde::{Deserialize, Serialize};

/// A window that never binds, for objectives without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWindow;

impl ClipSchedule for OpenWindow {
    fn bounds(&self, _response: &ResponseTokens<'_>, out: &mut [Bounds]) {
        out.fill(Bounds::OPEN);
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Binding, Objective};
    use firebrick_testkit::{TestResponse, check_schedule};

    use super::*;
    use crate::{Composed, PpoMin, TokenRatio};

    #[test]
    fn no_weight_meets_a_bound() {
        let response = TestResponse::from_log_ratios(&[19.0, -19.0, 19.0, -19.0], &[1.0, 1.0, -1.0, -1.0]);
        let terms =
            Composed::new(TokenRatio, OpenWindow, PpoMin::default()).evaluate(&response.tokens(), 1.0);
        assert_eq!(terms.bindings, [Binding::None; 4]);
    }

    #[test]
    fn keeps_the_contract() {
        check_schedule(OpenWindow);
    }
}
