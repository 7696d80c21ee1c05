"""Loading, telling the kind of, and calling somebody else's sampler."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import specsim
from specsim.targets import (
    KINDS,
    Configuration,
    TargetError,
    TargetFailed,
    TargetRaised,
    TargetReturned,
    adapt,
    check_callable,
    detect_kind,
    import_line,
    load_target,
)

ROOT = Path(specsim.__file__).parents[1]
CONFIG = Configuration(4.7, "match-expected", 8)
RATES = Configuration(None, None, 4, (0.9, 0.5, 0.25))
GOOD = """
    import functools

    def sampler(acc_len, method, max_len):
        return 5

    class Sampler:
        def draw(self, acc_len, method, max_len):
            return 6

        @staticmethod
        def fixed(acc_len, method, max_len):
            return 7

        @classmethod
        def made(cls, acc_len, method, max_len):
            return 8

        def __call__(self, acc_len, method, max_len):
            return 9

    class Needy:
        def __init__(self, table):
            self.table = table

        def draw(self, acc_len, method, max_len):
            return self.table

    instance = Sampler()
    partial = functools.partial(sampler, max_len=8)
    number = 3
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder, and forget what a test imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path_importer_cache", {})


def write(name: str, text: str) -> Path:
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def error_of(spec: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(spec)
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert caught.value.__cause__ is None
    return message


def run_snippet(*lines: str) -> str:
    """Run a program in a fresh interpreter, as a reader of a report would."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout.strip()


# --- loading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "name", "length"),
    [
        ("sampler", "sampler", 5),
        ("Sampler.draw", "Sampler().draw", 6),
        ("Sampler.fixed", "Sampler.fixed", 7),
        ("Sampler.made", "Sampler.made", 8),
        ("instance", "instance", 9),
        ("instance.draw", "instance.draw", 6),
    ],
)
@pytest.mark.parametrize("location", ["pack.mod_a", "pack/mod_a.py"])
def test_loads_what_is_named(location: str, attribute: str, name: str, length: int) -> None:
    write("pack/__init__.py", "")
    write("pack/mod_a.py", GOOD)
    loaded = load_target(f"{location}:{attribute}")
    assert loaded.function(4.7, "match-expected", 8) == length
    assert loaded.name == name
    snippet = f"print({CONFIG.call_repr(loaded.name, 'sampler')})"
    assert run_snippet(loaded.import_line, snippet) == str(length)


def test_files_own_folder_and_current_folder_are_importable() -> None:
    write("beside/near_helper.py", "LENGTH = 4")
    write("far_helper.py", "MORE = 1")
    write(
        "beside/uses_helpers.py",
        """
        import far_helper
        import near_helper

        def sampler(acc_len, method, max_len):
            return near_helper.LENGTH + far_helper.MORE
        """,
    )
    assert load_target("beside/uses_helpers.py:sampler").function(4.7, "", 8) == 5


def test_files_of_one_name_and_names_of_loaded_modules_stay_apart() -> None:
    for i, folder in enumerate(("one", "two")):
        write(f"{folder}/random.py", f"def f(acc_len, method, max_len): return {i}")
    first, second = load_target("one/random.py:f"), load_target("two/random.py:f")
    assert (first.function(1, "", 1), second.function(1, "", 1)) == (0, 1)
    assert sys.modules["random"] is random
    assert run_snippet(second.import_line, "print(f(1, '', 1))") == "1"


def test_a_file_is_imported_once() -> None:
    write("counted_a.py", "import sys\nsys.counted_a = getattr(sys, 'counted_a', 0) + 1\nf = len")
    load_target("counted_a.py:f")
    load_target("counted_a.py:f")
    load_target("counted_a:f")
    assert sys.counted_a == 1  # type: ignore[attr-defined]
    del sys.counted_a  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("no_colon", ["'no_colon'", "package.module:attribute"]),
        ("mod_b.py", ["'mod_b.py'", "path/to/file.py:attribute"]),
        (":f", ["':f'"]),
        ("mod_b:", ["'mod_b:'"]),
        ("mod-b:f", ["'mod-b'", "neither a module's name nor a path"]),
        (".mod_b:f", ["neither"]),
        ("mod_b:sam pler", ["'sam pler'"]),
        ("nowhere_at_all:f", ["module 'nowhere_at_all' not found"]),
        ("mod_b.inner.deeper:f", ["module 'mod_b.inner.deeper' not found", "not a package"]),
        ("nowhere/at_all.py:f", ["no such file: nowhere/at_all.py"]),
        ("./:f", ["folder"]),
        ("mod_b:samplr", ["mod_b has no attribute 'samplr'", "did you mean sampler"]),
        ("mod_b:Sampler.drew", ["mod_b:Sampler has no attribute 'drew'", "draw"]),
        ("mod_b:number", ["mod_b:number is not callable", "int"]),
        ("mod_b:Needy.draw", ["Needy.draw needs an instance", "TypeError", "--extract"]),
    ],
)
def test_wrong_names_get_one_clear_line(spec: str, wanted: list[str]) -> None:
    write("mod_b.py", GOOD)
    message = error_of(spec)
    for part in wanted:
        assert part in message


def test_a_missing_import_is_not_a_missing_target() -> None:
    path = write("engine_a.py", "import os\nimport kernels_not_there.ops\ndef f(a, b, c): return 1")
    for spec in ("engine_a:f", "engine_a.py:f"):
        message = error_of(spec)
        assert "No module named 'kernels_not_there'" in message
        assert f"{path}:2" in message
        assert "--extract" in message
    assert "engine_a" not in sys.modules


def test_a_missing_name_in_an_import_is_told() -> None:
    write("engine_b.py", "from math import no_such_function\n")
    message = error_of("engine_b:f")
    assert "cannot import name 'no_such_function'" in message
    assert "--extract" in message


@pytest.mark.parametrize("location", ["broken_a", "broken_a.py"])
def test_syntax_errors_give_file_line_and_message(location: str) -> None:
    path = write("broken_a.py", "x = 1\ndef f(:\n    pass\n")
    assert error_of(f"{location}:f").startswith(f"{path}:2: syntax error: ")


def test_files_that_are_not_text_are_told() -> None:
    write("zeros.py", "x = 1\0")
    assert "zeros.py" in error_of("zeros.py:f")
    (Path.cwd() / "bytes_a.py").write_bytes(b"x = '\xff\xfe'")
    assert "bytes_a" in error_of("bytes_a:f")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("raise KeyError", "KeyError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (
            "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
            "could not be read",
        ),
        ("raise RuntimeError('x' * 10000)", " …"),
        ("class Stop(BaseException): pass\nraise Stop('now')", "Stop: now"),
    ],
)
@pytest.mark.parametrize("location", ["raises_a", "raises_a.py"])
def test_an_import_that_raises_is_one_line(location: str, text: str, wanted: str) -> None:
    write("raises_a.py", text)
    message = error_of(f"{location}:f")
    assert message.startswith(f"importing {location} failed: ")
    assert wanted in message
    assert len(message) < 1000
    assert "--extract" not in message


def test_a_module_attribute_that_raises_is_one_line() -> None:
    write("lazy_a.py", "def __getattr__(name):\n    raise RuntimeError('not now')\n")
    assert "reading 'f' of lazy_a raised RuntimeError: not now" in error_of("lazy_a:f")


def test_keyboard_interrupts_go_through() -> None:
    write("stopped_a.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_target("stopped_a:f")


def test_nothing_heavy_is_imported() -> None:
    program = "import sys, specsim.targets, specsim.extract; print(*sys.modules)"
    loaded = run_snippet(program).split()
    assert "specsim.extract" in loaded
    assert not {"torch", "numpy", "scipy"} & set(loaded)


def test_import_line_of_a_dotted_attribute_imports_its_first_part() -> None:
    assert import_line("pack.mod:Class.draw") == "from pack.mod import Class"


# --- kinds -----------------------------------------------------------------------------------


class Stateful:
    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        return 1

    def many(self, acc_len: float, method: str, max_len: int, n: int) -> list[int]:
        return [1] * n


def plain(acc_len: float, method: str, max_len: int) -> int:
    return 1


def with_generator(acc_len: float, method: str, max_len: int, *, generator: object = None) -> int:
    return 1


def defaulted(acc_len: float, method: str = "match-expected", max_len: int = 8) -> int:
    return 1


def fourth_optional(acc_len: float, method: str, max_len: int, n: int = 1) -> int:
    return 1


def engine_keywords(*, simulate_acc_len: float, simulate_acc_method: str, max_len: int) -> int:
    assert (simulate_acc_len, simulate_acc_method, max_len) == (4.7, "match-expected", 8)
    return 5


def from_rates(unconditional_rates: list[float], n: int) -> list[int]:
    return [1] * n


def one(acc_len: float) -> int:
    return 1


def five(a: int, b: int, c: int, d: int, e: int) -> int:
    return 1


def anything(*args: object) -> int:
    return 1


def other_keywords(*, length: float, kind: str, most: int) -> int:
    return 1


def needs_more(acc_len: float, method: str, max_len: int, *, device: str) -> int:
    return 1


async def awaited(acc_len: float, method: str, max_len: int) -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (plain, "sampler"),
        (Stateful(), "sampler"),
        (Stateful().many, "vector-sampler"),
        (functools.partial(Stateful.many, Stateful()), "vector-sampler"),
        (functools.partial(five, 1, 2), "sampler"),
        (with_generator, "sampler"),
        (defaulted, "sampler"),
        (fourth_optional, "sampler"),
        (engine_keywords, "sampler"),
        (from_rates, "rates-sampler"),
    ],
)
def test_kind_is_read_off_the_signature(function: Callable[..., object], kind: str) -> None:
    assert detect_kind(function) == kind
    check_callable(function, kind)


@pytest.mark.parametrize("function", [one, five, anything, other_keywords, needs_more])
def test_unclear_signatures_are_told_with_what_was_expected(
    function: Callable[..., object],
) -> None:
    with pytest.raises(TargetError, match="--kind") as caught:
        detect_kind(function)
    message = str(caught.value)
    assert function.__name__ in message
    assert all(kind in message for kind in KINDS)
    assert "\n" not in message


def test_without_a_signature_the_kind_must_be_named() -> None:
    with pytest.raises(TargetError, match=r"no signature.*--kind"):
        detect_kind(max)
    for kind in KINDS:
        check_callable(max, kind)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (one, "sampler"),
        (plain, "vector-sampler"),
        (plain, "rates-sampler"),
        (from_rates, "sampler"),
        (other_keywords, "sampler"),
        (needs_more, "sampler"),
        (engine_keywords, "vector-sampler"),
        (awaited, "sampler"),
    ],
)
def test_calls_that_cannot_bind_are_refused(function: Callable[..., object], kind: str) -> None:
    with pytest.raises(TargetError, match=function.__name__):
        check_callable(function, kind)
    with pytest.raises(TargetError):
        adapt(function, kind)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(TargetError, match=r"kind must be one of sampler.*got 'samplers'"):
        adapt(plain, "samplers")


# --- drawing ---------------------------------------------------------------------------------


def test_arguments_arrive_by_position_and_values_come_back_as_they_are() -> None:
    returned = iter([5, 5.0, True, np.int64(5), torch.tensor(5), "5", None])

    def sampler(first: float, second: str, third: int) -> object:
        assert (first, second, third) == (4.7, "match-expected", 8)
        return next(returned)

    drawn = adapt(sampler, "sampler").draw_many(CONFIG, 7)
    types = [int, float, bool, np.int64, torch.Tensor, str, type(None)]
    assert [type(value) for value in drawn] == types


def test_engine_keywords_are_used_where_nothing_else_binds() -> None:
    target = adapt(engine_keywords, "sampler")
    assert target.draw_many(CONFIG, 3) == [5, 5, 5]
    assert eval(target.call_repr(CONFIG), {"engine_keywords": engine_keywords}) == 5


@pytest.mark.parametrize(
    ("container", "kind"),
    [
        (list, int),
        (tuple, int),
        (lambda values: np.array(values, dtype=np.int32), int),
        (lambda values: np.array(values, dtype=np.float16), float),
        (lambda values: np.array(values) > 1, bool),
        (lambda values: torch.tensor(values, dtype=torch.int32), int),
        (lambda values: torch.tensor(values, dtype=torch.float32), float),
        (lambda values: torch.tensor(values) > 1, bool),
        (lambda values: [torch.tensor(value) for value in values], torch.Tensor),
    ],
)
def test_vector_kinds_keep_the_sort_of_number(
    container: Callable[[list[int]], object], kind: type
) -> None:
    def vector(acc_len: float, method: str, max_len: int, n: int) -> object:
        assert (acc_len, method, max_len) == (4.7, "match-expected", 8)
        return container([1 + i % 2 for i in range(n)])

    drawn = adapt(vector, "vector-sampler").draw_many(CONFIG, 5)
    assert len(drawn) == 5
    assert {type(value) for value in drawn} == {kind}


def test_rates_samplers_get_a_list_of_their_own() -> None:
    seen = []

    def rates_sampler(rates: list[float], n: int) -> list[int]:
        seen.append(list(rates))
        rates.clear()
        return [1] * n

    target = adapt(rates_sampler, "rates-sampler")
    assert target.draw_many(RATES, 2) == target.draw_many(RATES, 2) == [1, 1]
    assert seen == [[0.9, 0.5, 0.25]] * 2


@pytest.mark.parametrize(
    ("returned", "wanted"),
    [
        ([1, 2], "returned 2 lengths, expected 3"),
        ([], "returned 0 lengths"),
        (5, "returned int"),
        (None, "returned NoneType"),
        (iter([1, 2, 3]), "returned list_iterator"),
        ({1: 1, 2: 2, 3: 3}, "returned dict"),
        (np.array(3), r"shape \(\)"),
        (np.ones((3, 1), dtype=int), r"shape \(3, 1\)"),
        (torch.ones(1, 3), r"shape \(1, 3\)"),
    ],
)
def test_a_vector_target_that_returns_something_else_has_failed(
    returned: object, wanted: str
) -> None:
    def vector(acc_len: float, method: str, max_len: int, n: int) -> object:
        return returned

    with pytest.raises(TargetReturned, match=wanted):
        adapt(vector, "vector-sampler").draw_many(CONFIG, 3)
    assert issubclass(TargetReturned, TargetFailed)


@pytest.mark.parametrize("raised", [ValueError("bad\nlength"), SystemExit(4), GeneratorExit()])
def test_what_a_target_raises_is_wrapped_with_its_own_frames(raised: BaseException) -> None:
    write(
        "raising_b.py",
        """
        def even(i, error):
            odd(i - 1, error)

        def odd(i, error):
            if i < 0:
                raise error
            even(i - 1, error)

        def sampler(error, method, max_len):
            even(max_len, error)
        """,
    )
    function = load_target("raising_b.py:sampler").function
    target = adapt(lambda a, b, c: function(raised, b, c), "sampler")
    with pytest.raises(TargetRaised) as caught:
        target.draw_many(CONFIG, 3)
    failure = caught.value
    assert failure.exception is raised
    assert failure.summary.startswith(f"raised {type(raised).__name__}")
    assert "\n" not in failure.summary
    assert failure.frames_text.count('File "') == 5
    assert "raise error" in failure.frames_text
    assert "targets.py" not in failure.frames_text.replace("test_targets.py", "")


def test_a_call_that_fails_before_the_target_runs_has_no_frames() -> None:
    with pytest.raises(TargetRaised) as caught:
        adapt(max, "sampler").draw_many(CONFIG, 1)
    assert "TypeError" in caught.value.summary
    assert caught.value.frames_text == ""


def test_interrupts_and_wrong_calls_go_through_unwrapped() -> None:
    def interrupted(acc_len: float, method: str, max_len: int) -> int:
        raise KeyboardInterrupt

    def incomplete(acc_len: float, method: str, max_len: int) -> int:
        raise TargetError("name x is missing")

    with pytest.raises(KeyboardInterrupt):
        adapt(interrupted, "sampler").draw_many(CONFIG, 1)
    with pytest.raises(TargetError):
        adapt(incomplete, "sampler").draw_many(CONFIG, 1)


# --- configurations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kind", "text"),
    [
        (CONFIG, "sampler", 'f(4.7, "match-expected", 8)'),
        (CONFIG, "vector-sampler", 'f(4.7, "match-expected", 8, 1)'),
        (RATES, "rates-sampler", "f([0.9, 0.5, 0.25], 1)"),
        (Configuration(4, "multinomial", 1), "sampler", 'f(4, "multinomial", 1)'),
        (Configuration(float("nan"), "x", 8), "sampler", 'f(float("nan"), "x", 8)'),
        (Configuration(float("-inf"), "x", 8), "sampler", 'f(float("-inf"), "x", 8)'),
        (Configuration(1.5, 'a"b', 8), "sampler", "f(1.5, 'a\"b', 8)"),
        (Configuration(1.5, "a\nb\\", 8), "sampler", "f(1.5, 'a\\nb\\\\', 8)"),
    ],
)
def test_call_repr_is_python_that_makes_the_same_call(
    config: Configuration, kind: str, text: str
) -> None:
    assert config.call_repr("f", kind) == text
    received = eval(text, {"f": lambda *arguments: arguments})
    assert repr(received) == repr(config.arguments(kind, 1))


def test_call_repr_takes_a_number_of_lengths() -> None:
    assert RATES.call_repr("f", "rates-sampler", n=100) == "f([0.9, 0.5, 0.25], 100)"


def test_labels_are_short_and_differ() -> None:
    many = tuple(round(1 - i / 64, 4) for i in range(1, 64))
    assert CONFIG.label == "acc_len 4.7, match-expected, max_len 8"
    assert RATES.label == "rates 0.9, 0.5, 0.25, max_len 4"
    assert len(Configuration(None, None, 64, many).label) < 60


@pytest.mark.parametrize(("config", "kind"), [(CONFIG, "rates-sampler"), (RATES, "sampler")])
def test_a_configuration_of_the_other_sort_is_refused(config: Configuration, kind: str) -> None:
    with pytest.raises(ValueError, match="must be given"):
        config.arguments(kind, 1)
