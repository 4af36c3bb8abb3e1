"""The numbers that a compaction goes by.

Source: Compaction, "Settings".
"""

import attrs


@attrs.frozen
class CompactionSettings:
    """The settings `compaction.*` as they hold for one model. Tokens.

    Attributes:
        enabled: of automatic compaction; that on request always works.
        reserve_tokens: room kept for the reply; the summary's length follows from it.
        keep_recent_tokens: of the newest context, kept word for word.
    """

    enabled: bool = True
    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000
