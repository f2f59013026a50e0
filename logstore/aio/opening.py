"""What is opened by an `await` or by an `async with`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from logstore.errors import InvalidRequest


class Closable(Protocol):
    async def close(self) -> None: ...


_T = TypeVar("_T", bound=Closable)


class Opening(Generic[_T]):
    """`await` it, and close what it gives; or `async with`, which closes it. Nothing is opened
    before."""

    def __init__(self, opens: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._open = opens
        self._opened: list[_T] = []
        self._is_entered = False

    if not TYPE_CHECKING:  # a checker knows that there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{name!r} of what is not open yet: `async with …(…) as it`, or `it = await …(…)`, "
                f"then `it.{name}`",
                name=name,
                obj=self,
            )

    def __await__(self) -> Generator[Any, None, _T]:
        return self._open().__await__()

    async def __aenter__(self) -> _T:
        if self._is_entered:
            raise InvalidRequest("this was entered before: make another one for each `async with`")
        self._is_entered = True
        self._opened.append(await self._open())
        return self._opened[-1]

    async def __aexit__(self, *_: object) -> None:
        await self._opened.pop().close()
