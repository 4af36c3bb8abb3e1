"""What the long runs count is printed at their end."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def sweeps(request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, str], int]]:
    """By scenario and injection: how often the injection came to be."""
    counted: dict[tuple[str, str], int] = {}
    yield counted
    scenarios = len({scenario for scenario, _ in counted})
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(
            f"\n{sum(counted.values())} injections into {scenarios} scenarios, no violation of any invariant"
        )
