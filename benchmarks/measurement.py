"""What a measurement is to whoever calls it: a name, a question, options, and what it found.

Owns what all measurements have in common as commands: `--quick`, `--dir`, `--json`, `--plot`, the
description of the machine and the commit. Must not know any of them.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from actors.simulation.code_name import code_name
from benchmarks.environment import describe_environment, require_real_file_system
from benchmarks.results import RESULTS, Result, as_read, refuse_bad_target, write_result
from logstore.errors import InvalidRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_SECONDS_MAX = 120
CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Site:
    """Where a measurement runs: `folder` on a real disk, `say` for a line of progress."""

    folder: Path
    say: Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What a measurement found.

    Attributes:
      rows: one per run, in the order of the runs.
      summary: what the measurement was made for.
      samples: the raw ones, which are kept beside as lines of JSON; none: the rows are raw enough.
      versions: of whatever else took part, for the environment.
    """

    rows: Sequence[Any]
    summary: Mapping[str, Any]
    samples: Iterable[object] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """One word of `python -m benchmarks`.

    Attributes:
      question: what it answers, for the list.
      minutes: how long it takes on two cores, about.
      measure: called with the site and the options by name.
      options: those of its own.
      quick: with `--quick`, the values of options that were not given; the result is no figure to
        publish, only a look at whether everything works.
      draw: makes plots of a result and its raw samples, by the file's stem.
    """

    name: str
    question: str
    minutes: float
    measure: Callable[..., Measured]
    options: Sequence[click.Option] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Result, Sequence[Any]], Mapping[str, Figure]] | None = None

    def command(self) -> click.Command:
        """The measurement as a command."""
        return click.Command(
            self.name,
            params=[*self.options, *_common_options(self.name, has_plots=self.draw is not None)],
            callback=self._run,
            help=f"{self.question} About {self.minutes:g} minutes.",
        )

    def _run(
        self,
        *,
        folder: Path,
        is_quick: bool,
        json_path: str | None,
        plot_folder: Path | None = None,
        **own: Any,
    ) -> None:
        require_real_file_system(folder)
        if is_quick:
            own |= {name: value for name, value in self.quick.items() if _is_default(name)}
        if json_path is None:
            json_path = f"{RESULTS}/{self.name}.json" if self._is_whole(is_quick) else "-"
        refuse_bad_target(json_path)
        code = code_name()
        found = self.measure(Site(folder, say), **own)
        result = Result(
            name=self.name,
            environment={
                **describe_environment(folder),
                **found.versions,
                "command": _command_line(self.name, own) + (" --quick" if is_quick else ""),
            },
            commit=code if code_name() == code else f"{code.removesuffix('+')}+",
            rows=list(found.rows),
            summary=dict(found.summary),
        )
        samples = list(found.samples)
        write_result(json_path, result, samples)
        say(msgspec.json.format(msgspec.json.encode(result.summary), indent=2).decode())
        if plot_folder is not None:
            self.plot(as_read(result), msgspec.to_builtins(samples), plot_folder)

    def _is_whole(self, is_quick: bool) -> bool:
        """Whether it is the measurement whose result is kept: nothing that has a default was said
        to be something else."""
        defaults = {each.name for each in self.options if each.name and not each.required}
        return not is_quick and all(map(_is_default, defaults))

    def plot(self, result: Result, samples: Sequence[Any], folder: Path) -> None:
        """Write the plots of a result, as it was read, and of its raw samples."""
        from benchmarks.charts import write_chart

        if self.draw is None:
            say(f"{self.name} has nothing to plot")
            return
        folder.mkdir(parents=True, exist_ok=True)
        for stem, figure in self.draw(result, samples).items():
            for path in write_chart(figure, folder / stem):
                say(f"plotted {path.name}")


def say(text: str) -> None:
    """A line for whoever waits."""
    click.echo(text, err=True)


def without_paths(error: Exception, folder: Path) -> str:
    """The first line of an error, which is published: without what a log says, and with words
    instead of this machine's folders, of which `folder` is that of the data."""
    line = str(error).partition("\n")[0].partition("; it wrote:")[0]
    return line.replace(str(folder), "DATA").replace(str(CHECKOUT), "CHECKOUT")


def option(*names: str, **settings: Any) -> click.Option:
    """An option of a measurement, its default shown."""
    return click.Option(list(names), show_default=settings.get("default") is not None, **settings)


def numbers_option(name: str, default: Sequence[int], text: str) -> click.Option:
    """An option of a measurement that takes several numbers, for `parse_numbers`."""
    return option(name, default=",".join(map(str, default)), metavar="N,...", help=text)


def parse_numbers(text: str, *, key: str, most: int) -> tuple[int, ...]:
    """Numbers from 1 on, separated by commas; each once, ascending.

    Raises:
      InvalidRequest: one is no number from 1 to `most`.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= most for word in words):
        raise InvalidRequest(f"{key} {text!r}: give numbers, each 1 to {most}, like 128,4096")
    return tuple(sorted({int(word) for word in words}))


def _common_options(name: str, *, has_plots: bool) -> list[click.Option]:
    plot = click.Option(
        ["--plot", "plot_folder"],
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="plots of the result go there, as PNG and SVG",
    )
    return [
        option(
            "--quick",
            "is_quick",
            is_flag=True,
            help=f"a look whether it works, within {QUICK_SECONDS_MAX} s; no figure to publish",
        ),
        click.Option(
            ["--dir", "folder"],
            type=click.Path(path_type=Path),
            default=lambda: Path(tempfile.gettempdir()),
            help="where the data lies while it runs, on a disk (default: the system's temporary "
            "folder)",
        ),
        option(
            "--json",
            "json_path",
            metavar="FILE",
            help="- is stdout, without raw samples (default: "
            f"{RESULTS}/{name}.json; with --quick or other values than the defaults: -)",
        ),
        *([plot] if has_plots else []),
    ]


def _is_default(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.DEFAULT


def _command_line(name: str, own: Mapping[str, Any]) -> str:
    """How to repeat it, without what was not said."""
    words = [
        f"{parameter.opts[0]} {shlex.quote(str(own[parameter.name]))}"
        for parameter in click.get_current_context().command.params
        if parameter.name in own and isinstance(own[parameter.name], int | float | str)
    ]
    return " ".join([f"python -m benchmarks {name}", *words])
