//! Words that a program cannot guess.

use std::hash::{BuildHasher, RandomState};

/// A word that no program can guess, of letters and digits.
///
/// It marks messages and decides nothing: a verdict does not depend on it, so verification stays a function of its input.
pub(crate) fn nonce() -> String {
    // Each `RandomState` has keys that come from the system's randomness.
    let word = || RandomState::new().hash_one("firebrick");
    format!("n{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_nonces_differ() {
        assert_ne!(super::nonce(), super::nonce());
        assert_eq!(super::nonce().len(), 33);
    }
}
