#!/usr/bin/env python3
"""Fixtures that hold Firebrick's decoder to Hugging Face transformers and PEFT, and a check in the other direction.

    python3 -m venv parity && parity/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    parity/bin/python scripts/parity.py write
    parity/bin/python scripts/parity.py check DIR [--adapter DIR] --against FILE.safetensors

`write` makes tiny models with random weights, saves them as transformers and PEFT do, reads them back and writes what they compute
to crates/models/tests/parity (its README lists the tensors). The same versions give the same bytes. `check` opens a folder that
Firebrick saved, runs it on the `tokens` of FILE and compares with the `logits` there; it ends with 1 when they differ by more than
1e-4. Where FILE has `lengths`, rows are padded on the left and only real tokens count.

Needs no network. Only public APIs are used.
"""

import argparse
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_WAIT_POLICY="passive")

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

PARITY = Path(__file__).resolve().parent.parent / "crates" / "models" / "tests" / "parity"
VOCABULARY = 64
PADDING = 0
NEW_TOKENS = 16
# A greedy choice whose margin over the second is smaller could fall either way with the order of a sum.
SMALLEST_GAP = 5e-3
TOLERANCE = 1e-4

# Two heads of 16 instead of four of 8: more wavelengths for a scaling to tell apart.
WIDE_HEADS = dict(num_attention_heads=2, num_key_value_heads=1)
SHORT, LONG = (12, 9, 5), (24, 15, 7)


def rope(kind="default", theta=10_000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


# Name: configuration class, what differs from SHAPE, lengths of the rows.
CASES = {
    "llama": (LlamaConfig, dict(eos_token_id=2, bos_token_id=1), SHORT),
    "llama_tied_bias": (LlamaConfig, dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=False), SHORT),
    # Of the wavelengths 6, 32, 167, .. the first stays, the second lies between, the others are stretched in full.
    "llama3_rope": (
        LlamaConfig,
        rope("llama3", 500_000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
        | WIDE_HEADS,
        LONG,
    ),
    "llama_linear_rope": (LlamaConfig, rope("linear", factor=4.0) | WIDE_HEADS | dict(tie_word_embeddings=True), SHORT),
    "qwen2": (Qwen2Config, dict(eos_token_id=2), SHORT),
    # With the usual base every wavelength but the first would be beyond the ramp of so short an original context.
    "qwen2_yarn": (Qwen2Config, rope("yarn", 100.0, factor=4.0, original_max_position_embeddings=16) | WIDE_HEADS, LONG),
    "qwen3": (Qwen3Config, dict(head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5), SHORT),
    "mistral": (MistralConfig, dict(sliding_window=None), SHORT),
    "mistral_window": (MistralConfig, dict(sliding_window=8, tie_word_embeddings=True), SHORT),
    "bf16_shards": (Qwen2Config, rope(theta=1_000_000.0), SHORT),
    "old_names": (
        Qwen2Config,
        rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=0.5, beta_slow=0.1)
        | WIDE_HEADS
        | dict(tie_word_embeddings=True),
        LONG,
    ),
}

SHAPE = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6, initializer_range=0.25, pad_token_id=PADDING,
    bos_token_id=None, eos_token_id=None,
)

