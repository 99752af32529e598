"""Holds the candidate's program and calls it. It knows what to call, and nothing of what is expected."""

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


def serve():
    source, say = open_channel()
    dumps, loads, leave = json.dumps, json.loads, os._exit
    setup = loads(source.readline())
    nonce = setup["nonce"]
    random.seed(0)
    sys.setrecursionlimit(50_000)
    scope = load("candidate")
    failure = None
    try:
        if setup["prelude"]:
            exec(PRELUDE, scope)
        exec(compile(setup["code"], "<candidate>", "exec", dont_inherit=True), scope)
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
