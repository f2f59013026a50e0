"""The demo's input: lines as they stand in the files, whatever bytes they hold."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from logstore.cli.demo.input_text import (
    BATCH_BYTES,
    BATCH_LINES,
    LINE_BYTES_MAX,
    check_files,
    iterate_batches,
    standard_library,
)
from logstore.errors import BatchTooLarge, InvalidRequest

ODD = b"\r\n\n\xff\xfe\x00x\r\nlast"
ODD_LINES = [b"\r", b"", b"\xff\xfe\x00x\r", b"last"]


def write(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def first_lines(paths: list[Path], count: int) -> list[bytes]:
    batches = iterate_batches(paths, Random(1))
    return list(islice((line for batch in batches for line in batch), count))


def test_lines_keep_carriage_returns_and_odd_bytes_and_go_round_and_round(tmp_path: Path) -> None:
    paths = write(tmp_path, ODD)
    assert first_lines(paths, 9) == [*ODD_LINES, *ODD_LINES, ODD_LINES[0]]


def test_empty_files_among_others_add_nothing(tmp_path: Path) -> None:
    paths = write(tmp_path, b"", b"a\n", b"", b"b\n\n")
    assert check_files(paths)
    assert first_lines(paths, 5) == [b"a", b"b", b"", b"a", b"b"]


def test_empty_files_alone_give_no_batch_and_end(tmp_path: Path) -> None:
    paths = write(tmp_path, b"", b"")
    assert not check_files(paths)
    assert list(iterate_batches(paths, Random(1))) == []


def test_batches_have_mixed_sizes_and_bounded_bytes(tmp_path: Path) -> None:
    paths = write(tmp_path, b"x" * 30 + b"\n", b"y" * 3_000 + b"\n")
    batches = list(islice(iterate_batches(paths, Random(1)), 300))
    assert {len(batch) for batch in batches} >= {1, 2, 8, 32}
    assert max(len(batch) for batch in batches) <= max(BATCH_LINES)
    assert all(sum(map(len, batch[:-1])) < BATCH_BYTES for batch in batches)


def test_a_line_of_three_mib_is_a_batch_like_any_other(tmp_path: Path) -> None:
    line = b"z" * (3 << 20)
    paths = write(tmp_path, b"a\n" + line + b"\nb\n")
    assert check_files(paths)
    assert first_lines(paths, 3) == [b"a", line, b"b"]


def test_a_line_above_the_limit_is_refused_with_file_and_line(tmp_path: Path) -> None:
    paths = write(tmp_path, b"a\n" + b"z" * (LINE_BYTES_MAX + 1))
    with pytest.raises(BatchTooLarge, match=r"0\.txt: line 2"):
        check_files(paths)
    assert check_files(write(tmp_path, b"z" * LINE_BYTES_MAX))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        check_files([tmp_path / "missing"])


def test_the_same_seed_gives_the_same_batches(tmp_path: Path) -> None:
    paths = write(tmp_path, ODD * 50)
    one, other = (list(islice(iterate_batches(paths, Random(3)), 40)) for _ in range(2))
    assert one == other


def test_the_standard_library_has_source() -> None:
    assert len(standard_library()) > 100
