"""What the long runs count is printed at their end."""

import pytest

SWEEPS = pytest.StashKey[dict[tuple[str, str], int]]()


@pytest.fixture
def sweeps(request: pytest.FixtureRequest) -> dict[tuple[str, str], int]:
    """By scenario and injection: how often the injection came to be."""
    return request.config.stash.setdefault(SWEEPS, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counted = config.stash.get(SWEEPS, None)
    if counted:
        scenarios = len({scenario for scenario, _ in counted})
        terminalreporter.write_line(f"{sum(counted.values())} injections into {scenarios} scenarios")
