"""Which Java Spark will start, and whether it is new enough; as a program it prints the path.

Owns the search, which is Spark's own: JAVA_HOME if it is set, else PATH. Knows nothing of pyspark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

from logstore.errors import ConfigError

JAVA_MIN = 17
_INSTALL = (
    f"install Java {JAVA_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) "
    "or set JAVA_HOME to one"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 60.0


def find_java(environment: Mapping[str, str]) -> str:
    """Path of the `java` that Spark starts in this environment.

    Raises:
      ConfigError: there is none, or it is too old; one line that says what to install.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        path = shutil.which("java", path=os.path.join(home, "bin"))
        where = f"JAVA_HOME is {home}, "
    else:
        path = shutil.which("java", path=environment.get("PATH", ""))
        where = ""
    if path is None:
        raise ConfigError(f"Spark needs Java: {where or 'PATH has none, '}{_INSTALL}")
    version = _version_of(path, environment)
    if version < JAVA_MIN:
        found = f"{path} is Java {version}" if version else f"{path} does not tell its version"
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer: {where}{found}; {_INSTALL}")
    return path


def _version_of(java: str, environment: Mapping[str, str]) -> int:
    """Major version; 0 if it does not say."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr) or _VERSION.search(answer.stdout)
    return int(match[1]) if match else 0


def main() -> int:
    """Print the path, or say what is missing; the exit status."""
    try:
        print(find_java(os.environ))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
