"""Prints how many promises of each area are proved: `python -m tests.promises.report`."""

import sys
from collections import Counter

from tests.promises.manifest import Manifest, read_manifest


def report(manifest: Manifest) -> str:
    """One line per area, in the order of the files, and a last one for all."""
    total = Counter(promise.area for promise in manifest.promises)
    proved = Counter(promise.area for promise in manifest.promises if promise.id in manifest.proved)
    width = max((len(area) for area in total), default=0)
    lines = [f"{area:<{width}}  {proved[area]:>4} / {count}" for area, count in total.items()]
    return "\n".join([*lines, f"{'all':<{width}}  {proved.total():>4} / {total.total()}"])


if __name__ == "__main__":
    sys.stdout.write(report(read_manifest()) + "\n")
