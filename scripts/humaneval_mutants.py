#!/usr/bin/env python3
"""Writes HumanEval's canonical solutions, and mutants of them, as rows for `grade_programs`.

    humaneval_mutants.py HumanEval.jsonl.gz canonical.jsonl mutants.jsonl

A mutant differs from the canonical solution in one place. Of each kind, each problem gives at most one, the first place where it
applies inside the solution:

comparison  a comparison gives way to its neighbour: < and <=, > and >=, == and !=, `in` and `not in`, `is` and `is not`
constant    an integer is greater by one
variable    a `return` of a variable, or an expression that begins with one, returns another variable of the function
"""
import ast
import copy
import gzip
import json
import sys

NEIGHBOURS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def in_order(function):
    """The nodes of a function's body as they stand in the text."""
    nodes = [node for part in function.body for node in ast.walk(part) if hasattr(node, "lineno")]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def flip_comparison(function):
    for node in in_order(function):
        if isinstance(node, ast.Compare):
            node.ops[0] = NEIGHBOURS[type(node.ops[0])]()
            return True
    return False


def move_constant(function):
    for node in in_order(function):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += 1
            return True
    return False


def return_another(function):
    names = [argument.arg for argument in function.args.args]
    for node in in_order(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in names:
            names.append(node.id)
    for node in in_order(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        for part in ast.walk(node.value):
            if isinstance(part, ast.Name) and part.id in names:
                others = [name for name in names if name != part.id]
                if others:
                    part.id = others[0]
                    return True
    return False


KINDS = {"comparison": flip_comparison, "constant": move_constant, "variable": return_another}


def mutants(problem):
    source = problem["prompt"] + problem["canonical_solution"]
    tree = ast.parse(source)
    for kind, mutate in KINDS.items():
        changed = copy.deepcopy(tree)
        function = next(
            node
            for node in ast.walk(changed)
            if isinstance(node, ast.FunctionDef) and node.name == problem["entry_point"]
        )
        docstring = ast.get_docstring(function, clean=False)
        if docstring is not None:
            function.body = function.body[1:]
        if mutate(function):
            yield kind, ast.unparse(ast.fix_missing_locations(changed)) + "\n"


def row(problem, name, completion):
    tests = {key: problem[key] for key in ("test", "entry_point", "prompt")}
    return json.dumps({"id": name, "answer": json.dumps(tests), "completion": completion}) + "\n"


def main():
    source, canonical, mutated = sys.argv[1:]
    with gzip.open(source, "rt") as lines:
        problems = [json.loads(line) for line in lines]
    with open(canonical, "w") as out:
        for problem in problems:
            out.write(row(problem, problem["task_id"], problem["canonical_solution"]))
    with open(mutated, "w") as out:
        for problem in problems:
            for kind, completion in mutants(problem):
                out.write(row(problem, problem["task_id"] + "/" + kind, completion))


if __name__ == "__main__":
    main()
