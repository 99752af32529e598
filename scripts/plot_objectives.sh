#!/usr/bin/env bash
# Draws weight and window along a synthetic response for the objectives whose window depends on the position or on the
# token, into docs/plots: 400 tokens with log-ratios from N(-0.005, 0.1^2), probabilities of 0.5.
set -euo pipefail
cd "$(dirname "$0")/.."
firebrick=${FIREBRICK:-"cargo run --quiet --release -p firebrick-cli --"}
mkdir -p docs/plots
draw() { # name, extra arguments
    local name=$1
    shift
    $firebrick explain "$name" --length 400 --spread 0.1 --seed 1 "$@" --plot "docs/plots/$name.svg" >/dev/null
    echo "docs/plots/$name.svg"
}
draw grpo
draw gspo
draw tapo
draw causal_gspo
draw ctpo
draw tapo_raw
draw pnpo --set schedule.eps_minus=0.005 --set schedule.eps_plus=0.005
