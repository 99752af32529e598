"""What the processes of a test say to each other: a line a message, Python's values as JSON with tags.

JSON's own kinds stand for themselves. Everything else is an object with one key: `i` an integer of any size in
hexadecimal, `c` a complex number, `b` bytes, `y` a bytearray, `t` a tuple, `s` a set, `z` a frozenset, `r` a range,
`d` a dict as a list of pairs.
"""
import io
import os
import sys
import types

MAX_DEPTH = 100
MAX_NODES = 1_000_000


class Unencodable(Exception):
    """A value of a type that has no encoding."""


class TooLarge(Exception):
    """A value that is too deep, or holds too much; also one that holds itself."""


def encode(value):
    left = MAX_NODES

    def walk(value, depth):
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise TooLarge("the value is too large or too deep")
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        # Subclasses lose what they add: `==` of a plain value cannot be overridden.
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, int):
            plain = int.__index__(value)
            return plain if -(2**63) < plain < 2**63 else {"i": hex(plain)}
        if issubclass(kind, float):
            return float.__float__(value)
        if issubclass(kind, list):
            return [walk(item, depth + 1) for item in list.__iter__(value)]
        if issubclass(kind, tuple):
            return {"t": [walk(item, depth + 1) for item in tuple.__iter__(value)]}
        if issubclass(kind, dict):
            pairs = dict.items(value)
            return {"d": [[walk(key, depth + 1), walk(item, depth + 1)] for key, item in pairs]}
        if issubclass(kind, set):
            return {"s": [walk(item, depth + 1) for item in set.__iter__(value)]}
        if issubclass(kind, frozenset):
            return {"z": [walk(item, depth + 1) for item in frozenset.__iter__(value)]}
        if kind is range:
            return {"r": [walk(part, depth + 1) for part in (value.start, value.stop, value.step)]}
        if issubclass(kind, complex):
            return {"c": [complex.__pos__(value).real, complex.__pos__(value).imag]}
        if issubclass(kind, bytes):
            return {"b": bytes.hex(value)}
        if issubclass(kind, bytearray):
            return {"y": bytearray.hex(value)}
        raise Unencodable("a value of type " + str(kind.__name__)[:80])

    return walk(value, 0)


def decode(value):
    if type(value) is list:
        return [decode(item) for item in value]
    if type(value) is dict:
        ((tag, body),) = value.items()
        return DECODERS[tag](body)
    return value


DECODERS = {
    "i": lambda body: int(body, 16),
    "c": lambda body: complex(body[0], body[1]),
    "b": lambda body: bytes.fromhex(body),
    "y": lambda body: bytearray.fromhex(body),
    "t": lambda body: tuple(decode(item) for item in body),
    "s": lambda body: {decode(item) for item in body},
    "z": lambda body: frozenset(decode(item) for item in body),
    "r": lambda body: range(*(decode(item) for item in body)),
    "d": lambda body: {decode(key): decode(item) for key, item in body},
}


class DeadEnd(io.TextIOBase):
    """Swallows what is written."""

    def writable(self):
        return True

    def write(self, text):
        return len(text)


def open_channel():
    """Takes standard input and output for itself: what is loaded later reads nothing and writes to nowhere.

    Returns the file to read messages from and the function that sends one.
    """
    try:
        source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    except (AttributeError, OSError):  # WASI cannot duplicate a descriptor
        # Detached, or they would be closed together with the text files in front of them.
        source, sink = sys.stdin.detach(), sys.stdout.detach()
        sys.stdin, sys.stdout = io.StringIO(), DeadEnd()
        sys.__stdin__, sys.__stdout__ = sys.stdin, sys.stdout
    else:
        reader, writer = os.pipe()
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
        except OSError:  # a sandbox need not have one
            os.dup2(2, 1)
        else:
            os.dup2(nowhere, 1)
            os.close(nowhere)
    write, flush = sink.write, sink.flush

    def say(line):
        # The line break in front parts the message from anything that was written behind our back.
        write(b"\n" + line.encode("ascii") + b"\n")
        flush()

    return source, say


def load(name):
    """An empty module, so that classes find the module that they name."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module.__dict__


def describe(error):
    """Type and message of an exception; the message may be anything, its `__str__` too."""
    try:
        message = str(error)[:500]
    except BaseException:
        message = ""
    return [type(error).__name__[:80], message]
