"""Settings of the whole suite: Hypothesis profiles. Fixtures live beside what uses them."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import settings

# Derandomised in CI, so that a red run there is red everywhere; a developer's runs explore.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("deep", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# Spark is in an environment of its own: `make test-spark`. Elsewhere its tests are not collected.
collect_ignore = [] if find_spec("pyspark") else ["spark"]
