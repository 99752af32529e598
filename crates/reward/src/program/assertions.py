"""Holds the tests, which may be trusted, and never the candidate's program: what they call is elsewhere."""
import ast
import builtins
import json
import random


class CandidateError(Exception):
    """What the candidate raised, where that is no exception of Python's own."""


# Raised inside `map` or `next`, these would end a loop of the tests early, which then finds nothing wrong.
NEVER_RAISED = (StopIteration, StopAsyncIteration)


def as_exception(name, message):
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, NEVER_RAISED):
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError and its like want more
            pass
    return CandidateError(str(name) + ": " + str(message))


def put_back(target, new):
    """Gives a container of the tests the content that the candidate left in its copy."""
    if type(target) is not type(new):
        raise CandidateError("an argument came back as something else")
    if type(target) in (list, bytearray):
        target[:] = new
    elif type(target) in (dict, set):
        target.clear()
        target.update(new)


def names_used(text):
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def run():
    source, say = open_channel()
    dumps, loads, leave = json.dumps, json.loads, os._exit
    setup = loads(source.readline())
    nonce = setup["nonce"]

    def tell(kind, body):
        say(nonce + " " + kind + " " + dumps(body))

    def call(name, given, named):
        try:
            body = {
                "f": name,
                "a": [encode(item) for item in given],
                "k": {key: encode(item) for key, item in named.items()},
            }
        except Unencodable as error:
            tell("unsupported", str(error))
            leave(0)
        tell("call", body)
        line = source.readline()
        if not line:
            leave(0)
        try:
            reply = loads(line)
            if "e" in reply:
                kind, message = reply["e"]
                failure = as_exception(kind, message)
            else:
                failure = None
                value = decode(reply["v"])
                if len(reply["a"]) != len(given):
                    raise CandidateError("another number of arguments came back")
                for target, new in zip(given, reply["a"]):
                    if new is not None:
                        put_back(target, decode(new))
                for key, new in reply["k"].items():
                    if new is not None:
                        put_back(named[key], decode(new))
        except Exception as error:
            raise CandidateError("the reply cannot be read: " + str(error)) from None
        if failure is not None:
            raise failure
        return value

    class Proxy:
        def __init__(self, name):
            self.__name__ = name

        def __call__(self, *given, **named):
            return call(self.__name__, given, named)

        def __getattr__(self, attribute):
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            tell("broken", "name '" + self.__name__ + "' is not defined")
            leave(0)

    random.seed(0)
    scope = load("tests")
    try:
        tests = [compile(text, "<test>", "exec") for text in setup["tests"]]
        wanted = set().union(*(names_used(text) for text in setup["setup"] + setup["tests"]))
        entry = setup["entry_point"]
        for name in wanted - set(dir(builtins)):
            scope[name] = Proxy(name)
        for text in setup["setup"]:
            exec(compile(text, "<setup>", "exec"), scope)
        if entry is not None:
            scope[entry] = Proxy(entry)
    except BaseException as error:
        tell("broken", ": ".join(describe(error)))
        leave(0)
    for test in tests:
        try:
            exec(test, scope)
        except AssertionError:
            tell("result", "failed")
        except BaseException:
            tell("result", "error")
        else:
            tell("result", "passed")
    tell("done", None)
    leave(0)


run()
