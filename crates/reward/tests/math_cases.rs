//! The grader of mathematics on the fixture of public and own cases, on own pairs, and on any text.

mod math_check;

use std::fs;
use std::path::Path;

use firebrick_reward::{MathConfig, MathVerifier};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    id: String,
    gold: String,
    pred: String,
    expected: bool,
    contested: bool,
    config: MathConfig,
}

/// A pair of our own: reference, response, and whether the response is right.
#[derive(Deserialize)]
struct Pair(String, String, bool);

fn cases() -> Vec<Case> {
    include_str!("data/math_cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row can be read"))
        .collect()
}

fn pairs() -> Vec<Pair> {
    include_str!("data/math_pairs.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row can be read"))
        .collect()
}

fn verifier() -> MathVerifier {
    MathConfig::default().build().expect("the default can be built")
}

/// Whether the grader agrees with a case's label under the case's own settings.
fn agrees(case: &Case) -> bool {
    let verifier = case.config.clone().build().expect("the settings can be used");
    verifier.grade(&case.gold, &case.pred).correct == case.expected
}

#[test]
fn every_uncontested_case_has_its_label() {
    let uncontested: Vec<Case> = cases().into_iter().filter(|case| !case.contested).collect();
    assert_eq!(uncontested.len(), 541);
    assert_eq!(uncontested.iter().filter(|case| !case.expected).count(), 177);
    let failed: Vec<&str> =
        uncontested.iter().filter(|case| !agrees(case)).map(|case| case.id.as_str()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Where the public grader and the author's label differ. Four of the five that fail ask for an inequality where the
/// reference is the set, which the settings forbid; one encodes a bug of a parser.
#[test]
fn of_the_contested_cases_twenty_two_have_their_label() {
    let contested: Vec<Case> = cases().into_iter().filter(|case| case.contested).collect();
    let failed: Vec<&str> =
        contested.iter().filter(|case| !agrees(case)).map(|case| case.id.as_str()).collect();
    assert_eq!(contested.len(), 27);
    assert_eq!(failed, ["m0261", "m0704", "m0712", "m0713", "m0719"]);
}

#[test]
fn own_pairs_are_graded_right() {
    let verifier = verifier();
    let pairs = pairs();
    assert!(pairs.len() > 250);
    for Pair(gold, pred, expected) in pairs {
        let grade = verifier.grade(&gold, &pred);
        assert_eq!(grade.correct, expected, "{gold} | {pred} => {grade:?}");
    }
}

/// An answer in another's place gives the same verdict; what does not is in the test below.
#[test]
fn bare_answers_are_compared_symmetrically() {
    let verifier = verifier();
    for Pair(gold, pred, _) in pairs() {
        let one_sided = [&gold, &pred].iter().any(|text| {
            ['=', '<', '>'].iter().any(|sign| text.contains(*sign))
                || text.contains("\\in")
                || text.contains("\\l")
                || text.contains("\\ge")
                || text.contains("\\n")
        });
        if !one_sided {
            let (one, other) =
                (verifier.compare(&gold, &pred).correct, verifier.compare(&pred, &gold).correct);
            assert_eq!(one, other, "{gold} | {pred}");
        }
    }
}

#[test]
fn the_reference_decides_in_these_cases_only() {
    let verifier = verifier();
    for (gold, pred) in [
        (r"x > 3", r"(3,\infty)"), // the set for the inequality, not the reverse
        (r"-2\le x\le 2", "[-2,2]"),
        ("5", "2+3=5"), // the last side of an equation, but no equation for a side
        ("5", "x+3=5"),
    ] {
        assert!(verifier.compare(gold, pred).correct, "{gold} {pred}");
        assert!(!verifier.compare(pred, gold).correct, "{pred} {gold}");
    }
    // Percentages are symmetric, but only a percentage is worth its number.
    for (gold, pred, right) in
        [(r"28\%", "28", true), ("28", r"28\%", true), (r"28\%", "0.28", true), ("0.28", "28", false)]
    {
        assert_eq!(verifier.compare(gold, pred).correct, right, "{gold} {pred}");
        assert_eq!(verifier.compare(pred, gold).correct, right, "{pred} {gold}");
    }
}

#[test]
fn the_corpus_of_the_fuzzer_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/math");
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        math_check::check(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 30, "{files}");
}

/// Expressions of the grammar, nested a little.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[1-9][0-9]{0,3}",
        r"[1-9]\.[0-9]{1,3}",
        prop::sample::select(vec!["x", "y", "n", r"\pi", "e", "i", r"\alpha"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} + {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) - ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!(r"({a}) \cdot ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!(r"\frac{{{a}}}{{{b}}}")),
            (inner.clone(), 2..4).prop_map(|(a, k)| format!("({a})^{{{k}}}")),
            inner.clone().prop_map(|a| format!(r"\sqrt{{{a}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!(r"({a}, {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!(r"\{{{a}, {b}\}}")),
        ]
    })
}

/// Text of the pieces that matter to a parser.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\\boxed{",
        "\\frac",
        "\\sqrt",
        "\\left",
        "\\right",
        "\\text{",
        "\\{",
        "\\}",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "|",
        "$",
        "$$",
        "\\(",
        "\\)",
        "\\\\",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\sum_{k=1}^{n}",
        "\\log_",
        "\\infty",
        "\\cup",
        "\\pm",
        "x",
        "1",
        "2.5",
        "12,345",
        "%",
        "^",
        "_",
        "!",
        "=",
        "<",
        "\\le",
        "\\in",
        ",",
        ";",
        ":",
        " and ",
        "é",
        "°",
        "0.\\overline{3}",
        "\n",
        "Answer:",
        "####",
        "the final answer is ",
        "i",
        "e",
        "\\sin",
        "\\binom",
        "\\mathbb{R}",
        "\\overline",
        "\\pmod",
        "~",
        ".",
        "-",
    ]);
    prop::collection::vec(piece, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_have_a_verdict(data in prop::collection::vec(any::<u8>(), 0..200)) {
        math_check::check(&data);
    }

    #[test]
    fn any_pieces_have_a_verdict(gold in pieces(), completion in pieces()) {
        math_check::check(format!("{}\n{completion}", gold.replace('\n', " ")).as_bytes());
    }

    #[test]
    fn an_expression_equals_itself_in_any_dress(text in expressions()) {
        let verifier = verifier();
        let spaced = text.replace('(', "( ").replace('+', " + ").replace(',', " , ");
        let sized = text.replace('(', r"\left(").replace(')', r"\right)");
        for dressed in [&text, &spaced, &sized, &format!("${text}$"), &format!(r"\[ {text} \]"), &format!(r"\({text}\)")] {
            let grade = verifier.compare(&text, dressed);
            prop_assert!(grade.correct, "{} | {} => {:?}", text, dressed, grade);
        }
        let graded = verifier.grade(&format!("${text}$"), &format!(r"So it is $\boxed{{{text}}}$, I think."));
        prop_assert!(graded.correct, "{} => {:?}", text, graded);
    }

    #[test]
    fn comparison_is_symmetric(a in expressions(), b in expressions()) {
        let verifier = verifier();
        prop_assert_eq!(verifier.compare(&a, &b).correct, verifier.compare(&b, &a).correct, "{} | {}", a, b);
    }
}
