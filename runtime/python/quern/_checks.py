# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that are no arrays, for all packages: each error names the argument and the
rule."""

import operator
import os
import re

GROUPS = 1024  # QUERN_MAX_GROUPS
LAYERS = 2**31 - 1  # the largest number of a queue's layer


def integer(name, value, least=None, most=None):
    """An integer in a range as int: also numpy's, or an array's without axes; no bool. While
    torch.compile traces, operator.index makes a symbolic one a constant, which lines need."""
    if type(value) is int and (least is None or value >= least) and (most is None or value <= most):
        return operator.index(value)
    rule = "an integer" + ("" if least is None else f" from {least}") + \
        ("" if most is None else f" to {most}") + " is expected"
    if "bool" in f"{type(value).__name__} {getattr(value, 'dtype', '')}" or \
            getattr(value, "shape", ()) != ():
        raise TypeError(f"{name} is {type(value).__name__}: {rule}")
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {type(value).__name__}: {rule}") from None
    if least is not None and value < least or most is not None and value > most:
        raise ValueError(f"{name} is {value}: {rule}")
    return value


def flag(name, value):
    """True or False, also numpy's, 1 or 0, as bool."""
    if value is True or value is False:
        return value
    if type(value).__name__ not in ("bool", "bool_") and not (type(value) is int and
                                                              value in (0, 1)):
        raise TypeError(f"{name} is {value if type(value) is int else type(value).__name__}: "
                        "True or False is expected")
    return bool(value)


def number(name, value, rule="a number"):
    """A value as float; no NaN, no text, and no array with axes or without values."""
    found = value
    if type(value) is not float:
        try:
            if isinstance(value, (str, bytes, bytearray)):
                raise TypeError
            found = float(value)
        except OverflowError:
            raise ValueError(f"{name} exceeds the range of float") from None
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{name} is {type(value).__name__}: {rule} is expected") from None
    if found != found:
        raise ValueError(f"{name} is nan: {rule} is expected")
    return found


def word(name, value, known):
    """One of two words or more."""
    if value not in known:
        *others, last = map(repr, known)
        raise ValueError(f"{name} is {value!r}: {', '.join(others)} or {last} is expected")


def recipe(value):
    """A name, which lines can have."""
    if not isinstance(value, str):
        raise TypeError(f"recipe is {type(value).__name__}: a name such as 'bf16' is expected")
    if not re.fullmatch(r"[\w.-]+", value, re.ASCII):
        raise ValueError(f"recipe is {value!r}: a name such as 'bf16' is expected")


def line(value):
    """A line, which the library reads up to its first zero byte."""
    if not isinstance(value, str):
        raise TypeError(f"line is {type(value).__name__}: a line such as 'fprop bf16 g=8 m=256 "
                        "n=128 k=128' is expected")
    if "\0" in value or not value.isascii():
        raise ValueError(f"line is {value!r}: ASCII without zero bytes is expected")


def path(name, value, rule="a path"):
    """Text, or a path as the system has it."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} is {type(value).__name__}: {rule} is expected")
    return os.fspath(value)
