"""Damage to replies of a node: to values, to the objects that hold them, to batches, and to bytes.

Each kind of damage is a named function. It does not change its argument; it returns `SAME` if it does not apply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

JsonPath = tuple[Any, ...]  # keys and positions from the outside to the inside of a JSON value
Change = Callable[[random.Random, Any], object]  # returns the damaged value, or SAME
SAME: Final = object()
ODD: Final[tuple[Any, ...]] = (
    None,
    0,
    -1,
    1.5,
    True,
    False,
    "",
    "0x",
    "0x0",
    "0x00",
    "0X1",
    "-0x1",
    "0x" + "f" * 15,
    "0x" + "f" * 64,
    "0x" + "f" * 65,
    "0x7fffffff",
    "0x80000000",
    "0xffffffff",
    "0x7fffffffffffffff",
    "0xffffffffffffffff",
    "0x" + "0" * 40,
    "0x" + "0" * 64,
    "0x" + "g" * 40,
    "0x" + "ab" * 5000,
    "zz",
    "\0",
    "\u202e",
    "\u0663",
    "\uff10x1",
    "latest",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    10**30,
    "9" * 5000,
    Raw(b"1e999"),
    Raw(b"NaN"),
    Raw(b"-0"),
    Raw(b"01"),
    Raw(b'"\\ud800"'),
    Raw(b'"\xff"'),
    Raw(b'"\\x"'),
    Raw(b""),
    Raw(b"[" * 3000 + b"]" * 3000),
)
WORDS: Final = (
    (-32005, "query returned more than 10000 results"),
    (-32005, "rate limit exceeded"),
    (-32000, "header not found"),
    (-32602, "block range is limited to 1 blocks"),
    (-32000, "missing trie node"),
    (-32601, "method not found"),
    (-32600, "batch too large"),
    (3, "execution reverted"),
    (-32603, "internal server error"),
    (0, ""),
    (-32000, "limited to a 0 - 0 blocks range"),
    (-32000, "try again later"),
    (-32602, "invalid params"),
)
STATUSES: Final = (201, 204, 301, 400, 401, 403, 404, 413, 429, 500, 502, 503, 504)


# --- the value of a field -------------------------------------------------------------------------------------------


def _hex(change: Callable[[random.Random, str], str]) -> Change:
    def changed(chance: random.Random, value: object) -> object:
        return change(chance, value) if isinstance(value, str) and len(value) > 2 else SAME

    return changed


def _number(change: Callable[[int], object]) -> Change:
    def changed(chance: random.Random, value: object) -> object:
        if not isinstance(value, str) or not value.startswith("0x") or not 2 < len(value) < 67:
            return SAME
        return change(int(value, 16))

    return changed


def _list(change: Callable[[random.Random, list[Any]], list[Any]]) -> Change:
    def changed(chance: random.Random, value: object) -> object:
        return change(chance, value) if isinstance(value, list) and value else SAME

    return changed


def _other_digit(chance: random.Random, text: str) -> str:
    at = chance.randrange(2, len(text))
    return text[:at] + chance.choice("0123456789abcdef".replace(text[at].lower(), "")) + text[at + 1 :]


def _blank(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(" \t\n_-+.") + text[at:]


def _changed_word(chance: random.Random, text: str) -> str:
    """Delete, double or zero one 32-byte word of some data."""
    at = 2 + 64 * chance.randrange(max(1, len(text) // 64))
    word = text[at : at + 64]
    return text[:at] + chance.choice(("", word * 2, "0" * len(word))) + text[at + 64 :]


VALUES: Final[Mapping[str, Change]] = {
    "odd": lambda chance, value: chance.choice(ODD),
    "wrapped": lambda chance, value: [value],
    "as text": lambda chance, value: SAME if isinstance(value, str) else msgspec.json.encode(value).decode(),
    "in an object": lambda chance, value: {"value": value},
    "another digit": _hex(_other_digit),
    "shorter": _hex(lambda chance, text: text[:-1]),
    "a byte shorter": _hex(lambda chance, text: text[:-2]),
    "longer": _hex(lambda chance, text: text + chance.choice("0123456789abcdef")),
    "a byte longer": _hex(lambda chance, text: text + "00"),
    "upper case": _hex(lambda chance, text: text.upper()),
    "checksum case": _hex(lambda chance, text: text[:2] + "".join(chance.choice((c, c.upper())) for c in text[2:])),
    "all ones": _hex(lambda chance, text: "0x" + "f" * (len(text) - 2)),
    "all zeros": _hex(lambda chance, text: "0x" + "0" * (len(text) - 2)),
    "blank inside": _hex(_blank),
    "without prefix": _hex(lambda chance, text: text[2:]),
    "prefix twice": _hex(lambda chance, text: "0x" + text),
    "leading zero": _hex(lambda chance, text: "0x0" + text[2:]),
    "leading zero gone": _hex(lambda chance, text: "0x" + text[2:].lstrip("0")),
    "halved": _hex(lambda chance, text: text[: len(text) // 2]),
    "repeated": _hex(lambda chance, text: text + text[2:]),
    "backwards": _hex(lambda chance, text: "0x" + text[:1:-1]),
    "a word": _hex(_changed_word),
    "one more": _number(lambda number: hex(number + 1)),
    "one less": _number(lambda number: hex(number - 1)),
    "double": _number(lambda number: hex(number * 2)),
    "a bit": _number(lambda number: hex(number ^ (1 << (number % 7)))),
    "number": _number(lambda number: number),
    "decimal": _number(str),
    "list emptied": _list(lambda chance, rows: []),
    "list backwards": _list(lambda chance, rows: rows[::-1]),
    "list shuffled": _list(lambda chance, rows: chance.sample(rows, len(rows))),
    "list cut": _list(lambda chance, rows: rows[: chance.randrange(len(rows))]),
    "list without its first": _list(lambda chance, rows: rows[1:]),
    "list repeated": _list(lambda chance, rows: rows + rows),
    "list with another": _list(lambda chance, rows: [*rows, chance.choice(ODD)]),
}


# --- the object that holds it ---------------------------------------------------------------------------------------


def _dropped(chance: random.Random, holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return {name: value for name, value in holder.items() if name != key}
    return holder[:key] + holder[key + 1 :]


def _doubled(chance: random.Random, holder: Any, key: Any) -> Any:
    """Double a row of a list, or a key of an object with a value that may be another one."""
    if isinstance(holder, list):
        at = chance.randrange(len(holder) + 1)
        return [*holder[:at], holder[key], *holder[at:]]
    duplicate = msgspec.json.encode({key: chance.choice((holder[key], *ODD))})
    true, pair = msgspec.json.encode(holder), duplicate[1:-1]
    return Raw(b"{" + pair + b"," + true[1:] if chance.random() < 0.5 else true[:-1] + b"," + pair + b"}")


def _renamed(chance: random.Random, holder: Any, key: Any) -> Any:
    if not isinstance(holder, dict):
        return SAME
    new_name = chance.choice((key.upper(), key + " ", key[:-1], "_" + key))
    return {new_name if name == key else name: value for name, value in holder.items()}


def _exchanged(chance: random.Random, holder: Any, key: Any) -> Any:
    """Exchange two fields of an object or two rows of a list; SAME if one is chosen twice."""
    target = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if target == key:
        return SAME
    changed = dict(holder) if isinstance(holder, dict) else list(holder)
    changed[key], changed[target] = holder[target], holder[key]
    return changed


def _sibling(chance: random.Random, holder: object, key: object) -> object:
    """Add or replace a field with an odd value; SAME for a list."""
    name = chance.choice(("removed", "type", "to", "status", "chainId", "x"))
    return {**holder, name: chance.choice(ODD)} if isinstance(holder, dict) else SAME


PLACES: Final[Mapping[str, Callable[[random.Random, Any, Any], Any]]] = {
    "dropped": _dropped,
    "doubled": _doubled,
    "renamed": _renamed,
    "exchanged": _exchanged,
    "a field beside": _sibling,
}
KINDS: Final = (*VALUES, *PLACES, "of elsewhere")


def paths_of(value: object, at: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield the paths of all parts of a JSON value, in long lists of the first three and last two rows."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from paths_of(value[key], (*at, key))
    elif isinstance(value, list):
        for index in {*range(min(3, len(value))), *range(max(0, len(value) - 2), len(value))}:
            yield from paths_of(value[index], (*at, index))


def pattern(method: str, at: JsonPath) -> str:
    """Return the name of a field: its method and path, with `*` for indexes of lists."""
    return f"{method} {'.'.join('*' if isinstance(step, int) else step for step in at)}"


def damaged(chance: random.Random, kind: str, value: object, at: JsonPath, elsewhere: object = SAME) -> Any:
    """Return a value with damage of a kind at a path, SAME if the kind does not apply.

    `elsewhere` is the value of the same field in another reply or row.
    """
    if kind == "of elsewhere":
        return SAME if elsewhere is SAME else rebuilt(value, at, lambda _: elsewhere)
    if kind in VALUES:
        return rebuilt(value, at, lambda old: VALUES[kind](chance, old))
    return rebuilt(value, at[:-1], lambda holder: PLACES[kind](chance, holder, at[-1])) if at else SAME


def rebuilt(value: Any, at: JsonPath, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a value in which `change` is applied to the part at a path; other parts are shared.

    Returns SAME if `change` does.

    Raises:
        KeyError, IndexError, TypeError: The value does not have the path.
    """
    if not at:
        return change(value)
    inner = rebuilt(value[at[0]], at[1:], change)
    if inner is SAME:
        return SAME
    outer = dict(value) if isinstance(value, dict) else list(value)
    outer[at[0]] = inner
    return outer


