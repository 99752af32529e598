//! What must hold for the grader on any bytes; shared by the tests and the fuzz target.

use firebrick_reward::{MathConfig, MathPreset};

/// Grades the text behind the first line against the first line, under every preset.
pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (gold, completion) = text.split_once('\n').unwrap_or((&text, &text));
    for preset in [MathPreset::MathVerify, MathPreset::Dapo, MathPreset::Gsm8k, MathPreset::Prime] {
        let verifier = MathConfig::preset(preset).build().expect("a preset can be built");
        let grade = verifier.grade(gold, completion);
        assert_eq!(grade, verifier.grade(gold, completion), "the verdict is the same again");
        assert!(!grade.correct || grade.extracted.is_some(), "what is right was found");
        let usable = verifier.check_reference(gold).is_ok();
        assert_eq!(usable, grade.rule != "bad_reference");
    }
    let verifier = MathConfig::default().build().expect("a preset can be built");
    let itself = verifier.compare(gold, gold);
    assert!(itself.correct || itself.rule == "bad_reference", "an answer equals itself: {gold:?}");
}
