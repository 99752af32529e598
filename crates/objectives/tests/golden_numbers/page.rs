//! The page on golden numbers, which is written from the comparisons.
//!
//! ```text
//! FIREBRICK_WRITE=1 cargo test -p firebrick-objectives --test golden_numbers
//! ```
//! writes it; without the variable it is compared.

use std::{collections::BTreeMap, path::Path};

use firebrick_testkit::Record;

use crate::{
    advantages, corrections, kl, prefix,
    support::{FOLDER, Report},
    trl_losses, verl_losses,
};

/// Every fixture with the number of its records.
const FILES: [(&str, usize); 10] = [
    ("tapo.json", 34),
    ("pnpo.json", 9),
    ("verl_policy_losses.json", 214),
    ("verl_policy_losses_extreme.json", 32 + 7),
    ("verl_advantages.json", 41),
    ("verl_rollout_corr.json", 16 + 26 + 2),
    ("verl_kl.json", 7),
    ("verl_misc.json", 30 + 4 + 4),
    ("trl_losses.json", 41 + 3),
    ("trl_advantages.json", 11 + 8),
];

const INTRODUCTION: &str = "\
# Golden numbers

The parts of `firebrick-objectives` are put together into the objectives and advantage estimators of other implementations, and
their numbers are compared with those that these implementations gave for the same inputs. Inputs and numbers lie in
`crates/objectives/tests/golden/`; the comparisons, and the test that writes this page, in
`crates/objectives/tests/golden_numbers/`.

* verl 0.10.0.dev (repository verl-project/verl, commit `1dda039b9c6311889a9c9a26040677e1254814f9`), imported unmodified: all
  registered policy losses and advantage estimators, rollout corrections, KL estimates, aggregation, the value loss.
* TRL 1.16.0 with torch 2.15.0: the losses of its GRPO, GMPO and RLOO trainers; their advantages, which it computes in single
  precision.
* TAPO and PNPO: a float64 reference written from a description of the papers, checked by central differences.

A record is one loss with its gradient (and metrics) at one choice of hyper-parameters, mask and aggregation, or one set of
advantages, weights or means. Each is compared in float64. Inputs are 8 responses of 2 prompts with at most 12 tokens; those of
`verl_policy_losses_extreme.json` have log-ratios beyond 20 nats. Errors are the worst of all records of a row: of a loss
relative to it, or to the sum of the responses' absolute losses where those cancel; of an entry of a gradient relative to the
entry; absolute below 1e-6. They are bounds, since the last digit depends on the machine. Where verl adds 1e-8 to a denominator,
or either side computes in single precision, the error is theirs.

| source | objective or part | records | differing | error of the value | error of the gradient |
|---|---|---:|---:|---|---|
";

const OPTIONS: &str = "
Some of these are reproduced with an option that is not the default, and that the trainer does not use:

* `ResponseContext::with_log_ratio_limit`: verl's `gspo`, `clip_cov`, `kl_cov` and `geo_mean` take log-ratios beyond 20 nats as they
  are. By default each is clamped at 20.
* `Denominator::counting_empty`: TRL, and verl in `geo_mean`, count a response without policy tokens in means over responses. By
  default none does.
* `raw_tail` of `optimal_token_baseline`: verl leaves the return of tokens that no other response of the group reaches.
";

fn report() -> Report {
    let mut report = Report::default();
    prefix::compare(&mut report);
    verl_losses::compare(&mut report);
    advantages::compare(&mut report);
    corrections::compare(&mut report);
    kl::compare(&mut report);
    trl_losses::compare(&mut report);
    let place = |source: &str| FILES.iter().position(|(file, _)| *file == source);
    report.rows.sort_by_key(|row| place(row.source));
    report.differences.sort_by_key(|difference| place(difference.source));
    report
}

/// Records of a fixture: the entries of its lists of objects, and its other parts but for those that describe it.
fn records_of(file: &str) -> usize {
    let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap();
    let fixture: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let described = ["provenance", "choices", "group_note", "max_completion_length"];
    let count = |(key, value): (&String, &serde_json::Value)| match value {
        _ if described.contains(&key.as_str()) => 0,
        serde_json::Value::Array(list) if list.iter().all(serde_json::Value::is_object) => list.len(),
        serde_json::Value::Object(parts) if key == "helpers" => parts.len(),
        _ => 1,
    };
    fixture.iter().map(count).sum()
}