# --- a batch --------------------------------------------------------------------------------------------------------

Reply = dict[str, Any]  # the values are undecoded


def with_results(requests: Any, replies: Any, change: Callable[[str, list[Any], Any], Any]) -> Any:
    """Return JSON-RPC replies, one or a batch, after `change(method, parameters, result)` of each result.

    Replies with errors stay.
    """
    if isinstance(requests, list):
        by_id = {request["id"]: request for request in requests}
        return [with_results(by_id[reply["id"]], reply, change) for reply in replies]
    if "result" not in replies:
        return replies
    return {**replies, "result": change(requests["method"], requests["params"], replies["result"])}


def _refusal(chance: random.Random) -> Raw:
    code, message = chance.choice(WORDS)
    data = chance.choice((None, "0x", {"try": [1]}, message))
    return Raw(msgspec.json.encode({"code": code, "message": message, "data": data}))


def _each(change: Callable[[random.Random, Reply], Reply]) -> Callable[[random.Random, list[Reply]], object]:
    def changed(chance: random.Random, replies: list[Reply]) -> object:
        at = chance.randrange(len(replies))
        return [*replies[:at], change(chance, dict(replies[at])), *replies[at + 1 :]]

    return changed


def _without(reply: Reply, *names: str) -> Reply:
    return {name: value for name, value in reply.items() if name not in names}


