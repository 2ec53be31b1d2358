"""Keys of the settings with type, default and meaning, read from the types.

The reference page and `chainfolio init` use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import msgspec
import msgspec.inspect as inspected

from chainfolio.kinds import kind_of
from chainfolio.settings import Settings

CHAIN = "chains.KEY"
NAMES: dict[type, str] = {
    inspected.StrType: "text",
    inspected.IntType: "number",
    inspected.BoolType: "true or false",
    inspected.ListType: "list of texts",
    inspected.DictType: "table of texts",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its section (empty: none), kind of value, default as TOML, and meaning."""

    section: str
    name: str
    kind: str
    default: str
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable of the key."""
        path = [*self.section.split("."), self.name] if self.section else [self.name]
        return "CHAINFOLIO_" + ("__" if len(path) > 2 else "_").join(path).upper()


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its keys; the first has no name. `kind`: the kind of chain that adds these keys."""

    name: str
    meaning: str
    keys: tuple[Key, ...]
    kind: str = ""


def sections(kinds: Iterable[str] = ()) -> tuple[Section, ...]:
    """Return all sections: first the keys outside of sections, then sections in the order of the types.

    The keys of `kinds` of chain follow those that all chains share.
    """
    top = inspected.type_info(Settings)
    assert isinstance(top, inspected.StructType)
    plain: list[Key] = []
    described: list[Section] = []
    for field in top.fields:
        kind, meaning = _bare(field.type)
        if isinstance(kind, inspected.StructType):
            described.append(Section(field.name, meaning or _first(kind), tuple(_keys(field.name, kind))))
        elif isinstance(kind, inspected.DictType) and isinstance(kind.value_type, inspected.StructType):
            shared = tuple(_keys(CHAIN, kind.value_type))
            described.append(Section(CHAIN, _first(kind.value_type), shared))
            described += [_of_kind(name, shared) for name in sorted(kinds)]
        else:
            plain.append(_key("", field))
    return (Section("", _first(top), tuple(plain)), *described)


def _of_kind(name: str, shared: Collection[Key]) -> Section:
    """Return the keys that a kind of chain adds, or defines differently from the shared ones."""
    struct = inspected.type_info(kind_of(name).settings)
    assert isinstance(struct, inspected.StructType)
    return Section(CHAIN, _first(struct), tuple(each for each in _keys(CHAIN, struct) if each not in shared), name)


def _keys(section: str, struct: inspected.StructType) -> Iterator[Key]:
    return (_key(section, field) for field in struct.fields)


def _key(section: str, field: inspected.Field) -> Key:
    kind, meaning = _bare(field.type)
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return Key(section, field.name, NAMES[type(kind)], _toml(default), meaning)


def _bare(kind: inspected.Type) -> tuple[inspected.Type, str]:
    """Return a type without its description, and the description."""
    if isinstance(kind, inspected.Metadata):
        return kind.type, str((kind.extra_json_schema or {}).get("description", ""))
    return kind, ""


def _first(struct: inspected.StructType) -> str:
    """Return the first paragraph of a type's docstring."""
    return " ".join((struct.cls.__doc__ or "").partition("\n\n")[0].split())


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return msgspec.json.encode(value).decode()  # texts, numbers and empty values are the same in TOML
