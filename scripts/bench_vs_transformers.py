#!/usr/bin/env python3
"""A model of a Hugging Face folder on this machine's CPU: Firebrick beside transformers and PEFT.

Generation takes random prompts of 64 tokens and adds 64 greedily, without an end token, for one row and for sixteen. `prefill` is the
time from the call to the first token, `decode` that from the first to the last. A training step is forward, backward and AdamW of a
LoRA adapter (rank 16, alpha 32, all linear layers) on sixteen rows of 128 tokens, with the mean loss of the last 64; activations are
not recomputed, and the head is applied only where there is a loss. Both sides compute in 32-bit numbers, the base model too, on as
many CPUs as they have threads. The sides run alternately, each run a process of its own with one round before the measured one; the
table has medians.

    python3 -m venv peft && peft/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    cargo build --release --bin firebrick
    peft/bin/python scripts/bench_vs_transformers.py MODEL_DIR

`scripts/smollm2.py` makes a MODEL_DIR. Needs no network.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PROMPT_TOKENS, NEW_TOKENS = 64, 64
LORA = ["--lora-rank", "16", "--lora-alpha", "32", "--train-batch", "16", "--train-tokens", str(PROMPT_TOKENS + NEW_TOKENS)]
# What a run measures: by its batch, the options beside it.
RUNS = {1: [], 16: LORA}

# Batch, key, title, number format, whether more is better.
LINES = [
    (1, "prefill_tokens_per_s", "prefill, 1 row (tokens/s)", "{:.0f}", True),
    (1, "decode_tokens_per_s", "decode, 1 row (tokens/s)", "{:.1f}", True),
    (1, "peak_mib", "peak memory, 1 row (MiB)", "{:.0f}", False),
    (16, "prefill_tokens_per_s", "prefill, 16 rows (tokens/s)", "{:.0f}", True),
    (16, "decode_tokens_per_s", "decode, 16 rows (tokens/s)", "{:.1f}", True),
    (16, "train_step_s", "LoRA training step (s)", "{:.2f}", False),
    (16, "peak_mib", "peak memory, 16 rows and training (MiB)", "{:.0f}", False),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="Hugging Face folder of a model")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["firebrick", "transformers"], help="runs one side alone")
    parser.add_argument("--firebrick", default="target/release/firebrick")
    parser.add_argument("--json", action="store_true", help="prints every run instead of the table")
    # A run of the side in Python, with the options of Firebrick's.
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lora-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lora-alpha", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--train-batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--train-tokens", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        print(json.dumps(measure_transformers(arguments)))
        return
    if arguments.runs < 1:
        parser.error(f"--runs = {arguments.runs}: allowed is at least 1")
    if hasattr(os, "sched_setaffinity"):
        # Inherited by the runs.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    commands = {
        "firebrick": [arguments.firebrick, "bench", "model", arguments.model, "--json", "--prompt-tokens", str(PROMPT_TOKENS),
                      "--new-tokens", str(NEW_TOKENS), "--repetitions", "1", "--threads", str(arguments.threads)],
        "transformers": [sys.executable, __file__, arguments.model, "--threads", str(arguments.threads)],
    }
    sides = [arguments.only] if arguments.only else list(commands)
    runs = {side: {batch: [] for batch in RUNS} for side in sides}
    for number in range(arguments.runs):
        for batch, more in RUNS.items():
            for side in sides:
                print(f"run {number + 1} of {arguments.runs}: {side}, batch {batch}", file=sys.stderr)
                command = [*commands[side], "--batch", str(batch), *more]
                runs[side][batch].append(output_of(command, arguments.threads))
    if arguments.json:
        print(json.dumps(runs))
    else:
        print_table(runs, arguments)


def output_of(command, threads):
    """Runs a side and returns the JSON object of its last line."""
    threads = str(threads)
    # A waiting OpenMP thread would otherwise spin and cost the others their core.
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads,
                       RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stderr}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def print_table(runs, arguments):
    both = len(runs) == 2
    print(f"{arguments.threads} threads, {arguments.runs} runs, medians (smallest to largest)\n")
    print(f"{'':<40}" + "".join(f" {side:>26}" for side in runs) + (f" {'times better':>13}" if both else ""))
    for batch, key, title, form, more_is_better in LINES:
        line = f"{title:<40}"
        medians = []
        for side in runs.values():
            values = [run[key] for run in side[batch]]
            medians.append(statistics.median(values))
            low, middle, high = (form.format(value) for value in (min(values), medians[-1], max(values)))
            line += f" {f'{middle} ({low} to {high})':>26}"
        if both:
            ours, theirs = medians
            line += f" {ours / theirs if more_is_better else theirs / ours:>13.2f}"
        print(line)
    if both:
        print("\nTimes better: Firebrick over transformers for tokens a second, the reverse for seconds and memory.")


def measure_transformers(arguments):
    """What a run of transformers and PEFT takes in this process."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    vocabulary = model.config.vocab_size
    prompts = torch.randint(0, vocabulary, (arguments.batch, PROMPT_TOKENS))
    generate(model, prompts, 8)
    began, tokens = generate(model, prompts, NEW_TOKENS)
    report = dict(
        prefill_tokens_per_s=prompts.numel() / (tokens[0] - began),
        decode_tokens_per_s=arguments.batch * (NEW_TOKENS - 1) / (tokens[-1] - tokens[0]),
    )
    if arguments.lora_rank:
        report["train_step_s"] = train_step(model, torch.randint(0, vocabulary, (arguments.train_batch, arguments.train_tokens)),
                                            arguments)
    report["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return report


def generate(model, prompts, new_tokens):
    """When the call began, and when each token was there."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    class Clock(StoppingCriteria):
        def __init__(self):
            self.times = []

        def __call__(self, input_ids, scores, **_):
            self.times.append(time.monotonic())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    clock = Clock()
    began = time.monotonic()
    result = model.generate(
        input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=new_tokens,
        stopping_criteria=StoppingCriteriaList([clock]),
    )
    assert result.shape[1] == prompts.shape[1] + new_tokens == prompts.shape[1] + len(clock.times), result.shape
    return began, clock.times


def train_step(model, tokens, arguments):
    """Seconds of the second step."""
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model.train(), LoraConfig(
        task_type="CAUSAL_LM", r=arguments.lora_rank, lora_alpha=arguments.lora_alpha, lora_dropout=0.0, target_modules="all-linear",
    ))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    scored = tokens.shape[1] - PROMPT_TOKENS
    for _ in range(2):
        began = time.monotonic()
        # The place of a token is that of the one before it; the last place has none.
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), logits_to_keep=scored + 1, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, -scored:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.monotonic() - began
    return seconds


if __name__ == "__main__":
    main()
