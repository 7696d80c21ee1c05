"""The frames that a trace file is made of: each with its length and checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"specsim-trace 1\n"
"""First bytes of every file; the number is the format's version."""

SUFFIX = ".trace"
"""What a file's name ends in."""

HEADER, STEPS, END = b"HEAD", b"STEP", b"DONE"
"""Tags: the configuration, a block of steps, and the last frame of a file that was closed."""

_TAGS = (HEADER, STEPS, END)
# Tag, length of the payload, CRC-32 of the payload, CRC-32 of the twelve bytes before. The last
# one tells a file that was cut short from one whose length field is damaged.
_HEAD = struct.Struct("<4sII")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CRC.size


@dataclass(frozen=True)
class Frame:
    """One frame of a file.

    Attributes
    ----------
    tag
        `HEADER`, `STEPS` or `END`.
    payload
        Its content.
    offset
        Where in the file it begins, bytes.
    """

    tag: bytes
    payload: bytes
    offset: int


class DamagedError(Exception):
    """A file's content is not what a recorder writes; the text says where and why."""


class CutShortError(Exception):
    """A file ends inside a frame, as one does whose writer was killed.

    Attributes
    ----------
    left : int
        Bytes of the incomplete frame that are there.
    """

    def __init__(self, left: int) -> None:
        super().__init__(f"the last {left} bytes are an incomplete block")
        self.left = left


def frame(tag: bytes, payload: bytes) -> bytes:
    """Return the bytes of one frame."""
    head = _HEAD.pack(tag, len(payload), zlib.crc32(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(head)), payload))


def read_frames(file: BinaryIO) -> Iterator[Frame]:
    """Read a file's frames one after the other.

    Parameters
    ----------
    file
        Open for reading, at its start.

    Raises
    ------
    DamagedError
        If the file is no trace, or a checksum does not match.
    CutShortError
        After the last complete frame, if the file goes on with less than a frame.
    """
    start = file.read(len(MAGIC))
    if not start:
        raise DamagedError("it is empty")
    if start != MAGIC:
        if MAGIC.startswith(start):
            raise CutShortError(len(start))
        raise DamagedError(f"it does not begin with {MAGIC[:-1].decode()!r}")
    offset = len(MAGIC)
    while head := file.read(HEAD_BYTES):
        if len(head) < HEAD_BYTES:
            raise CutShortError(len(head))
        (own,) = _CRC.unpack(head[_HEAD.size :])
        tag, length, checksum = _HEAD.unpack(head[: _HEAD.size])
        if own != zlib.crc32(head[: _HEAD.size]) or tag not in _TAGS:
            raise DamagedError(f"no block begins at byte {offset}")
        payload = file.read(length)
        if len(payload) < length:
            raise CutShortError(HEAD_BYTES + len(payload))
        if checksum != zlib.crc32(payload):
            raise DamagedError(f"the block at byte {offset} does not match its checksum")
        yield Frame(tag, payload, offset)
        offset += HEAD_BYTES + length