#[test]
fn every_record_of_every_fixture_is_counted_once() {
    let report = report();
    for (file, records) in FILES {
        let counted: usize =
            report.counts(file).iter().map(|(_, matched, differing)| matched + differing).sum();
        assert_eq!((counted, records_of(file)), (records, records), "{file}");
    }
    let mut fixtures: Vec<String> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json") && !name.starts_with("inputs"))
        .collect();
    fixtures.sort();
    let mut files = FILES.map(|(file, _)| file);
    files.sort_unstable();
    assert_eq!(fixtures, files);
    for difference in &report.differences {
        assert!(difference.reason.len() > 20, "{}", difference.key);
    }
    // The inputs are whole too.
    assert_eq!(Record::load(format!("{FOLDER}/inputs.json")).table("response_mask").len(), 8);
}

/// Records that differ, all records, and the share in percent.
fn share(report: &Report) -> (usize, usize, f64) {
    let differing: usize = report.rows.iter().map(|row| row.differing).sum();
    let all = differing + report.rows.iter().map(|row| row.matched).sum::<usize>();
    (differing, all, 100.0 * differing as f64 / all as f64)
}

#[test]
fn few_records_differ() {
    let (differing, all, percent) = share(&report());
    assert!(percent <= 5.0, "{differing} of {all} records differ, {percent:.1} %");
}

/// The next power of ten above twice an error, at least the last digit of a number.
fn exponent(error: f64) -> i32 {
    (2.0 * error).max(1e-16).log10().floor() as i32 + 1
}

/// An error as the page writes it: its bound there when the error keeps it, else a new one.
fn bound(error: Option<f64>, written: Option<&str>) -> String {
    let Some(error) = error else { return "–".to_owned() };
    let kept = written.filter(|text| {
        let bound = text.strip_prefix("≤ ").and_then(|bound| bound.parse::<f64>().ok());
        bound.is_some_and(|bound| error <= bound)
    });
    kept.map_or_else(|| format!("≤ 1e{}", exponent(error)), str::to_owned)
}

fn page(report: &Report, found: &str) -> String {
    let mut text = INTRODUCTION.to_owned();
    for row in &report.rows {
        let start = format!("| `{}` | {} | ", row.source, row.name);
        let written: Vec<&str> = found
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .map(|line| line.trim_end_matches('|').split('|').map(str::trim).collect())
            .unwrap_or_default();
        let value = if row.matched == 0 { None } else { Some(row.value_error) };
        text += &format!(
            "{start}{} | {} | {} | {} |\n",
            row.matched + row.differing,
            row.differing,
            bound(value, written.get(2).copied()),
            bound(row.gradient_error, written.get(3).copied()),
        );
    }
    text += OPTIONS;
    let (differing, all, percent) = share(report);
    text += &format!(
        "\n## What differs on purpose\n\n{differing} of {all} records differ, {percent:.1} %. A formula for the other side's rule \
         gives its numbers\nall the same, but for those that are not compared.\n\n| source | records | number | why |\n|---|---|---:|---|\n"
    );
    for difference in &report.differences {
        text += &format!(
            "| `{}` | {} | {} | {} |\n",
            difference.source, difference.key, difference.records, difference.reason
        );
    }
    text
}

#[test]
fn the_page_on_golden_numbers_is_what_the_comparisons_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/golden.md");
    let report = report();
    if std::env::var_os("FIREBRICK_WRITE").is_some() {
        std::fs::write(&path, page(&report, "")).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let text = page(&report, &found);
    let difference = text.lines().zip(found.lines()).find(|(text, found)| text != found);
    assert!(
        text == found,
        "{} is not what the comparisons say; write it with FIREBRICK_WRITE=1. First difference: {difference:?}",
        path.display()
    );
}

#[test]
fn bounds_are_the_next_power_of_ten_above_twice_the_error() {
    assert_eq!([3e-13, 6e-13, 0.0, 4e-9].map(exponent), [-12, -11, -15, -8]);
    assert_eq!(bound(Some(3e-13), Some("≤ 1e-11")), "≤ 1e-11");
    assert_eq!(bound(Some(3e-10), Some("≤ 1e-11")), "≤ 1e-9");
}
