"""Holds the candidate's program and calls it. It knows what to call, and nothing of what is expected."""

import builtins

PRELUDE = """
import bisect, collections, copy, functools, heapq, itertools, math, operator, os, random, re, string, sys, time
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import itemgetter
from typing import *
from builtins import pow
"""


def changed(before, after):
    """The encoding of a container that the program changed in place; None if it did not, or cannot be sent."""
    if type(after) not in (list, dict, set, bytearray):
        return None
    try:
        encoded = encode(after)
    except (Unencodable, TooLarge, RecursionError):
        return None
    return encoded if encoded != before else None


# To import `json`, `random` and the prelude takes longer than to start Python. A plain program, of Python's own names only, needs none
# of them, and no import can tell that they are missing, as it has none.

NAMES_OF_JSON = {"true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")}
LONGEST_EXPRESSION = 1 << 16


def read_setup(line):
    """Reads JSON whose strings are written so that it is an expression of Python too, but for names."""
    if len(line) <= LONGEST_EXPRESSION:
        try:
            return eval(line.decode(), {"__builtins__": {}} | NAMES_OF_JSON)
        except (SyntaxError, MemoryError, RecursionError):  # too many brackets in each other
            pass
    from json import loads

    return loads(line)


def names_of(code):
    names = set(code.co_names)
    for const in code.co_consts:
        if type(const) is types.CodeType:
            names |= names_of(const)
    return names


def is_plain(code):
    """Whether every name is Python's or that of a function of the program, and none of those that look others up."""
    functions = {const.co_name for const in code.co_consts if type(const) is types.CodeType}
    lookups = {"__import__", "compile", "eval", "exec", "globals", "locals", "vars"}
    return names_of(code) <= (set(dir(builtins)) - lookups) | functions


def plain_dumps(reply):
    value = reply.get("v")
    if len(reply) == 1 and type(value) is int:
        return '{"v": ' + int.__repr__(value) + "}"
    from json import dumps

    return dumps(reply)


def serve():
    source, say = open_channel()
    leave = os._exit
    setup = read_setup(source.readline())
    nonce, dumps = setup["nonce"], plain_dumps
    sys.setrecursionlimit(50_000)
    scope = load("candidate")
    failure = None
    try:
        code = compile(setup["code"], "<candidate>", "exec", dont_inherit=True)
        if not (setup["prelude"] and is_plain(code)):
            import random
            from json import dumps, loads

            random.seed(0)
            if setup["prelude"]:
                exec(PRELUDE, scope)
        exec(code, scope)
    except BaseException as error:
        failure = describe(error)

    def find(name):
        solution = scope.get("Solution")
        if setup["prelude"] and isinstance(solution, type) and hasattr(solution, name):
            return getattr(solution(), name)
        if name in scope:
            return scope[name]
        raise NameError("name '" + name + "' is not defined")

    def answer(call):
        if failure is not None:
            return {"e": failure}
        try:
            given = [decode(item) for item in call["a"]]
            named = {key: decode(item) for key, item in call["k"].items()}
            result = encode(find(call["f"])(*given, **named))
            reply = {"v": result}
            if setup["changes"]:
                reply["a"] = [changed(*pair) for pair in zip(call["a"], given)]
                reply["k"] = {key: changed(call["k"][key], named[key]) for key in named}
            return reply
        except BaseException as error:
            return {"e": describe(error)}

    def respond(number, call):
        reply = answer(call)
        try:
            text = dumps(reply)
        except BaseException as error:
            text = dumps({"e": describe(error)})
        say(nonce + " " + str(number) + " " + text)

    if setup["calls"] is not None:
        for number, call in enumerate(setup["calls"]):
            respond(number, call)
    else:
        for line in source:
            if line.strip():
                number, _, text = line.partition(b" ")
                respond(int(number), loads(text))
    # Not `sys.exit`: what the program left to run at the end must not.
    leave(0)


serve()
