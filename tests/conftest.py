"""What holds for every test: how property tests run."""

from hypothesis import HealthCheck, settings

# The machine is shared, so a slow example is no finding; the examples are the same in every run.
settings.register_profile(
    "project",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("project")
