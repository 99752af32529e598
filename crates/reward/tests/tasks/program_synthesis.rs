//! Problems that ask for a program.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
    process::{Command, Stdio},
};

use firebrick_core::RootSeed;
use firebrick_reward::tasks::{
    ProgramFamily, ProgramSynthesisConfig, SplitBy, TaskConfig, TaskRow, make, make_split,
};
use serde_json::Value;

fn config(families: &[ProgramFamily]) -> TaskConfig {
    TaskConfig::ProgramSynthesis(ProgramSynthesisConfig { families: families.to_vec(), ..Default::default() })
}

fn tests(row: &TaskRow) -> Value {
    serde_json::from_str(&row.answer).expect("the answer is JSON")
}

/// Runs the reference programs of rows on standard input in Python, and prints the id of each that fails.
const CHECK: &str = "
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    tests = json.loads(row['answer'])
    names = {}
    exec(row['extra']['solution'], names)
    f = names[tests['fn_name']]
    outputs = [f(*arguments) for arguments in tests['inputs']]
    if [(type(o), o) for o in outputs] != [(type(o), o) for o in tests['outputs']]:
        print('outputs', row['id'])
    shown = ' '.join(
        'f(%s)=%s' % (','.join(repr(a).replace(' ', '') for a in arguments), repr(output).replace(' ', ''))
        for arguments, output in list(zip(tests['inputs'], tests['outputs']))[: tests['shown']]
    )
    if shown != row['prompt']:
        print('prompt', row['id'])
print('done')
";

#[test]
fn python_agrees_with_every_output_and_every_prompt() {
    let python = Command::new("python3")
        .args(["-I", "-c", CHECK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        eprintln!("not checked: there is no python3");
        return;
    };
    let rows = make(&config(&ProgramFamily::ALL), 300, RootSeed(5)).unwrap();
    let families: HashSet<&str> = rows.iter().map(|row| row.extra["family"].as_str().unwrap()).collect();
    assert_eq!(families.len(), ProgramFamily::ALL.len());
    let mut input = python.stdin.take().unwrap();
    for row in &rows {
        writeln!(input, "{}", row.to_json()).unwrap();
    }
    drop(input);
    let output = python.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "done\n");
}

#[test]
fn the_inputs_of_a_problem_are_distinct_and_the_first_ones_are_shown() {
    for row in make(&config(&ProgramFamily::ALL), 200, RootSeed(1)).unwrap() {
        let tests = tests(&row);
        let inputs = tests["inputs"].as_array().unwrap();
        let distinct: HashSet<String> = inputs.iter().map(Value::to_string).collect();
        assert_eq!(
            (inputs.len(), distinct.len(), tests["outputs"].as_array().unwrap().len()),
            (11, 11, 11),
            "{row:?}"
        );
        assert_eq!(row.prompt.split(' ').count(), 3, "{row:?}");
        assert_eq!((tests["fn_name"].as_str(), tests["shown"].as_u64()), (Some("f"), Some(3)));
        assert!(row.worked_solution().starts_with("def f("), "{row:?}");
    }
}

/// Of 500 problems none has a rival: another program of the enabled families that fits what is shown and fails what is hidden.
#[test]
fn three_examples_determine_the_program() {
    for families in [&ProgramFamily::ALL[..7], &ProgramFamily::ALL[..]] {
        let rows = make(&config(families), 500, RootSeed(2)).unwrap();
        let mut rivals: BTreeMap<&str, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.extra["rivals"] != 0) {
            *rivals.entry(row.extra["family"].as_str().unwrap()).or_default() += 1;
        }
        assert!(rivals.is_empty(), "{rivals:?}");
    }
}

/// One example never says where a conditional changes, and the row says so.
#[test]
fn what_is_shown_too_little_of_has_rivals() {
    let config = TaskConfig::ProgramSynthesis(ProgramSynthesisConfig {
        families: vec![ProgramFamily::Conditional],
        shown: 1,
        ..Default::default()
    });
    let rows = make(&config, 50, RootSeed(2)).unwrap();
    assert!(rows.iter().all(|row| row.extra["rivals"].as_u64().unwrap() > 0));
}

#[test]
fn a_split_by_solution_asks_for_no_program_twice() {
    let config = config(&ProgramFamily::ALL[..7]);
    let split = make_split(&config, 300, 60, RootSeed(3), SplitBy::Solution).unwrap();
    assert_eq!((split.train.len(), split.held_out.len()), (300, 60));
    let programs = |rows: &[TaskRow]| -> HashSet<String> {
        rows.iter().map(|row| row.worked_solution().to_owned()).collect()
    };
    assert!(programs(&split.train).is_disjoint(&programs(&split.held_out)));

    let split = make_split(&config, 300, 60, RootSeed(3), SplitBy::Prompt).unwrap();
    assert_eq!((split.train.len(), split.held_out.len()), (300, 60));
    let prompts: HashSet<&str> =
        split.train.iter().chain(&split.held_out).map(|row| row.prompt.as_str()).collect();
    assert_eq!(prompts.len(), 360);
    assert!(!programs(&split.train).is_disjoint(&programs(&split.held_out))); // so it is weaker
}

#[test]
fn programs_are_written_the_shortest_way() {
    let rows = make(&config(&ProgramFamily::ALL), 2000, RootSeed(4)).unwrap();
    let sources: HashSet<&str> = rows.iter().map(TaskRow::worked_solution).collect();
    for source in ["def f(x):\n return x%7", "def f(s):\n return s[::-1]", "def f(v):\n return sorted(v)"] {
        assert!(sources.contains(source), "{source}");
    }
    for source in sources {
        assert!(
            !source.contains("+0")
                && !source.contains("+-")
                && !source.contains("(1*")
                && !source.contains(" 1*"),
            "{source}"
        );
    }
}

#[test]
fn unusable_settings_are_refused_by_name() {
    let error = |change: fn(&mut ProgramSynthesisConfig)| {
        let mut config = ProgramSynthesisConfig::default();
        change(&mut config);
        TaskConfig::ProgramSynthesis(config).validate().unwrap_err().to_string()
    };
    assert_eq!(error(|c| c.families.clear()), "families = []: allowed is at least one family");
    assert_eq!(error(|c| c.shown = 0), "shown = 0: allowed is 1 to 16");
    assert_eq!(error(|c| c.max_input = -10), "max_input = -10: allowed is min_input = -9 or more");
    assert!(
        error(|c| c.hidden = 17).starts_with("shown + hidden = 20: allowed is fewer: `linear` has too few")
    );
    assert!(
        error(|c| (c.max_constant, c.max_input) = (100, 100))
            .starts_with("max_constant = 100: allowed is smaller")
    );
}
