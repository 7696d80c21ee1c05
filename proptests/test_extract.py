"""Taking one function out of a file whose imports cannot be met."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import specsim
from specsim.extract import extract, extract_target, read_assignments
from specsim.targets import Configuration, TargetError, TargetRaised, adapt, detect_kind

# Stands for an engine's file: nothing that it imports from its own engine exists here.
ENGINE = '''\
"""An engine's file."""
from __future__ import annotations

import math
import os.path
from typing import TYPE_CHECKING, Optional

import engine_not_there
from engine_not_there.kernels import accept as accept, jit
from engine_not_there.settings import DEFAULT_LEN
from .beside import near

if TYPE_CHECKING:
    from engine_not_there.types import Batch

SEEN = []
FLOOR = 1
OFFSET = FLOOR + 1
BROKEN = engine_not_there.lookup("x")
DERIVED = BROKEN * 2
TABLE = {}
TABLE["a"] = 3
POOL = []
for _i in range(3):
    POOL.append(_i)

try:
    import fast_not_there
except ImportError:
    fast_not_there = None

if engine_not_there.is_cuda():
    from engine_not_there.cuda import launch
else:
    launch = None

SEEN.append("the rest of the file ran")
raise RuntimeError("importing the whole file is not possible")


def plain(acc_len: Batch, method: Optional[Batch], max_len: engine_not_there.Int) -> Batch:
    length: engine_not_there.Int = math.floor(acc_len)
    return min(max(length, FLOOR), max_len)


def helper(x):
    return scaled(x) + OFFSET


def scaled(x):
    return 2 * x


def through_helpers(acc_len, method, max_len):
    return helper(acc_len)


def uses_tables(acc_len, method, max_len):
    return TABLE["a"] + len(POOL)


def uses_missing(acc_len, method, max_len):
    if method == "multinomial":
        return accept(acc_len)
    return 1


def uses_derived(acc_len, method, max_len):
    return DERIVED + 1


def uses_branch(acc_len, method, max_len):
    return launch(acc_len)


def uses_relative(acc_len, method, max_len):
    return near(acc_len)


def has_fallback(acc_len, method, max_len):
    return 7 if fast_not_there is None else 8


@jit
def decorated(acc_len, method, max_len):
    return 3


def twice(function):
    def run(*arguments):
        return 2 * function(*arguments)
    return run


@jit(static=True)
@twice
def decorated_both(acc_len, method, max_len):
    return 3


def with_defaults(acc_len, method="multinomial", max_len=DEFAULT_LEN, *, floor=FLOOR):
    return floor if max_len is None else max_len + floor


def late_import(acc_len, method, max_len):
    from engine_not_there.late import late
    if method == "multinomial":
        return late(acc_len)
    return 2


def late_import_handled(acc_len, method, max_len):
    try:
        import engine_not_there.late as late
    except ImportError:
        return 4
    return late


def recursive(acc_len, method, max_len):
    return 1 if acc_len <= 1 else 1 + recursive(acc_len - 1, method, max_len)


def raises(acc_len, method, max_len):
    raise ValueError("no")


def _counts():
    global COUNT
    COUNT = COUNT + 1
    return COUNT


COUNT = 10


def counting(acc_len, method, max_len):
    return _counts()


class Base:
    def inherited(self):
        return 100


class Executor(Base, engine_not_there.Worker, metaclass=engine_not_there.Meta):
    LIMIT = 5
    BROKEN = engine_not_there.lookup("y")
    other: engine_not_there.Int = engine_not_there.lookup("z")

    def __init__(self, worker):
        self.worker = engine_not_there.attach(worker)

    def draw(self, acc_len, method, max_len):
        return self._clamp(acc_len + self.gamma + self.inherited())

    def _clamp(self, x):
        return min(x, self.LIMIT * self.scale)

    @property
    def scale(self):
        return 100

    @scale.setter
    def scale(self, value):
        raise AttributeError

    @engine_not_there.traced
    def traced(self, acc_len, method, max_len):
        return self.gamma

    @staticmethod
    def fixed(acc_len, method, max_len):
        return Executor.LIMIT

    @classmethod
    def made(cls, acc_len, method, max_len):
        return cls.LIMIT + 1

    def unrelated(self):
        return accept(self)

    def optional(self, acc_len, method, max_len):
        return getattr(self, "cache", None) or (9 if hasattr(self, "gamma") else 8)

    def sets(self, acc_len, method, max_len):
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls

    def reads_broken(self, acc_len, method, max_len):
        return self.BROKEN.size

    def with_default(self, acc_len, method, max_len=LIMIT):
        return max_len
