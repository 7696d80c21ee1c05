"""The trace format: what is written is read again, and no damage ends in a traceback."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from proptests.trace_runs import GAMMA, record_lengths, recorded, verdicts
from specsim.targets import TargetError
from specsim.trace.blocks import FIELDS, NO_STORAGE, Block, Column, Storage
from specsim.trace.frames import END, HEADER, MAGIC, STEPS, CutShortError, frame, read_frames
from specsim.trace.header import TraceConfiguration, TraceHeader
from specsim.trace.reader import TraceFile, TraceRun, read_steps

INTEGERS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-2, 9)


@st.composite
def columns(draw: st.DrawFn, n: int) -> Column:
    sizes = np.array(draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)), dtype=np.int64)
    total = int(np.maximum(sizes, 0).sum())
    element = draw(st.sampled_from([SMALL, INTEGERS, st.just(4)]))
    return Column(sizes, draw(hnp.arrays(np.int64, total, elements=element)))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    n = draw(st.integers(1, 6))
    steps = np.cumsum(draw(st.lists(st.integers(1, 2**40), min_size=n, max_size=n)))
    names = draw(st.lists(st.sampled_from(FIELDS), unique=True))
    storages = st.dictionaries(
        st.integers(0, 99),
        st.builds(
            Storage,
            st.integers(0, 2**40),
            st.sampled_from([1, 4, 8]),
            st.sampled_from(["int64", "int32"]),
            st.sampled_from(["cpu", "cuda:0"]),
        ),
        max_size=2,
    )
    return Block(
        steps=steps.astype(np.int64),
        graph=draw(hnp.arrays(np.bool_, n)),
        storage=draw(hnp.arrays(np.int64, n, elements=st.integers(NO_STORAGE, 300))),
        offset=draw(hnp.arrays(np.int64, n, elements=st.integers(0, 2**33))),
        columns={name: draw(columns(n)) for name in names},
        storages=draw(storages),
        dropped=draw(st.integers(0, 2**40)),
        time=draw(st.floats(0, 4e9)),
    )


@given(blocks())
def test_a_block_is_read_as_it_was_written(block: Block) -> None:
    again = Block.from_bytes(block.to_bytes())
    for name in ("steps", "graph", "storage", "offset"):
        assert np.array_equal(getattr(again, name), getattr(block, name)), name
    assert set(again.columns) == set(block.columns)
    for name, column in block.columns.items():
        assert np.array_equal(again.columns[name].sizes, column.sizes)
        assert np.array_equal(again.columns[name].values, column.values)
    assert again.storages == block.storages
    assert (again.dropped, again.time) == (block.dropped, block.time)


@given(block=blocks(), data=st.data())
def test_a_changed_block_is_refused_in_one_line_too(
    path: Path, block: Block, data: st.DataObject
) -> None:
    # Without its frame's checksum: what a recorder with a fault of its own could write.
    content = bytearray(block.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    whole = MAGIC + frame(HEADER, header().to_bytes()) + frame(STEPS, bytes(content))
    assert is_one_line_about(path, refusal(path, whole))


def header(**changes: Any) -> TraceHeader:
    return TraceHeader(0, 12, 1e9, TraceConfiguration(GAMMA, 4.7, **changes))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a file of a trace may be written, again and again."""
    return tmp_path_factory.mktemp("trace") / "rank0000-1-1.trace"


def refusal(path: Path, content: bytes) -> str:
    """Read a file in all ways, and return in which words it was refused, if it was."""
    path.write_bytes(content)
    try:
        for file in next(iter(TraceRun.open(path.parent).ranks.values())):
            list(file.blocks())
            file.ending()
    except TargetError as error:
        return str(error)
    return ""


