"""Whether a lake holds what its manifest says, and whether a log holds what a lake does.

Owns the comparisons by digest over (first LSN, count, batch bytes), which are free of terms and
indexes, so that they hold between a log, its lake and a log restored from it.
"""

from __future__ import annotations

from functools import partial

from logstore.client.client import LogClient
from logstore.client.digest import BatchDigest
from logstore.errors import CorruptData, WrongCluster
from logstore.spark.jobs import StartSpark, run_tasks
from logstore.spark.lake import data_path
from logstore.spark.lake_file import read_lake_file
from logstore.spark.lake_manifest import LakeFile, Manifest


def lake_digest(folder: str, file: LakeFile, first_lsn: int = 0) -> BatchDigest:
    """Of the file's batches that begin at `first_lsn` or above.

    Raises:
      CorruptData: the file is damaged.
    """
    digest = BatchDigest()
    for batch in read_lake_file(data_path(folder, file), file):
        if batch.first_lsn >= first_lsn:
            digest.add(batch.first_lsn, batch.count, batch.data)
    return digest


def check_lake_file(folder: str, file: LakeFile) -> None:
    """Raises: CorruptData: the file does not hold what the manifest says."""
    found = lake_digest(folder, file).hexdigest()
    if found != file.digest:
        raise CorruptData(
            data_path(folder, file), 0, expected=f"batches of digest {file.digest}", got=found
        )


def check_lake_files(spark: StartSpark, folder: str, files: list[LakeFile]) -> None:
    """The same for many, a task each."""
    run_tasks(spark, partial(check_lake_file, folder), files)


def check_same_log(client: LogClient, folder: str, manifest: Manifest) -> None:
    """That this is the log which the lake is of, or one that was restored from it: one that holds
    what the lake ends with.

    Raises:
      WrongCluster: it does not, or has none of the lake's newest file, so it cannot be known.
      CorruptData: that file is damaged.
    """
    shown = client.admin.watermarks()
    known_id = client.cluster_id.hex()
    if known_id == manifest.newest_cluster_id:
        return
    words = f"{folder} is a lake of cluster {manifest.newest_cluster_id}, and cluster {known_id}"
    newest = manifest.files[-1] if manifest.files else None
    if newest is None or newest.last_lsn < shown.log_start_lsn:
        raise WrongCluster(f"{words} holds nothing of it to compare")
    expected = lake_digest(folder, newest, shown.log_start_lsn)
    if client.admin.commit_lsn() < newest.last_lsn:
        raise WrongCluster(f"{words} ends before LSN {newest.last_lsn}")
    found = client.digest(expected.first_lsn, newest.last_lsn, min_lsn=newest.last_lsn)
    if found.hexdigest() != expected.hexdigest():
        raise WrongCluster(
            f"{words} holds other batches at LSNs {expected.first_lsn} to {newest.last_lsn}: it "
            "was not restored from this lake"
        )