'''


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path_importer_cache", {})


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "pack" / "engine.py"
    path.parent.mkdir()
    (path.parent / "__init__.py").touch()
    path.write_text(ENGINE, encoding="utf-8")
    return path


def write(name: str, text: str) -> Path:
    path = Path.cwd() / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def call(function: Callable[..., object], acc_len: float = 4.7, method: str = "m") -> object:
    return function(acc_len, method, 8)


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(TargetError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_file_itself_cannot_be_imported(engine: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        exec(compile(ENGINE, str(engine), "exec"), {"__name__": "pack.engine"})


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("plain", 4),
        ("through_helpers", 2 * 4.7 + 2),
        ("uses_tables", 6),
        ("uses_missing", 1),
        ("has_fallback", 7),
        ("decorated", 3),
        ("decorated_both", 6),
        ("late_import", 2),
        ("late_import_handled", 4),
        ("recursive", 5),
        ("counting", 11),
        ("Executor.fixed", 5),
        ("Executor.made", 6),
        ("Executor.optional", 8),
        ("Executor.sets", 1),
    ],
)
def test_takes_what_the_function_needs(engine: Path, attribute: str, expected: object) -> None:
    assert call(extract(engine, attribute)) == expected


def test_nothing_else_of_the_file_is_executed(engine: Path) -> None:
    function = extract(engine, "through_helpers")
    names = function.__globals__
    assert {"helper", "scaled", "OFFSET", "FLOOR", "through_helpers"} <= set(names)
    assert not {"SEEN", "BROKEN", "plain", "Executor", "math"} & set(names)


def test_line_numbers_and_source_are_the_files(engine: Path) -> None:
    target = adapt(extract(engine, "raises"), "sampler")
    with pytest.raises(TargetRaised) as caught:
        target.draw_many(Configuration(4.7, "m", 8), 1)
    line = ENGINE[: ENGINE.index('raise ValueError("no")')].count("\n") + 1
    assert f'File "{engine}", line {line}, in raises' in caught.value.frames_text
    assert 'raise ValueError("no")' in caught.value.frames_text
    assert caught.value.frames_text.count('File "') == 1


def test_the_signature_is_kept(engine: Path) -> None:
    assert detect_kind(extract(engine, "plain")) == "sampler"
    assert detect_kind(extract(engine, "Executor.draw", attributes={"gamma": 1})) == "sampler"


@pytest.mark.parametrize(
    ("attribute", "name", "reason"),
    [
        ("uses_missing", "accept", "name accept comes from module engine_not_there.kernels"),
        ("late_import", "late", "name late comes from module engine_not_there.late"),
        ("uses_relative", "near", "name near comes from module .beside"),
        ("uses_derived", "DERIVED", "name engine_not_there comes from module engine_not_there"),
        ("uses_branch", "launch", "name engine_not_there comes from module engine_not_there"),
    ],
)
def test_missing_names_say_where_they_come_from(
    engine: Path, attribute: str, name: str, reason: str
) -> None:
    function = extract(engine, attribute)
    message = error_of(lambda: call(function, method="multinomial"))
    assert reason in message
    assert f"pass --namespace {name}=…" in message
    # The failing call is the caller's, not the target's: it is not wrapped.
    target = adapt(function, "sampler")
    assert reason in error_of(lambda: target.draw_many(Configuration(4.7, "multinomial", 8), 1))


@pytest.mark.parametrize(
    ("attribute", "namespace", "expected"),
    [
        ("uses_missing", {"accept": lambda x: 10 * x}, 47.0),
        ("late_import", {"late": lambda x: 10 * x}, 47.0),
        ("uses_relative", {"near": round}, 5),
        ("uses_derived", {"BROKEN": 20}, 41),
        ("uses_derived", {"DERIVED": 20}, 21),
        ("uses_branch", {"launch": round}, 5),
        ("plain", {"FLOOR": 6}, 6),
        ("counting", {"COUNT": 1}, 2),
    ],
)
def test_given_names_replace_the_files(
    engine: Path, attribute: str, namespace: dict[str, object], expected: object
) -> None:
    function = extract(engine, attribute, namespace=namespace)
    assert call(function, method="multinomial") == expected


@pytest.mark.parametrize(
    "use",
    [
        "X()",
        "X.attribute",
        "X[0]",
        "X + 1",
        "1 - X",
        "-X",
        "X == 1",
        "X < 1",
        "bool(X)",
        "len(X)",
        "list(X)",
        "1 in X",
        "float(X)",
        "int(X)",
        "range(X)",
        "{X: 1}",
        "isinstance(1, X)",
        "[0, 1][X]",
        "max(1, X)",
        "hasattr(X, 'size')",
    ],
)
def test_any_use_of_a_missing_name_is_refused(use: str) -> None:
    path = write("uses_x.py", f"from engine_not_there import X\ndef f(a, b, c): return {use}\n")
    assert "name X comes from module engine_not_there" in error_of(lambda: call(extract(path, "f")))


def test_a_missing_name_may_be_passed_on_and_printed() -> None:
    path = write(
        "passes.py",
        "from engine_not_there import X\ndef f(a, b, c): return repr(X), X is None, [X] and 1\n",
    )
    assert call(extract(path, "f")) == ("<missing X>", False, 1)


def test_decorators_that_cannot_be_had_are_left_out_with_a_warning(engine: Path) -> None:
    for attribute, text in (("decorated", "@jit"), ("decorated_both", "@jit(static=True)")):
        _, warnings = extract_target(f"{engine}:{attribute}")
        assert len(warnings) == 1
        assert f"decorator {text} of" in warnings[0]
        assert "engine_not_there.kernels" in warnings[0]
    assert extract_target(f"{engine}:plain")[1] == ()


def test_a_caching_decorator_stays() -> None:
    path = write(
        "caches.py",
        """
        import functools, random
        import engine_not_there

        @engine_not_there.traced
        @functools.lru_cache(maxsize=None)
        def f(acc_len, method, max_len):
            return random.random()
        """,
    )
    function = extract(path, "f")
    assert call(function) == call(function)


def test_defaults_stay_or_become_missing(engine: Path) -> None:
    function = extract(engine, "with_defaults")
    assert function(4.7, "m", 8) == 9
    assert function(4.7, "m", None) == 1
    message = error_of(lambda: function(4.7))
    assert "DEFAULT_LEN" in message
    assert extract(engine, "with_defaults", namespace={"DEFAULT_LEN": 3})(4.7) == 4


def test_a_default_that_cannot_be_computed_is_missing() -> None:
    path = write(
        "computes.py",
        "import engine_not_there\ndef f(a, b, c=engine_not_there.size * 2): return c + 1\n",
    )
    function = extract(path, "f")
    assert function(1, "m", 8) == 9
    assert "c = engine_not_there.size * 2 has no value here" in error_of(lambda: function(1, "m"))


# --- methods ---------------------------------------------------------------------------------


def test_methods_are_bound_to_a_bare_object_with_given_attributes(engine: Path) -> None:
    method = extract(engine, "Executor.draw", attributes={"gamma": 3})
    assert call(method, 1.0) == 104.0
    assert call(method, 1000.0) == 500
    bare = method.__self__  # type: ignore[attr-defined]
    assert type(bare).__name__ == "Executor"
    assert vars(bare) == {"gamma": 3}
    assert not {"unrelated", "__init__", "traced", "made"} & set(vars(type(bare)))


def test_attributes_that_were_not_given_are_named(engine: Path) -> None:
    method = extract(engine, "Executor.draw")
    assert "self.gamma" in error_of(lambda: call(method))
    assert "pass --attribute gamma=…" in error_of(lambda: call(method))


def test_given_attributes_replace_members(engine: Path) -> None:
    given = {"gamma": 3, "scale": 1, "inherited": lambda: 0}
    assert call(extract(engine, "Executor.draw", attributes=given)) == 5


def test_state_lives_on_the_bare_object(engine: Path) -> None:
    first, second = extract(engine, "Executor.sets"), extract(engine, "Executor.sets")
    assert [call(first), call(first), call(second)] == [1, 2, 1]
    assert call(extract(engine, "Executor.optional", attributes={"cache": 6})) == 6


def test_bases_and_decorators_of_methods_are_left_out_with_a_warning(engine: Path) -> None:
    loaded, warnings = extract_target(f"{engine}:Executor.traced", attributes=["gamma=2"])
    assert call(loaded.function) == 2
    assert len(warnings) == 2
    assert "base engine_not_there.Worker of class Executor left out" in warnings[0]
    assert "decorator @engine_not_there.traced of Executor.traced left out" in warnings[1]


def test_class_attributes_that_cannot_be_had_fail_at_their_use(engine: Path) -> None:
    method = extract(engine, "Executor.reads_broken")
    message = error_of(lambda: call(method))
    assert "BROKEN = engine_not_there.lookup('y') has no value here" in message


def test_defaults_may_name_members_of_the_class(engine: Path) -> None:
    assert extract(engine, "Executor.with_default")(4.7, "m") == 5


def test_a_class_with_a_built_in_base_can_be_made() -> None:
    path = write(
        "own_random.py",
        """
        import random

        class Sampler(random.Random):
            def draw(self, acc_len, method, max_len):
                return 1 + int(self.random() < 2)
        """,
    )
    assert call(extract(path, "Sampler.draw")) == 2


def test_dataclasses_keep_their_decorator() -> None:
    path = write(
        "data.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass, field
        import engine_not_there

        @dataclass
        class Settings:
            more: engine_not_there.Int = 2
            items: list[int] = field(default_factory=list)

        def f(acc_len, method, max_len):
            return Settings(3).more + len(Settings().items)
        """,
    )
    assert call(extract(path, "f")) == 3


def test_star_imports_give_what_they_can() -> None:
    path = write(
        "stars.py",
        """
        from math import *
        from engine_not_there import *

        def f(acc_len, method, max_len):
            return floor(acc_len)

        def g(acc_len, method, max_len):
            return elsewhere(acc_len)
        """,
    )
    assert call(extract(path, "f")) == 4
    assert "module engine_not_there that" in error_of(lambda: call(extract(path, "g")))


def test_imports_beside_a_script_are_met_but_not_beside_a_module_of_a_package() -> None:
    write("near_by.py", "LENGTH = 4")
    text = "from near_by import LENGTH\ndef f(a, b, c): return LENGTH + 0\n"
    assert call(extract(write("script.py", text), "f")) == 4
    inner = Path.cwd() / "inner"
    inner.mkdir()
    (inner / "__init__.py").touch()
    (inner / "random.py").write_text("raise RuntimeError", encoding="utf-8")
    (inner / "mod.py").write_text(
        "import random\ndef f(a, b, c): return random.Random(1).randint(1, 1)\n", encoding="utf-8"
    )
    assert call(extract(inner / "mod.py", "f")) == 1


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "wanted"),
    [
        ("plian", "has no attribute 'plian'; did you mean plain?"),
        ("Executor.drew", "Executor has no attribute 'drew'; did you mean draw"),
        ("Executor.scale", "is not callable: it is of type int"),
        ("FLOOR", "is not callable: it is of type int"),
        ("accept", "name accept comes from module engine_not_there.kernels"),
        ("launch", "name launch cannot be computed"),
        ("Batch", "name Batch is not set by"),
    ],
)
def test_what_cannot_be_taken_is_one_clear_line(engine: Path, attribute: str, wanted: str) -> None:
    assert wanted in error_of(lambda: extract(engine, attribute))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = 1\ndef f(:\n", "bad.py:2: syntax error: "),
        ("def f(): pass\nreturn 1\n", "bad.py:2: syntax error: "),
        ("x = '\0'", "bad.py cannot be read as Python: "),
    ],
)
def test_files_that_are_not_python_are_told(text: str, wanted: str) -> None:
    path = write("bad.py", text)
    assert wanted in error_of(lambda: extract(path, "f"))


def test_files_that_are_not_there_are_told(engine: Path) -> None:
    assert error_of(lambda: extract("not/there.py", "f")) == "no such file: not/there.py"
    assert "is a folder" in error_of(lambda: extract(engine.parent, "f"))
    assert "--extract needs path/to/file.py:f" in error_of(lambda: extract_target("pack.engine:f"))
    assert "must be" in error_of(lambda: extract_target("engine.py"))


def test_attributes_are_for_methods_only(engine: Path) -> None:
    message = error_of(lambda: extract(engine, "plain", attributes={"gamma": 3}))
    assert message == "attributes are for a method, and plain is not in a class"


def test_an_import_that_exits_leaves_a_missing_name() -> None:
    write("exits_here.py", "import sys\nsys.exit(3)\n")
    path = write("near_exit.py", "from exits_here import X\ndef f(a, b, c): return X + 1\n")
    assert "module exits_here" in error_of(lambda: call(extract(path, "f")))


def test_interrupts_go_through() -> None:
    path = write("stops.py", "def stop(): raise KeyboardInterrupt\nX = stop()\ndef f(): return X\n")
    with pytest.raises(KeyboardInterrupt):
        extract(path, "f")


# --- the command line's form -----------------------------------------------------------------


def test_texts_are_literals_or_things_to_import() -> None:
    texts = ["a=4.7", "b = 'x=y'", "c=None", "d=math:floor", "e=[1, 2]", "f=-1"]
    values = read_assignments(texts)
    assert values["d"] is __import__("math").floor
    del values["d"]
    assert values == {"a": 4.7, "b": "x=y", "c": None, "e": [1, 2], "f": -1}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gamma", "expected NAME=VALUE, got 'gamma'"),
        ("=3", "expected NAME=VALUE"),
        ("gamma=", "expected NAME=VALUE"),
        ("2x=3", "expected NAME=VALUE"),
        ("m=match-expected", "neither a Python literal (quote a string) nor module:attribute"),
        ("m=math:flor", "math has no attribute 'flor'; did you mean floor"),
        ("m=not_there_at_all:f", "module 'not_there_at_all' not found"),
    ],
)
def test_malformed_texts_are_one_clear_line(text: str, wanted: str) -> None:
    assert wanted in error_of(lambda: read_assignments([text]))


@pytest.mark.parametrize(
    ("attribute", "attributes", "namespace", "expected"),
    [
        ("plain", [], [], "4"),
        ("uses_derived", [], ["BROKEN=20"], "41"),
        ("uses_relative", [], ["near=math:ceil"], "5"),
        ("Executor.draw", ["gamma=3"], [], "107.7"),
    ],
)
def test_the_import_line_takes_the_target_out_again(
    engine: Path, attribute: str, attributes: list[str], namespace: list[str], expected: str
) -> None:
    loaded, _ = extract_target(
        f"pack/engine.py:{attribute}", attributes=attributes, namespace=namespace
    )
    assert str(call(loaded.function)) == expected
    program = f"{loaded.import_line}\nprint({loaded.name}(4.7, 'm', 8))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(specsim.__file__).parents[1])},
    )
    assert done.stdout.strip() == expected
