"""Messages between a grader and its workers: JSON, preceded by its length in four bytes."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

_LENGTH = struct.Struct(">I")


def encode(message: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def write_message(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Writes a message and flushes."""
    stream.write(encode(message))
    stream.flush()


def read_message(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return json.loads(body) if len(body) == length else None


class Decoder:
    """Messages from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Adds bytes; returns the messages that are complete now."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return messages
