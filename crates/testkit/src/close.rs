//! Comparison of floating-point numbers.

/// Asserts that two numbers are equal within `tolerance`, relative to the larger one and absolute below 1e-6.
///
/// Not-finite numbers are close when they are the same (NaN to NaN, an infinity to itself).
///
/// # Panics
/// When they differ by more.
#[track_caller]
pub fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    let same = found == expected || (found.is_nan() && expected.is_nan());
    let scale = found.abs().max(expected.abs()).max(1e-6);
    assert!(
        same || (found - expected).abs() <= tolerance * scale,
        "{what}: found {found}, expected {expected}, tolerance {tolerance} relative"
    );
}

/// Asserts that two slices are equal in length and close number by number; see [`assert_close`].
///
/// # Panics
/// When they are not.
#[track_caller]
pub fn assert_all_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: numbers of entries differ");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(*found, *expected, tolerance, &format!("{what}[{index}]"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_numbers_pass() {
        assert_close(1.0, 1.0 + 1e-10, 1e-9, "relative");
        assert_close(0.0, 1e-16, 1e-9, "absolute near zero");
        assert_close(f64::NAN, f64::NAN, 0.0, "not a number");
        assert_all_close(&[1.0, f64::INFINITY], &[1.0, f64::INFINITY], 0.0, "infinite");
    }

    #[test]
    #[should_panic(expected = "loss: found 1, expected 1.1")]
    fn distant_numbers_fail() {
        assert_close(1.0, 1.1, 1e-3, "loss");
    }

    #[test]
    #[should_panic(expected = "loss: found NaN, expected 1")]
    fn nan_is_not_close_to_a_number() {
        assert_close(f64::NAN, 1.0, 1e300, "loss");
    }

    #[test]
    #[should_panic(expected = "grad: numbers of entries differ")]
    fn slices_of_different_length_fail() {
        assert_all_close(&[1.0], &[], 1.0, "grad");
    }
}
