"""Templates: everything escaped, a name that is missing is an error, components at hand as `ui`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader, StrictUndefined
from jinja2.bccache import Bucket, BytecodeCache

from onceward.web import charts, graph, jsonview, references, timeline, words
from onceward.web.sections import Section


class Components:
    """`ui.chip("done")` is the macro `chip` of components/chip.html."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._known: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._known:
            module = self._environment.get_template(f"components/{name}.html").module
            self._known[name] = getattr(module, name)
        return self._known[name]


class Compiled(BytecodeCache):
    """Templates as they were compiled, for every environment of this process; one that has changed is compiled anew."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if (known := self._known.get(bucket.key)) is not None:
            bucket.bytecode_from_string(known)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._known[bucket.key] = bucket.bytecode_to_string()


COMPILED = Compiled()


def make(sections: Sequence[Section] = ()) -> Environment:
    ours = PackageLoader("onceward.web", "templates")
    theirs = {section.name: FileSystemLoader(section.templates) for section in sections if section.templates}
    environment = Environment(
        loader=ChoiceLoader([ours, PrefixLoader(theirs)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=COMPILED,
    )
    environment.filters.update(
        number=words.number,
        span=words.span,
        count=words.count,
        exact=words.exact,
        iso=words.iso,
        short_id=words.short_id,
        ago=words.ago,
        slot=words.slot,
        compact=words.compact,
        facts=words.facts,
        per=words.per,
        measure=words.measure,
        size=words.size,
        linked=references.linked,
    )
    environment.globals.update(
        ui=Components(environment),
        charts=charts,
        jsonview=jsonview,
        timeline=timeline,
        graph=graph,
        counted=words.counted,
        asset=asset,
    )
    return environment


@cache
def asset(name: str) -> str:
    """The address of a file of ours, which changes when the file does: browsers may keep it for ever."""
    content = resources.files("onceward.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"
