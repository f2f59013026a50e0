"""A hand-written history in two versions: one that is right, and one that breaks an invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.histories.stage import Stage

Story = Callable[[Stage, bool], None]  # the flag: is it broken?


@dataclass(frozen=True)
class History:
    """`invariant` is the first one that the broken story violates, in words that contain
    `says`."""

    invariant: str
    says: str
    story: Story

    @property
    def name(self) -> str:
        return f"{self.invariant}-{self.story.__name__.replace('_', '-')}"


class Collection:
    """Histories by decorator: `@breaks("I1", says="…")` over a story."""

    def __init__(self) -> None:
        self.histories: list[History] = []

    def breaks(self, invariant: str, *, says: str) -> Callable[[Story], Story]:
        def add(story: Story) -> Story:
            self.histories.append(History(invariant, says, story))
            return story

        return add
