"""Takes an executor's own method out of a file whose imports cannot be met here.

An engine's executor is made by a worker, from a model runner and a dozen settings; the method
that forces the length reads a handful of attributes. Here each configuration gets a bare object
with these attributes, and the method bound to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from specsim.adapters.kinds import BUFFER_METHODS, STEP_METHODS
from specsim.extract import bare_object, extract, extract_target
from specsim.loading.assignments import names_placeholder, read_assignments
from specsim.loading.failures import TargetError
from specsim.loading.importing import LoadedTarget, existing_file, is_file, split_spec

PLACEHOLDERS = ("gamma", "max_len", "simulate_acc_len", "simulate_acc_method")
"""What the values of attributes and names may stand for, in braces: ``{gamma}``."""


class ExtractedExecutor:
    """Makes bare objects with an extracted method: a factory, as executor targets are.

    Objects share one class as long as the values of module-level names are the same, as they
    would in the engine.

    Parameters
    ----------
    path
        A Python file.
    method
        ``Class.method``.
    attributes, namespace
        ``NAME=VALUE`` texts as `specsim.loading.assignments.read_assignments` takes them, with
        `PLACEHOLDERS`: attributes of the object, and values for module-level names.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        method: str,
        attributes: Sequence[str] = (),
        namespace: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.method = method
        self.attributes = tuple(attributes)
        self.namespace = tuple(namespace)
        self._named = [p for p in PLACEHOLDERS if any(names_placeholder(t, p) for t in namespace)]
        self._classes: dict[tuple[object, ...], type] = {}

    def __call__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> object:
        """Return an object of one configuration.

        Raises
        ------
        TargetError
            As `specsim.extract.extract`.
        """
        values = {
            "gamma": gamma,
            "max_len": gamma + 1,
            "simulate_acc_len": simulate_acc_len,
            "simulate_acc_method": simulate_acc_method,
        }
        attributes = read_assignments(self.attributes, values)
        names = tuple(values[placeholder] for placeholder in self._named)
        if names not in self._classes:
            namespace = read_assignments(self.namespace, values)
            bound = extract(self.path, self.method, attributes=attributes, namespace=namespace)
            owner = getattr(bound, "__self__", None)
            if owner is None:
                raise TargetError(f"{self.method} must be a method of an object, got {bound!r}")
            self._classes[names] = type(owner)
        return bare_object(self._classes[names], attributes)


def extract_any(
    spec: str, kind: str | None, *, attributes: Sequence[str] = (), namespace: Sequence[str] = ()
) -> tuple[LoadedTarget, tuple[str, ...]]:
    """Take a target of any kind out of its file; see `specsim.extract.extract_target`.

    A method of a name in `specsim.adapters.kinds`, or of any name with the kind ``executor``,
    makes an `ExtractedExecutor`.

    Raises
    ------
    TargetError
        As `specsim.extract.extract_target`; and for an executor's method, if no attribute and no
        name takes the configured length.
    """
    location, attribute = split_spec(spec)
    cls, _, method = attribute.rpartition(".")
    is_executor = kind == "executor" or (
        kind is None and method in (*BUFFER_METHODS, *STEP_METHODS)
    )
    if not (is_executor and cls and is_file(location)):
        placed = [
            text
            for text in (*attributes, *namespace)
            if any(names_placeholder(text, placeholder) for placeholder in PLACEHOLDERS)
        ]
        if placed:
            raise TargetError(
                f"{placed[0]} stands for a value of an executor's configuration: name a method, "
                f"path/to/file.py:Class.method, and pass --kind executor, got {spec!r}"
            )
        return extract_target(spec, attributes=attributes, namespace=namespace)
    texts = [*attributes, *namespace]
    if not any(names_placeholder(text, "simulate_acc_len") for text in texts):
        raise TargetError(
            f"{attribute} must read the configured length from somewhere: pass --attribute "
            "NAME={simulate_acc_len} or --namespace NAME={simulate_acc_len}, and likewise for "
            "{gamma} or {max_len}, and {simulate_acc_method}"
        )
    path = str(existing_file(location))
    factory = ExtractedExecutor(path, attribute, attributes, namespace)
    factory(7, 4.7, "match-expected")
    name = cls.rpartition(".")[2]
    arguments = [repr(path), repr(attribute), repr(factory.attributes), repr(factory.namespace)]
    line = (
        "from specsim.extract_executor import ExtractedExecutor\n"
        f"{name} = ExtractedExecutor({', '.join(arguments)})"
    )
    return LoadedTarget(spec, name, factory, line), ()
