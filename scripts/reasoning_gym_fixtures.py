"""Writes the scores that reasoning-gym gives to many answers, one JSON object a line, to standard output.

    pip install reasoning-gym==0.1.25
    python scripts/reasoning_gym_fixtures.py > crates/reward/tests/data/reasoning_gym.jsonl

A line holds the name of the task here, the reference answer, what else scoring needs, an answer, its kind and its
score, which is null where the package raised an exception.
Only the public API is used: `create_dataset` and `score_answer`.
"""

import json

import reasoning_gym

QUESTIONS = 12
SEED = 20

# Task here: the data set there, and what scoring needs of its metadata, under the names here.
TASKS = {
    "chain_sum": ("chain_sum", {}),
    "arithmetic": ("basic_arithmetic", {}),
    "gcd": ("gcd", {}),
    "lcm": ("lcm", {}),
    "base_conversion": ("base_conversion", {"target_base": "base"}),
    "fraction_simplification": (
        "fraction_simplification",
        {"simplified_numerator": "numerator", "simplified_denominator": "denominator"},
    ),
    "linear_equation": ("simple_equations", {}),
    "countdown": ("countdown", {"numbers": "numbers", "target": "target"}),
    "number_sorting": ("number_sorting", {"direction": "direction"}),
    "prime_factorisation": ("prime_factorization", {"number": "number"}),
}


def of_integer(answer):
    n = int(answer)
    yield "wrong", str(n + 1)
    yield "wrong", str(-n) if n else "7"
    yield "wrong", answer + "0"
    yield "wrong", "1" + answer.lstrip("-")
    yield "sentence", f"The answer is {answer}."
    yield "fraction", f"{2 * n}/2"


def of_decimal(answer):
    n = int(answer)
    yield "format", f"{n:+,}.00"
    yield "format", f"{n:,}"
    yield "format", "0" * 3 + answer if n >= 0 else "-000" + answer[1:]
    yield "format", f"{n}.5"
    yield "format", f"{n}e0"
    yield "format", f" {answer} "


def of_base(answer, entry):
    base = entry["metadata"]["target_base"]
    value = int(answer, base)
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"

    def written(n, base):
        text = ""
        while n:
            text, n = digits[n % base] + text, n // base
        return text or "0"

    yield "wrong", written(value + 1, base)
    yield "wrong", answer[::-1] + "1"
    yield "wrong", written(value, base + 1 if base < 36 else 2)
    yield "case", answer.upper()
    yield "prefix", {2: "0b", 8: "0o", 16: "0x"}.get(base, "0q") + answer
    yield "sentence", f"It is {answer}"
    yield "garbage", "g!" + answer


def of_fraction(answer, entry):
    data = entry["metadata"]
    a, b = data["simplified_numerator"], data["simplified_denominator"]
    p, q = data["numerator"], data["denominator"]
    yield "format", f"{a}/{b}"
    yield "format", f"\\frac{{{a}}}{{{b}}}"
    yield "format", f"$\\frac{{{a}}}{{{b}}}$"
    yield "format", f"$\\dfrac{{{a}}}{{{b}}}$"
    yield "format", f"{a} / {b}"
    yield "wrong", f"{p}/{q}"
    yield "wrong", f"{2 * a}/{2 * b}"
    yield "wrong", f"{a + 1}/{b}"
    yield "wrong", f"{b}/{a}" if a != b else "2/1"
    yield "wrong", f"{a}"
    yield "wrong", f"-{a}/{b}"
    yield "wrong", str(a / b)


def of_countdown(answer, entry):
    numbers, target = entry["metadata"]["numbers"], entry["metadata"]["target"]
    yield "format", answer.replace(" ", "")
    yield "format", f"({answer})"
    yield "format", f"0 - (0 - ({answer}))"
    yield "format", f"-(-({answer}))"
    yield "wrong", f"{answer} + 1"
    yield "wrong", f"({answer}) * 1"
    yield "wrong", str(target)
    yield "wrong", " + ".join(map(str, numbers))
    yield "wrong", " * ".join(map(str, numbers[:-1]))
    yield "wrong", f"{answer} = {target}"
    yield "wrong", f"({answer}"
    yield "wrong", f"{numbers[0]} / 0"


def of_sorting(answer, entry):
    items = entry["metadata"]["sorted_numbers"]
    numbers = [float(item) for item in items]
    yield "format", json.dumps(items)
    yield "format", json.dumps(numbers)
    yield "format", "[" + ",".join(items) + "]"
    yield "format", json.dumps([str(number) for number in numbers])
    yield "wrong", json.dumps(items[::-1])
    yield "wrong", json.dumps(items[:-1])
    yield "wrong", json.dumps(items + [items[-1]])
    yield "wrong", json.dumps(entry["metadata"]["original_numbers"][::-1] + ["0"])
    yield "wrong", ", ".join(items)
    yield "wrong", json.dumps([number * 2 for number in numbers])
    yield "wrong", json.dumps(["x"] + items[1:])


def of_factors(answer, entry):
    number, factors = entry["metadata"]["number"], entry["metadata"]["factors"]
    yield "format", " × ".join(map(str, reversed(factors)))
    yield "format", "×".join(map(str, factors))
    yield "wrong", str(number) if len(factors) > 1 else f"1 × {number}"
    yield "wrong", " × ".join(map(str, [1] + factors))
    yield "wrong", " × ".join(map(str, factors + [2]))
    yield "wrong", " × ".join(map(str, factors[1:])) or "1"
    yield "wrong", " × ".join(map(str, [-factors[0]] + factors[1:]))
    yield "wrong", f"{number} × 1"
    yield "wrong", f"{number + 1}"


def answers(task, entry, question):
    answer = entry["answer"]
    yield "right", answer
    yield "none", None
    yield "empty", ""
    yield "garbage", "I do not know"
    yield "garbage", "?"
    if question == 0:
        yield "spaces", f"  {answer} "
    if task == "chain_sum" or (question == 0 and task in ("arithmetic", "gcd", "lcm", "linear_equation")):
        yield from of_integer(answer)
        yield from of_decimal(answer)
    elif task in ("arithmetic", "gcd", "lcm", "linear_equation"):
        yield from of_integer(answer)
    elif task == "base_conversion":
        yield from of_base(answer, entry)
    elif task == "fraction_simplification":
        yield from of_fraction(answer, entry)
    elif task == "countdown":
        yield from of_countdown(answer, entry)
    elif task == "number_sorting":
        yield from of_sorting(answer, entry)
        if question == 0:
            yield "near", json.dumps([float(item) + 0.5 for item in entry["metadata"]["sorted_numbers"]])
    else:
        yield from of_factors(answer, entry)
        if question < 3:
            yield "star", answer.replace("×", "*")
            yield "power", "2^1 × " + answer


for task, (name, keys) in TASKS.items():
    data = reasoning_gym.create_dataset(name, size=QUESTIONS, seed=SEED)
    for question, entry in enumerate(data):
        extra = {here: entry["metadata"][there] for there, here in keys.items()}
        seen = set()
        for kind, answer in answers(task, entry, question):
            if (answer is None, answer) in seen:
                continue
            seen.add((answer is None, answer))
            try:
                score = round(float(data.score_answer(answer=answer, entry=entry)), 6)
            except ValueError:
                score = None  # it raised
            row = {
                "task": task,
                "reference": entry["answer"],
                "extra": extra,
                "kind": kind,
                "answer": answer,
                "score": score,
            }
            print(json.dumps(row, ensure_ascii=False))
