"""The life of a start, phase by phase, as one table.

Source: App Server notes, "Admission and the life of a start".
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal

import attrs


class Phase(IntEnum):
    """Where a start is. A start only moves forward; it may skip what it has no need of."""

    ADMITTED = 0
    LOADING = 1
    WAITING = 2
    INPUT = 3
    CHECKING = 4
    COMPACTING = 5
    PREPARING = 6
    RUNNING = 7
    SETTLED = 8


@attrs.frozen
class Row:
    """What holds in one phase.

    Attributes:
        does: what happens in it.
        interrupt: what an interrupt makes of it: the start is answered `cancelled` and launches nothing;
            the turn ends `interrupted`; or it is too late, and the outcome stands.
    """

    does: str
    interrupt: Literal["cancelled", "interrupted", "stands"]

    @property
    def accepted(self) -> bool:
        """Whether the start has become a turn by then."""
        return self.interrupt != "cancelled"


PHASES: Mapping[Phase, Row] = {
    Phase.ADMITTED: Row("the params are whole, the admission is taken", "cancelled"),
    Phase.LOADING: Row("the thread is loaded, images are read", "cancelled"),
    Phase.WAITING: Row("waits for what must not run beside a start: see `Lane.hold`", "cancelled"),
    Phase.INPUT: Row("`input` handlers, which run to their end whatever happens", "cancelled"),
    Phase.CHECKING: Row("a model and its credentials", "cancelled"),
    # Here the start is accepted, in one step: marker, answer, `turn/started`.
    Phase.COMPACTING: Row("compaction before the run", "interrupted"),
    Phase.PREPARING: Row("`before_agent_start` handlers, which run to their end", "interrupted"),
    Phase.RUNNING: Row("requests, tools, waits for another try", "interrupted"),
    # Here the turn is settled, in one step: items, marker, `turn/completed`.
    Phase.SETTLED: Row("`agent_settled` handlers, and what they begin", "stands"),
}
"""While work is in any phase, a second start is refused with `turnInProgress`. The one exception is a
compaction that was asked for on its own: one start may wait behind it."""
