"""Every bound of the protocol by name. Byte limits count UTF-8 bytes, lengths count code points.

Source: app server, "Limits and client reference".
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- transport ----------------------------------------------------------------------------------

MAX_LINE_BYTES: Final = 64 * MIB
"""Of one line to the server, its line end excluded. A longer one is dropped."""

MAX_PENDING_OUTPUT_BYTES: Final = 64 * MIB
"""Of output that a client has not read yet. Beyond it the connection is aborted."""

MAX_NESTING: Final = 128
"""Arrays and objects inside each other in one line; what the protocol itself needs is below ten."""

# --- responses and inline values ----------------------------------------------------------------

MAX_RESPONSE_BYTES: Final = 1 * MIB
"""Of one history or list response, envelope included."""

ENVELOPE_RESERVE_BYTES: Final = 8 * KIB
"""Kept free of a history or list response for everything but its page."""

MAX_INLINE_BYTES: Final = 64 * KIB
"""Of one turn or item written in place."""

MAX_DELTA_BYTES: Final = 64 * KIB
"""Of one delta; longer ones are split between code points."""

MAX_PAGE_TURNS: Final = 50
MAX_LIST_LIMIT: Final = 200
DEFAULT_LIST_LIMIT: Final = 50
MAX_ERROR_MESSAGE: Final = 2_000
"""Code points of the message of an error response, and of a failed turn's in summaries; more is cut."""

# --- inputs -------------------------------------------------------------------------------------

MAX_CLIENT_NAME: Final = 200
MAX_OPT_OUTS: Final = 256
MAX_TOKEN: Final = 128
"""Code points of a client's own tokens, `requestId` and `clientMessageId`."""

MAX_IMAGE_BYTES: Final = 20 * MIB
"""Of one input image, decoded."""

MAX_THREAD_NAME: Final = 200
MAX_TITLE: Final = 80
"""Code points of a name taken from a thread's first message."""

MAX_DECLINE_MESSAGE: Final = 4_000
"""Code points of the reason given with a declined call; more is cut."""

# --- extension UI -------------------------------------------------------------------------------

MAX_WIDGET_BYTES: Final = 16 * KIB
MAX_WIDGETS: Final = 16
MAX_STATUSES: Final = 50
MAX_UI_KEY: Final = 128
MAX_UI_TEXT: Final = 200
"""Code points of a status, the title and the working message; more is cut."""
