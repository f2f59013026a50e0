"""What a cluster of a test left behind, beside others that use shared memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

from tests.cluster.one_cluster import SHARED_MEMORY, left_in_shared_memory


def test_a_name_that_nobody_has_mapped_was_left_behind() -> None:
    before = set(os.listdir(SHARED_MEMORY))
    with tempfile.NamedTemporaryFile(dir=SHARED_MEMORY) as file:
        name = Path(file.name).name
        os.ftruncate(file.fileno(), mmap.PAGESIZE)
        assert name in left_in_shared_memory(before)
        assert name not in left_in_shared_memory({*before, name})
        with mmap.mmap(file.fileno(), mmap.PAGESIZE):
            assert name not in left_in_shared_memory(before)
    assert name not in left_in_shared_memory(before)