# Name: configuration class of the base, what differs from SHAPE, the adapter.
ADAPTERS = {
    "lora": (
        Qwen2Config,
        dict(tie_word_embeddings=True),
        dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]),
    ),
    "lora_rs": (
        LlamaConfig,
        dict(tie_word_embeddings=True),
        dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear"),
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    write = modes.add_parser("write", help="writes the fixtures")
    write.add_argument("--out", type=Path, default=PARITY, help="folder of the cases (default: that of the tests)")
    check = modes.add_parser("check", help="compares a folder that Firebrick saved with logits of its own")
    check.add_argument("folder", type=Path)
    check.add_argument("--adapter", type=Path, help="folder of a LoRA adapter for the model")
    check.add_argument("--against", type=Path, required=True, help="safetensors file with `tokens`, `logits` and, if rows are padded, `lengths`")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    if arguments.mode == "check":
        sys.exit(check_folder(arguments))
    for number, (name, (kind, more, lengths)) in enumerate(CASES.items()):
        write_case(arguments.out / name, kind(**SHAPE | more), lengths, seed=100 + number)
    for number, (name, (kind, more, adapter)) in enumerate(ADAPTERS.items()):
        write_adapter_case(arguments.out / name, kind(**SHAPE | more), adapter, seed=200 + number)
    print(f"{len(CASES) + len(ADAPTERS)} cases in {arguments.out}")


def write_case(folder, config, lengths, seed):
    shutil.rmtree(folder, ignore_errors=True)
    model = random_model(config, seed)
    if folder.name == "bf16_shards":
        model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="10KB")
        shards = len(list(folder.glob("model-*.safetensors")))
        assert shards >= 3, shards
    else:
        model.save_pretrained(folder)
    before = opened(folder)
    if folder.name == "qwen2":
        # A window that is switched off, as configurations on the hub have it; transformers 5 writes null for it.
        edit_json(folder / "config.json", lambda config: config.update(sliding_window=8))
        edit_json(folder / "generation_config.json", lambda config: config.update(eos_token_id=[2, 3]))
    if folder.name == "old_names":
        edit_json(folder / "config.json", to_old_names)
    model = opened(folder)
    expected = expectations(model, lengths, seed)
    plain, _ = forward(before, expected["tokens"], expected["lengths"])
    assert torch.equal(zeroed(plain, real_tokens(expected)), expected["logits"]), "an edit of the configuration changed the model"
    plain = dict(rope_parameters=dict(rope_type="default", rope_theta=config.rope_parameters["rope_theta"]))
    if config.model_type == "mistral":
        plain["sliding_window"] = None
    unlike, _ = forward(opened(folder, **plain), expected["tokens"], expected["lengths"])
    difference = (zeroed(unlike, real_tokens(expected)) - expected["logits"]).abs().max()
    special = config.rope_parameters["rope_type"] != "default" or folder.name == "mistral_window"
    assert difference > 0.1 if special else difference == 0, f"{folder.name}: scaling or window changes logits by {difference}"
    save_file(expected | gradients(model.named_parameters(), model, expected), folder / "expected.safetensors")


def write_adapter_case(folder, config, adapter, seed):
    from peft import LoraConfig, PeftModel, get_peft_model

    shutil.rmtree(folder, ignore_errors=True)
    random_model(config, seed).save_pretrained(folder / "base")
    settings = LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **adapter)
    model = get_peft_model(opened(folder / "base"), settings)
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # B too: PEFT starts it at zero.
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=rng)
    model.save_pretrained(folder / "adapter")
    # A model card, which PEFT adds.
    (folder / "adapter" / "README.md").unlink()
    edit_json(folder / "adapter" / "adapter_config.json", without_machine)

    reopened = PeftModel.from_pretrained(opened(folder / "base"), folder / "adapter", is_trainable=True)
    expected = expectations(reopened, SHORT, seed)
    stored = load_file(folder / "adapter" / "adapter_model.safetensors")
    trained = {
        name.replace(".default.", "."): parameter for name, parameter in reopened.named_parameters() if parameter.requires_grad
    }
    assert set(trained) == set(stored)
    expected |= gradients(trained.items(), reopened, expected)
    merged, _ = forward(reopened.merge_and_unload(), expected["tokens"], expected["lengths"])
    expected["merged_logits"] = zeroed(merged, real_tokens(expected))
    assert (expected["merged_logits"] - expected["logits"]).abs().max() < 1e-4
    base, _ = forward(opened(folder / "base"), expected["tokens"], expected["lengths"])
    assert (zeroed(base, real_tokens(expected)) - expected["logits"]).abs().max() > 0.1, "the adapter does nothing"
    save_file(expected, folder / "expected.safetensors")


