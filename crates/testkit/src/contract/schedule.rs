//! The contract of a clip schedule.

use firebrick_core::{Bounds, ClipSchedule};

use super::samples::{prepare, responses};

/// Checks a clip schedule on responses of many lengths, including empty and extreme ones.
///
/// It must write every window, none of them NaN or upside down, and the same ones when asked twice or through
/// a `Box`.
///
/// # Panics
/// When the contract is broken.
#[track_caller]
pub fn check_schedule(mut schedule: impl ClipSchedule + 'static) {
    let name = format!("{schedule:?}");
    if let Some(part) = schedule.stateful() {
        prepare(part, &name);
    }
    let direct = windows(&schedule);
    for bounds in direct.iter().flatten() {
        assert!(
            bounds.low <= bounds.high,
            "{schedule:?}: every window must be written, with low <= high, found {bounds:?}"
        );
    }
    assert!(direct == windows(&schedule), "{schedule:?}: two calls give different windows");
    let requirements = schedule.requirements();
    let boxed: Box<dyn ClipSchedule> = Box::new(schedule);
    assert_eq!(boxed.requirements(), requirements, "{name}: a Box has other requirements");
    assert!(direct == windows(boxed.as_ref()), "{name}: a Box gives other windows");
}

fn windows(schedule: &dyn ClipSchedule) -> Vec<Vec<Bounds>> {
    let of = |response: crate::TestResponse| {
        let tokens = response.tokens();
        let mut out = vec![Bounds { low: f64::NAN, high: f64::NAN }; tokens.len()];
        schedule.bounds(&tokens, &mut out);
        out
    };
    responses().into_iter().map(of).collect()
}
