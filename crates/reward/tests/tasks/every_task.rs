//! What holds for every task.

use std::collections::{BTreeMap, HashSet};

use firebrick_core::{RewardVerifier, RootSeed, Sample};
use firebrick_reward::tasks::{SplitBy, TaskConfig, TaskError, TaskRow, TaskVerifier, make, make_split};
use serde_json::{Map, Value, json};

fn named(name: &str) -> TaskConfig {
    name.parse().expect("the task exists")
}

fn settings(value: Value) -> Map<String, Value> {
    value.as_object().expect("the settings are a table").clone()
}

fn with(name: &str, keys: Value) -> TaskConfig {
    TaskConfig::with_settings(name, settings(keys)).expect("the settings are allowed")
}

/// FNV-1a.
fn hash(rows: &[TaskRow]) -> u64 {
    let text: String = rows.iter().map(|row| row.to_json() + "\n").collect();
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A change here changes every data set that was made.
#[test]
fn a_seed_gives_these_bytes_for_ever() {
    let pinned: BTreeMap<&str, u64> = [
        ("arithmetic", 0x6796_7ab0_86f1_13e6),
        ("base_conversion", 0x79b1_1d6b_85a3_53e2),
        ("chain_sum", 0xc2e0_4935_9b44_fe80),
        ("countdown", 0x71aa_55ee_25d5_48a3),
        ("fraction_simplification", 0x8e62_e5b1_83cf_7694),
        ("gcd", 0x16e1_25d9_ada4_1977),
        ("lcm", 0xf6e8_a915_b3ea_0884),
        ("linear_equation", 0xa398_7931_f671_5c74),
        ("number_sorting", 0xf4c4_6230_e9c4_d4d7),
        ("prime_factorisation", 0xfec9_b157_4154_1524),
        ("program_synthesis", 0xd935_9ac7_8a2d_d1a5),
        ("word_problem", 0xc89a_e739_fbf7_3a60),
    ]
    .into();
    let found: BTreeMap<&str, u64> = TaskConfig::names()
        .iter()
        .map(|name| (*name, hash(&make(&named(name), 40, RootSeed(7)).unwrap())))
        .collect();
    assert_eq!(found, pinned, "{found:#x?}");
}

#[test]
fn different_seeds_and_indices_give_different_problems() {
    for name in TaskConfig::names() {
        let generator = named(name).build().unwrap();
        let prompts = |seed: u64| -> Vec<String> {
            (0..20).map(|index| generator.generate(RootSeed(seed), index).prompt).collect()
        };
        assert_eq!(prompts(1), prompts(1), "{name}");
        let shared = prompts(1).into_iter().zip(prompts(2)).filter(|(a, b)| a == b).count();
        assert!(shared <= 2, "{name}: {shared} of 20 are the same");
    }
}

#[test]
fn a_call_repeats_no_prompt_and_no_id() {
    for name in TaskConfig::names() {
        let rows = make(&named(name), 200, RootSeed(3)).unwrap();
        let ids: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let prompts: HashSet<&str> = rows.iter().map(|row| row.prompt.as_str()).collect();
        assert_eq!((rows.len(), ids.len(), prompts.len()), (200, 200, 200), "{name}");
        assert!(rows.iter().all(|row| row.data_source == format!("firebrick/{name}")), "{name}");
    }
}

#[test]
fn a_space_that_is_too_small_is_an_error_that_says_how_much_was_found() {
    let config = with("chain_sum", json!({"max_terms": 2, "max_digits": 1}));
    let rows = make(&config, 200, RootSeed(3)).unwrap(); // all of them: 10 * 10 * 2
    assert_eq!(rows.len(), 200);
    let error = make(&config, 201, RootSeed(3)).unwrap_err();
    let TaskError::Exhausted { asked: 201, found: 200, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(r#""max_terms":2"#), "{error}");
}

#[test]
fn splits_share_no_prompt_or_no_solution() {
    for name in TaskConfig::names() {
        let split = make_split(&named(name), 100, 20, RootSeed(3), SplitBy::Prompt).unwrap();
        let train: HashSet<&str> = split.train.iter().map(|row| row.prompt.as_str()).collect();
        assert_eq!((train.len(), split.held_out.len()), (100, 20), "{name}");
        assert!(split.held_out.iter().all(|row| !train.contains(row.prompt.as_str())), "{name}");
    }
    let split = make_split(&named("gcd"), 100, 20, RootSeed(3), SplitBy::Solution).unwrap();
    let train: HashSet<&str> = split.train.iter().map(TaskRow::worked_solution).collect();
    assert!(split.held_out.iter().all(|row| !train.contains(row.worked_solution())));
}

/// Problems under settings that reach every branch of the generators.
fn varied() -> Vec<TaskRow> {
    let other = [
        ("chain_sum", json!({"allow_negation": true, "max_terms": 10, "max_digits": 12})),
        ("arithmetic", json!({"allow_negation": true, "max_terms": 12})),
        ("arithmetic", json!({"allow_parentheses": false, "max_terms": 12})),
        ("arithmetic", json!({"operators": ["/"], "min_terms": 3})),
        ("gcd", json!({"max_numbers": 5, "min_value": 900})),
        ("lcm", json!({"max_numbers": 5})),
        ("base_conversion", json!({"max_base": 36, "max_value": 1_000_000_000})),
        (
            "linear_equation",
            json!({"allow_negation": true, "both_sides": true, "min_value": 0, "min_factor": 1}),
        ),
        ("countdown", json!({"min_numbers": 2, "max_numbers": 3, "use_all": false, "min_target": 1})),
        ("number_sorting", json!({"max_decimals": 6, "max_numbers": 40})),
        ("prime_factorisation", json!({"max_value": 1_000_000_000})),
    ];
    let plain = TaskConfig::names().iter().map(|name| named(name));
    plain
        .chain(other.into_iter().map(|(name, keys)| with(name, keys)))
        .filter(|config| config.name() != "program_synthesis")
        .flat_map(|config| make(&config, 60, RootSeed(11)).expect("there are enough problems"))
        .collect()
}

fn reward(row: &TaskRow, response: &str) -> Option<f64> {
    let prompt = row.to_prompt();
    TaskVerifier::default()
        .verify(&Sample::of_text(&prompt, response))
        .expect("the verifier does not fail")
        .reward()
}

#[test]
fn the_answer_is_right_and_a_perturbed_one_is_wrong() {
    for row in varied() {
        assert_eq!(reward(&row, row.worked_solution()), Some(1.0), "{row:?}");
        assert_eq!(reward(&row, &format!("Answer: {}", row.answer)), Some(1.0), "{row:?}");
        let mut perturbed = row.answer.clone();
        let last = perturbed.rfind(|c: char| c.is_ascii_alphanumeric()).unwrap();
        let digit = if perturbed.as_bytes()[last] == b'1' { "0" } else { "1" };
        perturbed.replace_range(last..=last, digit);
        assert_eq!(reward(&row, &perturbed), Some(0.0), "{perturbed}: {row:?}");
        assert_eq!(reward(&row, &format!("{}7", row.prompt)), Some(0.0), "{row:?}");
    }
}

/// The answers follow from the prompts alone, read again by plain means.
#[test]
fn the_answers_follow_from_the_prompts() {
    let number = |text: &str| text.parse::<i128>().unwrap();
    for row in varied() {
        let task = row.data_source.strip_prefix("firebrick/").unwrap();
        let numbers: Vec<i128> = row
            .prompt
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap())
            .collect();
        match task {
            // the expression is a countdown for the answer, with the numbers that stand in it
            "chain_sum" | "arithmetic" => {
                if row.answer.len() > 17 || numbers.iter().any(|n| *n > i128::from(i64::MAX)) {
                    continue;
                }
                let mut other = row.clone();
                other.data_source = "firebrick/countdown".into();
                let numbers: Vec<i64> = numbers.iter().map(|n| *n as i64).collect();
                other.extra.insert("numbers".into(), json!(numbers));
                other.extra.insert("target".into(), json!(number(&row.answer) as i64));
                let expression = row.prompt.strip_suffix(" =").unwrap();
                assert_eq!(reward(&other, expression), Some(1.0), "{row:?}");
            }
            "gcd" => {
                let answer = number(&row.answer);
                assert!(numbers.iter().all(|n| n % answer == 0), "{row:?}");
                let least = *numbers.iter().min().unwrap();
                assert!((answer + 1..=least).all(|d| numbers.iter().any(|n| n % d != 0)), "{row:?}");
            }
            "lcm" => {
                let answer = number(&row.answer);
                let multiples = (1..).map(|k| k * numbers.iter().max().unwrap());
                let first = multiples.take(1_000_000).find(|m| numbers.iter().all(|n| m % n == 0));
                assert!(first.is_none_or(|first| first == answer), "{row:?}");
                assert!(numbers.iter().all(|n| answer % n == 0), "{row:?}");
            }
            "base_conversion" => {
                let words: Vec<&str> = row.prompt.trim_end_matches('.').split(' ').collect();
                let value =
                    |text: &str, base: &str| u64::from_str_radix(text, base.parse().unwrap()).unwrap();
                assert_eq!(value(words[1], words[4]), value(&row.answer, words[7]), "{row:?}");
                assert_ne!(words[4], words[7], "{row:?}");
            }
            "fraction_simplification" => {
                let (a, b) = row.answer.split_once('/').unwrap();
                assert_eq!(numbers[0] * number(b), numbers[1] * number(a), "{row:?}");
                assert!(number(a) < numbers[0], "{row:?}");
            }
            "linear_equation" => {
                let x = number(&row.answer);
                let value = |side: &str| -> i128 {
                    let terms = side.replace("- ", "+ -").replace(' ', "");
                    let term = |term: &str| match term.strip_suffix('x') {
                        Some("") => x,
                        Some(factor) => number(factor.trim_end_matches('*')) * x,
                        None => number(term),
                    };
                    terms.split('+').map(term).sum()
                };
                let (left, right) = row.prompt.split_once(" = ").unwrap();
                assert_eq!(value(left), value(right), "{row:?}");
            }
            "prime_factorisation" => {
                let factors: Vec<i128> = row.answer.split(" * ").map(number).collect();
                assert_eq!(factors.iter().product::<i128>(), numbers[0], "{row:?}");
                let is_prime = |n: i128| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0);
                assert!(factors.into_iter().all(is_prime), "{row:?}");
            }
            "number_sorting" => {
                let items = |text: &str| -> Vec<f64> {
                    let list = &text[text.find('[').unwrap()..];
                    serde_json::from_str(list).unwrap()
                };
                let mut sorted = items(&row.prompt);
                sorted.sort_by(f64::total_cmp);
                if row.prompt.starts_with("Sort descending") {
                    sorted.reverse();
                }
                assert_eq!(sorted, items(&row.answer), "{row:?}");
            }
            "word_problem" => {
                let amounts: Vec<i64> =
                    row.extra["amounts"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
                assert_eq!(amounts.iter().sum::<i64>().to_string(), row.answer, "{row:?}");
                // The story says the same, sentence by sentence.
                let sentences = row.prompt.split_inclusive(['.', '?']).map(str::trim);
                let told = sentences.filter_map(|sentence| {
                    let named: Vec<i64> = sentence.split(' ').filter_map(|word| word.parse().ok()).collect();
                    let amount = named.iter().product::<i64>();
                    (!named.is_empty()).then(|| if sentence.contains("loses") { -amount } else { amount })
                });
                assert_eq!(told.collect::<Vec<_>>(), amounts, "{row:?}");
                let so_far = amounts.iter().scan(0, |sum, amount| {
                    *sum += amount;
                    Some(*sum)
                });
                assert!(so_far.into_iter().all(|sum| sum >= 0), "{row:?}");
            }
            "countdown" => {
                let target = row.extra["target"].as_i64().unwrap();
                assert!(row.prompt.ends_with(&format!("to make {target}.")), "{row:?}");
            }
            other => panic!("{other} is not checked"),
        }
    }
}

/// 3000 sums of 2 or 3 terms of 1 or 2 digits: each of the four kinds is expected 750 times, with a deviation of 24; no count may be
/// more than five of those away.
#[test]
fn the_sizes_of_problems_are_drawn_uniformly_and_within_their_range() {
    let generator = with("chain_sum", json!({"max_terms": 3, "max_digits": 2})).build().unwrap();
    let mut counts: BTreeMap<(u64, u64), i64> = BTreeMap::new();
    for index in 0..3000 {
        let row = generator.generate(RootSeed(9), index);
        let (terms, digits) = (row.extra["terms"].as_u64().unwrap(), row.extra["digits"].as_u64().unwrap());
        let written: Vec<&str> =
            row.prompt.split(' ').filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).collect();
        assert_eq!(written.len() as u64, terms, "{row:?}");
        assert!(written.iter().all(|part| part.len() as u64 == digits), "{row:?}");
        *counts.entry((terms, digits)).or_default() += 1;
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| (count - 750).abs() <= 120), "{counts:?}");
}

