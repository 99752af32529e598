//! `firebrick objectives` and `firebrick explain`.

use crate::fixture::{config, fail, succeed};

#[test]
fn objectives_are_listed_with_their_parts_and_shown_in_full() {
    let list = succeed(&["objectives"]);
    for row in [["tapo", "prefix_mean", "inverse_sqrt"], ["kl_cov", "token_ratio", "covariance_kl"]] {
        let line = list.lines().find(|line| line.starts_with(row[0])).unwrap();
        assert!(row.iter().all(|part| line.contains(part)), "{line}");
    }
    let one = succeed(&["objectives", "pnpo"]);
    assert!(
        one.contains("arXiv:2608.01418") && one.contains("schedule.eps_minus = ...   # no default"),
        "{one}"
    );
    assert!(fail(&["objectives", "tapoo"]).contains("there is no objective \"tapoo\"; there are grpo, "));
}

#[test]
fn an_objective_is_explained_token_by_token_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("tapo.svg");
    let plot = plot.to_str().unwrap();
    let text = succeed(&[
        "explain",
        "tapo",
        "--log-ratios",
        "0.1,-0.2,0.3,0.05",
        "--advantage",
        "1",
        "--plot",
        plot,
    ]);
    let third = text.lines().nth(3).unwrap();
    assert!(third.contains("1.068939") && third.contains("1.031278") && third.contains("high"), "{text}");
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
    let json = succeed(&["explain", "grpo", "--log-ratios=-0.5", "--advantage=-1", "--json"]);
    assert!(json.contains(r#""acts":"low""#), "{json}");
    let error = fail(&["explain", "grpo", "--set", "schedule.hihg=1", "--log-ratios", "0"]);
    assert!(error.contains("unknown key objective.schedule.hihg; did you mean high?"), "{error}");
}

#[test]
fn a_completion_of_a_run_is_explained_with_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "run", 2);
    succeed(&["train", file.to_str().unwrap(), "--set", "train.epochs=2"]);
    let run = folder.path().join("run");
    let run = run.to_str().unwrap();
    let text = succeed(&["explain", "--from", run, "--step", "1", "--sample", "1"]);
    assert!(text.contains("token") && text.contains("last optimizer step"), "{text}");
    // Another objective on the same response.
    assert!(succeed(&["explain", "sapo", "--from", run, "--step", "1"]).contains("coefficient"));
    let error = fail(&["explain", "--from", run, "--step", "7"]);
    assert!(error.contains("steps go up to 1"), "{error}");
}