def random_model(config, seed):
    """A model in which every weight matters, also those that usually start at zero or one."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=rng)
        parameter.data = 1.0 + 0.3 * noise if "norm" in name else config.initializer_range * noise
    return model


def opened(folder, **changes):
    """The model of a Hugging Face folder in 32 bits, as written there but for `changes` of its configuration."""
    model, loaded = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **changes
    )
    # What does not fit the model is otherwise a warning, and random numbers take its place.
    wrong = {kind: found for kind, found in loaded.items() if found}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    model.eval()
    # Generation would otherwise stop there, or never choose it.
    model.generation_config.eos_token_id = None
    return model


def edit_json(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def to_old_names(config):
    """What transformers 4 wrote for Qwen2.5."""
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = dict(type=parameters.pop("rope_type"), **parameters)
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.43.1"
    config["sliding_window"] = 8
    config["max_window_layers"] = config["num_hidden_layers"]
    del config["layer_types"]


def without_machine(config):
    config["base_model_name_or_path"] = "../base"
    if not isinstance(config["target_modules"], str):
        # A set until here: its order differs from run to run.
        config["target_modules"] = sorted(config["target_modules"])


def expectations(model, lengths, seed):
    """Tokens and what the model makes of them, without gradients."""
    for attempt in range(100):
        rng = torch.Generator().manual_seed(1000 * seed + attempt)
        columns = max(lengths)
        tokens = torch.full((len(lengths), columns), PADDING)
        for row, length in enumerate(lengths):
            tokens[row, columns - length:] = torch.randint(1, VOCABULARY, (length,), generator=rng)
        greedy, gap = greedy_continuation(model, tokens, torch.tensor(lengths))
        if gap > SMALLEST_GAP:
            break
    else:
        sys.exit("no prompts without a near-tie were found")
    expected = dict(tokens=tokens, lengths=torch.tensor(lengths), greedy=greedy)
    with torch.no_grad():
        logits, log_probs = forward(model, tokens, expected["lengths"])
    real = real_tokens(expected)
    weights = torch.randn(log_probs.shape, generator=rng)
    expected["logits"] = zeroed(logits, real)
    expected["log_probs"] = log_probs
    expected["loss_weights"] = zeroed(weights, real[:, :-1])
    return expected


def real_tokens(expected):
    """Whether a place holds a token rather than padding, [B, S]."""
    columns = expected["tokens"].shape[1]
    return torch.arange(columns) >= (columns - expected["lengths"])[:, None]


def zeroed(values, kept):
    """`values` with zeros in place of what is not kept."""
    kept = kept.reshape(kept.shape + (1,) * (values.dim() - kept.dim()))
    return torch.where(kept, values, 0.0).contiguous()


def forward(model, tokens, lengths):
    """Logits [B, S, V], and log-probs of the next token [B, S-1], zero at padding."""
    real = real_tokens(dict(tokens=tokens, lengths=lengths))
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=real.long(), position_ids=positions).logits
    log_probs = logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return logits, zeroed(log_probs, real[:, :-1])


def greedy_continuation(model, tokens, lengths):
    """Greedy tokens [B, NEW_TOKENS], and the smallest margin of a choice over the second.

    `generate`, which has a cache, must choose what full passes choose.
    """
    real = real_tokens(dict(tokens=tokens, lengths=lengths))
    result = model.generate(
        input_ids=tokens, attention_mask=real.long(), do_sample=False, min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS
    )
    columns = tokens.shape[1]
    with torch.no_grad():
        logits, _ = forward(model, result, lengths + NEW_TOKENS)
    best = logits[:, columns - 1:-1].topk(2, dim=-1)
    greedy = result[:, columns:].contiguous()
    gap = (best.values[..., 0] - best.values[..., 1]).min().item()
    assert gap <= SMALLEST_GAP or torch.equal(best.indices[..., 0], greedy), "generation and full passes choose differently"
    return greedy, gap


def gradients(parameters, model, expected):
    """Gradients of sum(loss_weights * log_probs) by name, a weight that is tied once."""
    _, log_probs = forward(model, expected["tokens"], expected["lengths"])
    parameters = list(parameters)
    grads = torch.autograd.grad((expected["loss_weights"] * log_probs).sum(), [parameter for _, parameter in parameters])
    for (name, _), grad in zip(parameters, grads):
        assert grad.abs().max() > 1e-3, f"{name}: no gradient"
    return {f"grad.{name}": grad.contiguous() for (name, _), grad in zip(parameters, grads)}


def check_folder(arguments):
    """Exit status of `check`."""
    given = load_file(arguments.against)
    tokens = given["tokens"].long()
    lengths = given["lengths"].long() if "lengths" in given else torch.full((tokens.shape[0],), tokens.shape[1])
    model = opened(arguments.folder)
    if arguments.adapter:
        from peft import PeftModel

        warnings.filterwarnings("error", message=".*missing adapter keys")
        model = PeftModel.from_pretrained(model, arguments.adapter)
    with torch.no_grad():
        logits, _ = forward(model, tokens, lengths)
    if logits.shape != given["logits"].shape:
        print(f"logits have shape {list(given['logits'].shape)}, transformers gives {list(logits.shape)}")
        return 1
    real = real_tokens(dict(tokens=tokens, lengths=lengths))
    difference = (logits - given["logits"].float())[real].abs().max().item()
    print(f"largest difference of {int(real.sum()) * logits.shape[-1]} logits: {difference:.3g}")
    # A difference that is not a number is one too.
    return 0 if difference <= TOLERANCE else 1


if __name__ == "__main__":
    main()
