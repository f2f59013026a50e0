"""Mutants of the log's format level (SAFETY S11)."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

LEVELS = "logstore.raft.levels"
RECOVERY = "logstore.storage.recovery"
S11 = "SAFETY S11"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "level-raised-without-asking-one-peer",
        S11,
        f"{LEVELS}:_why_never",
        "for peer, each in leading.progress.items()",
        "for peer, each in list(leading.progress.items())[1:]",
        "the first peer's version is not looked at",
    ),
    mutant(
        "level-raised-by-what-was-said-before-a-restart",
        S11,
        "logstore.raft.replication:on_heartbeat_reply",
        "progress.newest_level = reply.newest_level or FIRST_LEVEL",
        "progress.newest_level = max(progress.newest_level or 0, reply.newest_level)",
        "a peer that was started as an older version counts as the newer one",
        Edit(
            "logstore.raft.replication:_on_peer_alive",
            "progress.newest_level = None",
            "pass",
        ),
    ),
    mutant(
        "new-log-raised-without-asking",
        S11,
        f"{LEVELS}:raise_new_log",
        "elif not _who_is_silent(state, leading):",
        "else:",
        "a new log is raised before every voter has said that it reads the level",
    ),
    mutant(
        "old-log-raised-unasked",
        S11,
        "logstore.raft.replication:_is_log_new",
        "noop.cumulative_bytes == 0",
        "noop.cumulative_bytes >= 0",
        "a log that an older version wrote is raised without an operator",
    ),
    mutant(
        "levels-raised-out-of-order",
        S11,
        f"{LEVELS}:_why_never",
        "if level > state.level + 1:",
        "if level > state.level + 9:",
        "the log goes from level 1 to 3 at once",
    ),
    mutant(
        "level-of-an-uncommitted-entry",
        S11,
        "logstore.raft.commit:follow_level",
        "level = state.log.level_at(index)",
        "level = state.log.level_at(state.log.last_index)",
        "forms of a level are written before its entry is committed",
    ),
    mutant(
        "truncated-level-remembered",
        S11,
        "logstore.raft.log_view:EntryLog.truncate",
        "while self._raised and self._raised[-1][0] >= first_index:",
        "while self._raised and self._raised[-1][0] > first_index + 9:",
        "an entry that raised the level is truncated, and counts once its index is committed",
    ),
    mutant(
        "level-not-recovered",
        S11,
        "actors.writer.folder:_report",
        "levels=recovered.levels,",
        "levels=(),",
        "a start forgets which of its entries raise the level",
    ),
    mutant(
        "level-not-saved",
        S11,
        "actors.writer.folder:Folder.save_level",
        "if level > meta.level or",
        "if level > meta.level + 99 or",
        "only the log says its level, which is not enough once its beginning is trimmed away",
    ),
    mutant(
        "level-too-new-taken",
        S11,
        f"{LEVELS}:refuse_if_too_new",
        "if level <= state.config.newest_level:",
        "if level <= state.config.newest_level + 9:",
        "a follower takes entries of a log that is too new for it",
    ),
    mutant(
        "log-too-new-served",
        S11,
        f"{RECOVERY}:_recover_log",
        "for _, level in found.levels:",
        "for _, level in found.levels[:0]:",
        "a start passes over entries that raise the level above what it reads",
        Edit(
            f"{RECOVERY}:_recover_under",
            "meta.level, newest=newest_level)",
            "meta.level, newest=newest_level + 9)",
        ),
    ),
    mutant(
        "level-answered-before-its-commit",
        S11,
        f"{LEVELS}:on_requested",
        "_begin(state, leading, level, event.request_id)",
        "_begin(state, leading, level, None)\n"
        '        state.emit(LevelAnswered(event.request_id, ErrorCode.OK, level, ""))',
        "an operator is told so as soon as the entry is appended",
    ),
    mutant(
        "level-answered-as-raised-by-a-leader-that-ends",
        S11,
        "logstore.raft.commit:answer_raise",
        "raising.request_id, code, state.level, reason",
        "raising.request_id, ErrorCode.OK, raising.level, reason",
        "an operator is told so though nobody knows",
    ),
)