def _results_exchanged(chance: random.Random, replies: list[Reply]) -> object:
    if len(replies) < 2:
        return SAME
    first, second = chance.sample(range(len(replies)), 2)
    changed = list(replies)
    changed[first] = {**replies[second], "id": replies[first]["id"]}
    changed[second] = {**replies[first], "id": replies[second]["id"]}
    return changed


BATCHES: Final[Mapping[str, Callable[[random.Random, list[Reply]], object]]] = {
    "reordered": lambda chance, replies: chance.sample(replies, len(replies)) if len(replies) > 1 else SAME,
    "one missing": lambda chance, replies: [*replies[: (at := chance.randrange(len(replies)))], *replies[at + 1 :]],
    "cut": lambda chance, replies: replies[: chance.randrange(len(replies))],
    "one twice": lambda chance, replies: [*replies, chance.choice(replies)],
    "one more": lambda chance, replies: [*replies, {**replies[-1], "id": len(replies) + 1}],
    "results exchanged": _results_exchanged,
    "all of the first": lambda chance, replies: [{**replies[0], "id": each["id"]} for each in replies],
    "ids from nought": lambda chance, replies: [{**each, "id": each["id"] - 1} for each in replies],
    "id of another": _each(lambda chance, reply: {**reply, "id": chance.randint(-1, 30)}),
    "odd id": _each(lambda chance, reply: {**reply, "id": chance.choice((*ODD, str(reply["id"]), float(reply["id"])))}),
    "no id": _each(lambda chance, reply: _without(reply, "id")),
    "no result": _each(lambda chance, reply: _without(reply, "result")),
    "null": _each(lambda chance, reply: {**reply, "result": None}),
    "refused": _each(lambda chance, reply: {**_without(reply, "result"), "error": _refusal(chance)}),
    "result and refusal": _each(lambda chance, reply: {**reply, "error": _refusal(chance)}),
    "result and odd error": _each(lambda chance, reply: {**reply, "error": chance.choice(ODD)}),
    "odd version": _each(lambda chance, reply: {**reply, "jsonrpc": chance.choice(ODD)}),
    "a field beside": _each(lambda chance, reply: {**reply, chance.choice(("params", "x")): chance.choice(ODD)}),
    "all refused": lambda chance, replies: [
        {"jsonrpc": "2.0", "id": each["id"], "error": _refusal(chance)} for each in replies
    ],
    "refused as a whole": lambda chance, replies: {"jsonrpc": "2.0", "id": None, "error": _refusal(chance)},
    "odd reply": lambda chance, replies: [*replies[:-1], chance.choice(ODD)],
    "one for all": lambda chance, replies: replies[0],
    "list for one": lambda chance, replies: [replies],
}


