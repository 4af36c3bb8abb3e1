"""`server/*`.

Source: App Server, "server/diagnostics"; App Server notes, "Files, shells, extension UI, diagnostics".
"""

import os
import sys
import time
from typing import Final

from knightcode.app_server.connection import Connection
from knightcode.app_server.core.pending import Call
from knightcode_protocol import params, results
from knightcode_protocol.wire import Wire

PAYLOAD_FILES: Final = 0
PAYLOAD_BYTES: Final = 0
"""Nothing is spooled: large values are sent in place."""

INACTIVE_FACTORIES: Final = 0
"""No extension is kept for a later thread."""

_BEGAN: Final = time.monotonic()
"""When this process became a server: the handlers are loaded once, as its last part."""


def diagnostics(connection: Connection, call: Call, wanted: params.ServerDiagnosticsParams) -> Wire:
    """`server/diagnostics`: counters of the process, the same for every connection."""
    loaded, loading = connection.manager.counts()
    listings = connection.manager.listing_cost()
    memory = resident_bytes()
    return results.ServerDiagnosticsResult(
        rss_bytes=memory,
        heap_bytes=memory,  # what CPython's allocators hold cannot be asked without walking the heap
        loaded_threads=loaded,
        loading_threads=loading,
        payload_files=PAYLOAD_FILES,
        payload_bytes=PAYLOAD_BYTES,
        inactive_factories=INACTIVE_FACTORIES,
        uptime_ms=int((time.monotonic() - _BEGAN) * 1000),
        listing_files_opened=listings.files_opened,
        listing_bytes_scanned=listings.bytes_scanned,
    )


def resident_bytes(statm: str = "/proc/self/statm") -> int:
    """The process's memory that is in use now; its peak without a `statm`, 0 where neither can be told."""
    try:
        with open(statm, "rb") as pages:  # a file in memory: it cannot block
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _peak_bytes()


def _peak_bytes() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
