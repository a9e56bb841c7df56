"""Lines come from files and sockets whatever becomes of them; nothing that comes in is trusted."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.monitor.sources import LONGEST, LineSplitter, SocketInUse, follow, listen
from reef_ref.outlet import Outlet

MANY = settings(max_examples=300, deadline=None, derandomize=True)
BOUND_S = 30.0


@MANY
@given(st.binary(), st.data())
def test_chunks_make_the_same_lines_however_they_are_cut(raw: bytes, data: st.DataObject) -> None:
    """Only what has an end is a line."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    splitter = LineSplitter()
    found = [
        line
        for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)
        for line in splitter.split(raw[begin:end])
    ]
    assert found == raw.split(b"\n")[:-1]
    assert splitter.dropped == 0


def test_a_line_that_is_too_long_is_left_out_and_nothing_of_it_is_kept() -> None:
    """The next one is read again."""
    splitter = LineSplitter()
    assert splitter.split(b"a\n" + b"x" * LONGEST) == [b"a"]
    assert splitter._rest == b""
    assert splitter.split(b"x" * 100 + b"\nb\nc") == [b"b"]
    assert splitter.dropped == 1
    assert splitter.split(b"\n" + b"y" * LONGEST + b"\nd\n") == [b"c", b"d"]
    assert splitter.dropped == 2


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_file_is_followed(tmp_path: Path) -> None:
    """From its beginning, before it is there, while it grows, after it was exchanged and after it was emptied."""
    path, taken = tmp_path / "events", list[bytes]()

    async def story() -> None:
        task = asyncio.create_task(follow(path, taken.append))
        await asyncio.sleep(0.01)
        path.write_bytes(b"1\n2\n3")
        await until(lambda: taken == [b"1", b"2"])
        with path.open("ab") as file:
            file.write(b"\n4\n")
        await until(lambda: taken == [b"1", b"2", b"3", b"4"])
        (tmp_path / "new").write_bytes(b"5\n")
        os.replace(tmp_path / "new", path)
        await until(lambda: taken[4:] == [b"5"])
        os.truncate(path, 0)
        await asyncio.sleep(0.2)
        with path.open("ab") as file:
            file.write(b"6\n")
        await until(lambda: taken[5:] == [b"6"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())


def test_a_socket_takes_lines_of_everybody_and_is_its_owners_alone(tmp_path: Path) -> None:
    """Mode 0600; a line that was cut off by its sender's end is left out; the socket goes with its listener."""
    path, taken = tmp_path / "socket", list[bytes]()

    async def story() -> None:
        async with listen(path, taken.append):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            outlets = [Outlet(f"unix:{path}", str.encode) for _ in range(3)]
            for number, outlet in enumerate(outlets):
                outlet.put(f"{number}")
            await until(lambda: len(taken) == 3)
            assert all(outlet.attached for outlet in outlets)
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(str(path))
                end.sendall(b"whole\ncut o")
            await until(lambda: len(taken) == 4)
            with pytest.raises(SocketInUse, match="another monitor listens there"):
                async with listen(path, taken.append):
                    pass
        assert not path.exists()
        for outlet in outlets:
            assert not outlet.attached
            outlet.put("lost")
            outlet.close()
            assert outlet.failed == 1

    asyncio.run(story())
    assert sorted(taken) == [b"0", b"1", b"2", b"whole"]


def test_a_sender_finds_a_reader_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losing the reader loses lines, and stops nobody."""
    monkeypatch.setattr("reef_ref.outlet.CONNECT_AGAIN_S", 0.0)
    path, taken = tmp_path / "socket", list[bytes]()

    async def story() -> None:
        outlet = Outlet(f"unix:{path}", str.encode)
        outlet.put("nobody is there")
        await until(lambda: outlet.failed == 1)
        for life in ("first", "second"):
            async with listen(path, taken.append):
                outlet.put(life)
                await until(lambda life=life: life.encode() in taken)  # type: ignore[misc]
        outlet.close()
        assert outlet.failed == 1

    asyncio.run(story())


def test_a_socket_that_was_left_behind_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    """A file of somebody else's, or a link, is not touched."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))

    async def story(at: Path) -> None:
        async with listen(at, lambda _: None):
            assert at.is_socket()

    asyncio.run(story(path))
    path.write_text("kept")
    with pytest.raises(SocketInUse, match="something else than a socket is there"):
        asyncio.run(story(path))
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(SocketInUse, match="something else than a socket is there"):
        asyncio.run(story(link))
    assert path.read_text() == "kept"