def is_one_line_about(path: Path, message: str) -> bool:
    return not message or (str(path) in message and "\n" not in message)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a file of three blocks and an end."""
    folder = tmp_path_factory.mktemp("whole")
    record_lengths(folder, 40, block_steps=16)
    (path,) = folder.iterdir()
    return path.read_bytes()


@given(data=st.data())
def test_a_damaged_file_is_refused_in_one_line(
    path: Path, content: bytes, data: st.DataObject
) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] ^= data.draw(st.integers(1, 255))
    # Every byte is under a checksum or in the first line: nothing is read as something else.
    message = refusal(path, bytes(changed))
    assert is_one_line_about(path, message)
    assert bool(message) == (bytes(changed) != content)


def test_every_prefix_is_a_trace_cut_short_or_has_no_header(path: Path, content: bytes) -> None:
    whole_header = next(read_frames(io.BytesIO(content)))
    after_header = len(MAGIC) + 16 + len(whole_header.payload)
    seen = set()
    for size in range(0, len(content), 5):
        path.write_bytes(content[:size])
        if size < after_header:
            with pytest.raises(TargetError):
                TraceFile.open(path)
            continue
        file = TraceFile.open(path)
        steps = sum(len(block) for block in file.blocks())
        seen.add(steps)
        ending = file.ending()
        assert not ending.closed
        assert "killed" in ending.text or "without closing" in ending.text
    assert seen == {0, 16, 32, 40}


def test_a_frame_that_lies_about_its_length_is_damage_and_not_an_end(
    path: Path, content: bytes
) -> None:
    offsets = [f.offset for f in read_frames(io.BytesIO(content)) if f.tag == STEPS]
    changed = bytearray(content)
    changed[offsets[1] + 6] ^= 0x40  # the length grows by 4 MiB, beyond the file
    path.write_bytes(changed)
    with pytest.raises(TargetError, match=f"no block begins at byte {offsets[1]}"):
        list(TraceFile.open(path).blocks())


def test_frames_end_where_the_file_ends() -> None:
    whole = MAGIC + frame(END, b"{}")
    assert [f.tag for f in read_frames(io.BytesIO(whole))] == [END]
    with pytest.raises(CutShortError, match="last 17 bytes"):
        list(read_frames(io.BytesIO(whole[:-1])))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gamma": None}, "gamma"),
        ({"gamma": -1}, "gamma"),
        ({"gamma": "7"}, "gamma"),
        ({"simulate_acc_len": float("inf")}, "simulate_acc_len"),
        ({"simulate_acc_len": "4.7"}, "simulate_acc_len"),
        ({"simulate_acc_method": "geometric"}, "simulate_acc_method"),
        ({"simulate_acc_method": ["match-expected"]}, "simulate_acc_method"),
        ({"coupling": "token"}, "coupling"),
        ({"rates": [0.5] * 7}, "rates"),
        ({"rates": 3, "simulate_acc_len": None}, "rates"),
        ({"rates": [0.5, 0.6, 0, 0, 0, 0, 0], "simulate_acc_len": None}, "rates"),
        ({"rates": ["a"] * 7, "simulate_acc_len": None}, "rates"),
        ({"token_mode": "fixed"}, "fixed_token_id"),
    ],
)
def test_a_wrong_header_names_the_file_and_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    document = json.loads(header().to_bytes())
    document["configuration"] |= changes
    path = tmp_path / "rank0000-1-1.trace"
    path.write_bytes(MAGIC + frame(HEADER, json.dumps(document).encode()))
    with pytest.raises(TargetError, match=named) as error:
        TraceRun.open(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"{}", b'{"configuration": 3}', b"\xff", b"[" * 5_000]
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "a.trace").write_bytes(MAGIC + frame(HEADER, payload))
    with pytest.raises(TargetError, match=r"a\.trace"):
        TraceRun.open(tmp_path)


def test_a_header_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    document = json.loads(header().to_bytes())
    document["configuration"]["temperature"] = 0.7
    document["host"] = "a"
    (tmp_path / "a.trace").write_bytes(MAGIC + frame(HEADER, json.dumps(document).encode()))
    assert TraceRun.open(tmp_path).ranks[0][0].header == header()


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no folder"):
        TraceRun.open(tmp_path / "none")
    with pytest.raises(TargetError, match="holds no trace"):
        TraceRun.open(tmp_path)
    (tmp_path / "a.trace").write_text("step,length\n")
    with pytest.raises(TargetError, match=r"a\.trace is damaged"):
        TraceRun.open(tmp_path)
    (tmp_path / "a.trace").write_text("")
    with pytest.raises(TargetError, match=r"a\.trace is damaged: it is empty"):
        TraceRun.open(tmp_path)


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    record_lengths(tmp_path, 3)
    (tmp_path / "notes.txt").write_text("warm-up is in here too\n")
    assert len(list(read_steps(tmp_path))) == 3


def test_a_trace_without_steps_is_judged(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_bytes(MAGIC + frame(HEADER, header().to_bytes()))
    found = verdicts(tmp_path)
    assert found["E.distribution"] == "inconclusive"
    assert found["F.commit-lens"] == "skip"
    assert found["R.complete"] == "fail"


def test_one_draw_a_step_takes_the_room_of_one_slot(tmp_path: Path) -> None:
    with recorded(tmp_path / "shared") as recorder:
        for step in range(1_024):
            recorder.step(correct_len=[step % 2 + 3] * 64)
    (path,) = (tmp_path / "shared").iterdir()
    assert path.stat().st_size < 1_024 * 8
    assert next(read_steps(tmp_path / "shared")).lengths == [4] * 64
