#!/usr/bin/env python3
"""One RL step on this machine's CPU: Firebrick beside TRL.

Both sides build the same decoder with random weights (rotary positions, RMS norm, gated SiLU, grouped heads, tied head), sample the
same number of completions of the same length, score them without any work, and take one optimizer step in 32-bit numbers: the DAPO
objective without a reference model, one epoch, AdamW, gradient norm 1. Neither recomputes activations. The sides run alternately,
each run a process of its own; the table has the median over the runs of the medians of their steps.

    python3 -m venv trl && trl/bin/pip install trl==1.16.0 transformers==5.24.0 torch==2.15.0
    cargo build --release --bin firebrick
    trl/bin/python scripts/bench_vs_trl.py --shape small --runs 5

Needs nothing else: no model, no data, no network.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

STARTED = time.monotonic()

# Key, title and number format of each line.
LINES = [
    ("generate", "generate (s)", "{:.3f}"),
    ("forward_backward", "forward and backward (s)", "{:.3f}"),
    ("total", "whole step (s)", "{:.3f}"),
    ("cpu", "CPU-seconds of a step", "{:.3f}"),
    ("peak", "peak memory (MiB)", "{:.0f}"),
    ("first_step", "start to end of first step (s)", "{:.2f}"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="small", help="as `firebrick bench step --help` names them")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of a run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--firebrick", default="target/release/firebrick")
    parser.add_argument("--json", action="store_true", help="prints every run instead of the table")
    parser.add_argument("--trl-side", type=json.loads, metavar="SIZES", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.warmup < 1:
        parser.error(f"--warmup = {arguments.warmup}: allowed is at least 1, since the first step is timed from the start")
    if arguments.trl_side:
        print(json.dumps(measure_trl(arguments)))
        return
    runs = {"firebrick": [], "trl": []}
    for number in range(arguments.runs):
        print(f"run {number + 1} of {arguments.runs}", file=sys.stderr)
        report = output_of(firebrick_command(arguments), arguments)
        runs["firebrick"].append(firebrick_figures(report))
        # The sizes are those that Firebrick took.
        runs["trl"].append(output_of(trl_command(arguments, report["shape"]), arguments))
    if arguments.json:
        print(json.dumps(runs))
    else:
        print_table(runs, report["shape"], arguments)


def firebrick_command(arguments):
    return [arguments.firebrick, "bench", "step", "--json", "--shape", arguments.shape, "--objective", "dapo",
            "--repetitions", str(arguments.steps), "--warmup", str(arguments.warmup),
            "--threads", str(arguments.threads)]


def trl_command(arguments, shape):
    return [sys.executable, __file__, "--trl-side", json.dumps(shape), "--steps", str(arguments.steps),
            "--warmup", str(arguments.warmup), "--threads", str(arguments.threads)]


def output_of(command, arguments):
    """Runs a side and returns the JSON object of its last line."""
    threads = str(arguments.threads)
    # A waiting OpenMP thread would otherwise spin: that costs the others their core and counts as CPU time.
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads,
                       TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stderr}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def firebrick_figures(report):
    """The figures of a report by the keys of LINES."""
    seconds = {name: spread["median"] for name, spread in report["seconds"].items()}
    return dict(
        generate=seconds["generate"], forward_backward=seconds["forward_backward"],
        total=seconds["total"], cpu=report["cpu_seconds"]["median"],
        peak=report["peak_resident_bytes"] / 2**20, first_step=report["seconds_to_first_step"],
        tokens=report["generated_tokens"],
    )


def print_table(runs, shape, arguments):
    tokens = {run["tokens"] for side in runs.values() for run in side}
    if len(tokens) != 1:
        sys.exit(f"the sides did not generate the same number of tokens: {sorted(tokens)}")
    print(f"{arguments.shape}: {shape}\n{tokens.pop()} new tokens a step, {arguments.threads} threads, "
          f"{arguments.runs} runs of {arguments.steps} steps, medians\n")
    print(f"{'':<32} {'Firebrick':>10} {'TRL':>10} {'TRL / Firebrick':>16}")
    for key, title, form in LINES:
        ours, theirs = (statistics.median(run[key] for run in runs[side]) for side in ("firebrick", "trl"))
        print(f"{title:<32} {form.format(ours):>10} {form.format(theirs):>10} {theirs / ours:>16.2f}")


def measure_trl(arguments):
    """Steps of TRL's GRPOTrainer in this process."""
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape = arguments.trl_side
    vocabulary, length = shape["vocab"], shape["prompt_tokens"] + shape["new_tokens"]
    last = vocabulary - 1

    words = Tokenizer(models.WordLevel({str(token): token for token in range(vocabulary)}, unk_token=str(last)))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=str(last), pad_token=str(last - 1))

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
        max_position_embeddings=length, rms_norm_eps=1e-6, rope_theta=10_000.0, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=last, pad_token_id=last - 1,
    ))

    generate_seconds, train_seconds, step_seconds, step_cpu, completion_tokens = [], [], [], [], []
    # The first forward pass of a step outside generation is that of the loss.
    loss_began = None
    generating = False

    def before_forward(*_):
        nonlocal loss_began
        if not generating and loss_began is None:
            loss_began = time.monotonic()

    model.register_forward_pre_hook(before_forward)
    plain_generate = model.generate

    def timed_generate(*args, **kwargs):
        nonlocal generating
        generating = True
        began = time.monotonic()
        result = plain_generate(*args, **kwargs)
        generate_seconds.append(time.monotonic() - began)
        generating = False
        return result

    model.generate = timed_generate

    def reward(completion_ids, **_):
        completion_tokens.append(sum(len(tokens) for tokens in completion_ids))
        return [float(index % 2) for index in range(len(completion_ids))]

    class Measured(GRPOTrainer):
        def training_step(self, *args, **kwargs):
            nonlocal loss_began
            loss_began = None
            result = super().training_step(*args, **kwargs)
            train_seconds.append(time.monotonic() - loss_began)
            return result

    class Clock(TrainerCallback):
        wall, cpu = None, None
        first_step = None

        def on_step_end(self, *_, **__):
            wall, cpu = time.monotonic(), cpu_seconds()
            if self.first_step is None:
                self.first_step = wall - STARTED
            else:
                step_seconds.append(wall - self.wall)
                step_cpu.append(cpu - self.cpu)
            self.wall, self.cpu = wall, cpu

    steps = arguments.warmup + arguments.steps
    batch = shape["prompts"] * shape["completions"]
    rng = torch.Generator().manual_seed(1)
    prompts = [" ".join(str(token) for token in torch.randint(0, last - 1, (shape["prompt_tokens"],), generator=rng).tolist())
               for _ in range(shape["prompts"] * steps)]
    clock = Clock()
    scratch = tempfile.TemporaryDirectory()
    trainer = Measured(
        model=model, processing_class=tokenizer, reward_funcs=reward, callbacks=[clock],
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        args=GRPOConfig(
            output_dir=scratch.name, max_steps=steps, per_device_train_batch_size=batch,
            num_generations=shape["completions"], max_completion_length=shape["new_tokens"],
            generation_kwargs={"min_new_tokens": shape["new_tokens"]}, temperature=1.0, loss_type="dapo", beta=0.0,
            learning_rate=1e-4, lr_scheduler_type="constant", max_grad_norm=1.0, bf16=False, gradient_checkpointing=False,
            use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=1,
        ),
    )
    trainer.train()
    median = statistics.median
    return dict(
        generate=median(generate_seconds[arguments.warmup:]), forward_backward=median(train_seconds[arguments.warmup:]),
        total=median(step_seconds[arguments.warmup - 1:]), cpu=median(step_cpu[arguments.warmup - 1:]),
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, first_step=clock.first_step,
        tokens=completion_tokens[-1],
    )


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