# --- the bytes ------------------------------------------------------------------------------------------------------


def _flipped(chance: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _replaced(chance: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(3):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _slice(chance: random.Random, body: bytes) -> tuple[int, int]:
    first = chance.randrange(len(body))
    return first, min(len(body), first + chance.randint(1, 200))


def _slice_gone(chance: random.Random, body: bytes) -> bytes:
    first, last = _slice(chance, body)
    return body[:first] + body[last:]


def _slice_twice(chance: random.Random, body: bytes) -> bytes:
    first, last = _slice(chance, body)
    return body[:last] + body[first:]


def _slice_moved(chance: random.Random, body: bytes) -> bytes:
    first, last = _slice(chance, body)
    remainder = body[:first] + body[last:]
    at = chance.randrange(len(remainder) + 1)
    return remainder[:at] + body[first:last] + remainder[at:]


BYTES: Final[Mapping[str, Callable[[random.Random, bytes], bytes]]] = {
    "bits flipped": _flipped,
    "bytes replaced": _replaced,
    "cut": lambda chance, body: body[: chance.randrange(len(body))],
    "cut and closed": lambda chance, body: body[: chance.randrange(len(body))] + body[-1:],
    "begins later": lambda chance, body: body[chance.randrange(len(body)) :],
    "slice gone": _slice_gone,
    "slice twice": _slice_twice,
    "slice elsewhere": _slice_moved,
    "twice": lambda chance, body: body + body,
    "more behind it": lambda chance, body: (
        body + chance.choice((b"\0", b"}", b"]", b"{}", b"\r\n0\r\n\r\n", b"<html>"))
    ),
    "blanks around": lambda chance, body: b"\r\n \t" + body + b" \n",
    "blanks inside": lambda chance, body: body.replace(b'":', b'" : ').replace(b',"', b' ,\n"'),
    "byte order mark": lambda chance, body: b"\xef\xbb\xbf" + body,
    "UTF-16": lambda chance, body: body.decode("latin-1").encode("utf-16"),
    "nothing": lambda chance, body: b"",
    "a web page": lambda chance, body: b"<!doctype html><title>502</title>",
    "null": lambda chance, body: b"null",
    "half of it in upper case": lambda chance, body: body[: len(body) // 2] + body[len(body) // 2 :].upper(),
}
