#!/usr/bin/env python3
"""How the time of a step grows: `firebrick bench step` over batch, response length, parameters and epochs, one at a time.

    cargo build --release --bin firebrick
    scripts/step_growth.py                    # about four minutes on two cores
    scripts/step_growth.py --only length

Every row starts from `--shape small`. Prints Markdown tables; the last column is time per token that went through the model
and parameter, relative to the first row: 1.0 throughout would be growth in proportion.
"""

import argparse
import json
import subprocess
import sys

MICRO_BATCH = ["--micro-batch-tokens", "8192"]

# Name of the table: what is varied, and for each row a title and the flags.
TABLES = {
    "batch": ("completions", [
        (8 * prompts, ["--prompts", prompts]) for prompts in (2, 4, 8, 16, 32)
    ]),
    "length": ("tokens of a response", [
        (new, ["--prompts", 2, "--completions", 4, "--new-tokens", new]) for new in (64, 128, 256, 512, 1024, 2048)
    ]),
    "parameters": ("layers × width", [
        (f"{layers} × {hidden}", ["--layers", layers, "--hidden", hidden, "--ffn", 3 * hidden,
                                  "--heads", hidden // 32, "--kv-heads", hidden // 64])
        for layers, hidden in ((2, 64), (4, 128), (6, 256), (8, 384))
    ]),
    "epochs": ("epochs", [(epochs, ["--epochs", epochs]) for epochs in (1, 2, 4, 8)]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--firebrick", default="target/release/firebrick")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    for name, (title, rows) in TABLES.items():
        if arguments.only in (None, name):
            print(f"\n| {title} | parameters | generate (s) | forward and backward (s) | step (s) | peak (MiB) | "
                  "step per token and parameter |\n|" + "---|" * 7)
            first = None
            for label, flags in rows:
                report = measure(arguments, flags)
                seconds = {part: spread["median"] for part, spread in report["seconds"].items()}
                shape = report["shape"]
                positions = shape["prompts"] * shape["completions"] * (shape["prompt_tokens"] + shape["new_tokens"])
                # Generation reads each token once, a pass of training three times as much.
                work = positions * (1 + 3 * report["epochs"]) * report["parameters"]
                cost = seconds["total"] / work
                first = first or cost
                print(f"| {label} | {report['parameters']:,} | {seconds['generate']:.3f} | "
                      f"{seconds['forward_backward']:.3f} | {seconds['total']:.3f} | "
                      f"{report['peak_resident_bytes'] / 2**20:.0f} | {cost / first:.2f} |", flush=True)


def measure(arguments, flags):
    command = [arguments.firebrick, "bench", "step", "--json", "--shape", "small",
               "--repetitions", str(arguments.repetitions), *MICRO_BATCH, *map(str, flags)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stderr}")
    return json.loads(run.stdout)


if __name__ == "__main__":
    main()
