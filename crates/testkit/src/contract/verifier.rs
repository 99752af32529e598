//! The contract of a reward verifier.

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, Verdict};

/// Checks a verifier on `texts`, answers of its own kind, and on hostile ones: empty, unbalanced, very long,
/// not ASCII.
///
/// It must not panic, must give the same verdict when asked twice or through a `Box`, and a finite reward. An
/// error is a verdict too.
///
/// # Panics
/// When the contract is broken, or when no text of `texts` is scored.
#[track_caller]
pub fn check_verifier(verifier: impl RewardVerifier + 'static, prompt: &Prompt, texts: &[&str]) {
    let hostile = [
        String::new(),
        " \n\t ".to_owned(),
        "\\boxed{".to_owned(),
        "}}}{{{\\frac{1}{".to_owned(),
        "答えは 𝟜² です\u{202e}\u{0}".to_owned(),
        "9".repeat(20_000),
        "((((".repeat(5_000),
    ];
    let texts: Vec<&str> = texts.iter().copied().chain(hostile.iter().map(String::as_str)).collect();
    let name = verifier.name().to_owned();
    let direct: Vec<_> = texts.iter().map(|text| verdicts(&verifier, prompt, text)).collect();
    for (text, verdict) in texts.iter().zip(direct.iter().flatten()) {
        if let Ok(Verdict::Scored(score)) = verdict {
            assert!(score.reward.is_finite(), "{name}: the reward of {:?} is {}", start(text), score.reward);
        }
    }
    let scored = direct.iter().flatten().any(|verdict| matches!(verdict, Ok(Verdict::Scored(_))));
    assert!(scored, "{name}: no text was scored, so nothing was checked");
    let same = |verifier: &dyn RewardVerifier, what: &str| {
        for (text, expected) in texts.iter().zip(&direct) {
            assert_eq!(&verdicts(verifier, prompt, text), expected, "{name}: {what}: {:?}", start(text));
        }
    };
    same(&verifier, "two calls give different verdicts");
    let boxed: Box<dyn RewardVerifier> = Box::new(verifier);
    same(&boxed, "a Box gives another verdict");
    assert_eq!(boxed.name(), name, "a Box has another name");
}

/// Verdicts on a finished and on a truncated response; errors as their message.
fn verdicts(verifier: &dyn RewardVerifier, prompt: &Prompt, text: &str) -> Vec<Result<Verdict, String>> {
    [FinishReason::Stop, FinishReason::Length]
        .map(|reason| {
            verifier.verify(&Sample::new(prompt, text, &[], reason)).map_err(|error| error.to_string())
        })
        .into()
}

fn start(text: &str) -> String {
    text.chars().take(40).collect()
}