#[test]
fn the_kinds_that_a_task_chooses_between_all_occur() {
    let count = |config: TaskConfig, holds: &dyn Fn(&TaskRow) -> bool| {
        let generator = config.build().unwrap();
        (0..400).filter(|index| holds(&generator.generate(RootSeed(2), *index))).count()
    };
    // half of 400, and five deviations of 10 on both sides
    let half = 150..=250;
    assert!(half.contains(&count(named("number_sorting"), &|row| row.extra["direction"] == "ascending")));
    assert!(half.contains(&count(named("linear_equation"), &|row| row.prompt.contains(" - "))));
    // most common factors are not 1: one is drawn from 1 to 250, and the rest may still share another
    assert!(count(named("gcd"), &|row| row.answer != "1") > 350);
    for sign in ["+", "-", "*", "/"] {
        assert!(count(named("arithmetic"), &|row| row.prompt.contains(sign)) > 100, "{sign}");
    }
}

#[test]
fn settings_are_read_by_name_and_refused_by_name() {
    assert_eq!(named("lcm"), with("lcm", json!({})));
    let error = |name: &str, keys: Value| {
        let error = TaskConfig::with_settings(name, settings(keys)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error} {source}").trim().to_owned()
    };
    assert!(
        error("chainsum", json!({}))
            .starts_with("there is no task `chainsum`: choose one of chain_sum, arithmetic")
    );
    assert!(error("gcd", json!({"max_valu": 3})).starts_with("settings of gcd unknown field `max_valu`"));
    for (name, keys, message) in [
        ("chain_sum", json!({"min_terms": 0}), "min_terms = 0: allowed is 1 to 64"),
        ("chain_sum", json!({"max_digits": 13}), "max_digits = 13: allowed is 1 to 12"),
        ("arithmetic", json!({"min_terms": 9}), "max_terms = 6: allowed is min_terms = 9 or more"),
        ("arithmetic", json!({"operators": []}), "operators = []: allowed is at least one of +, -, *, /"),
        ("gcd", json!({"min_value": 2000}), "max_value = 1000: allowed is min_value = 2000 or more"),
        (
            "lcm",
            json!({"max_value": 1_000_000, "max_numbers": 4}),
            "max_value = 1000000: allowed is less, so that its power max_numbers = 4 stays below 9·10¹⁸",
        ),
        ("base_conversion", json!({"max_base": 2}), "max_base = 2: allowed is 3 to 36"),
        ("fraction_simplification", json!({"min_factor": 0}), "min_factor = 0: allowed is 1 to 1000000"),
        (
            "linear_equation",
            json!({"both_sides": true, "max_factor": 2}),
            "max_factor = 2: allowed is more than min_factor = 2, as the sides need two factors",
        ),
        ("countdown", json!({"operators": []}), "operators = []: allowed is at least one of +, -, *, /"),
        (
            "countdown",
            json!({"max_value": 2, "operators": ["+"]}),
            "min_target..=max_target = 100..=999: allowed is a range that the numbers reach: none of 2000 expressions did",
        ),
        ("number_sorting", json!({"max_decimals": 7}), "max_decimals = 7: allowed is 0 to 6"),
        ("prime_factorisation", json!({"min_value": 1}), "min_value = 1: allowed is 2 to 1000000000"),
    ] {
        assert_eq!(error(name, keys), message);
    }
}

#[test]
fn a_config_is_tagged_by_its_task() {
    for name in TaskConfig::names() {
        let table = serde_json::to_value(named(name)).unwrap();
        assert_eq!(table["type"], *name);
        assert_eq!(serde_json::from_value::<TaskConfig>(table).unwrap(), named(name));
    }
}

#[test]
fn rows_are_json_in_the_order_of_the_canonical_keys() {
    let row = &make(&named("countdown"), 1, RootSeed(7)).unwrap()[0];
    let json = row.to_json();
    let places: Vec<usize> = ["{\"id\":", "\"prompt\":", "\"answer\":", "\"data_source\":", "\"extra\":"]
        .iter()
        .map(|key| json.find(key).unwrap())
        .collect();
    assert!(places.is_sorted() && places[0] == 0, "{json}");
    let solution: Value = serde_json::from_str(&row.worked_solution_json()).unwrap();
    assert_eq!(solution, json!({"prompt": row.prompt, "completion": row.answer}));
}
