"""`python -m benchmarks [--rounds N] [WORD]`: a table of medians and of ratios within this run.

Readings of the product and of the floor are taken in turns, so that what the machine does besides
hits both. A time by itself says nothing about another machine; the ratio does.
"""

import argparse
import statistics
import sys
import time

from benchmarks.arena import WHO, Arena, Who, open_arena
from benchmarks.measures import MEASURES, Measure

LIMIT_SECONDS = 110.0
"""No further measure begins after this; what is left out is named."""


def measure(arena: Arena, row: Measure, rounds: int) -> dict[Who, list[float]]:
    """Readings of both, in turns; a first one of each only warms up."""
    readings: dict[Who, list[float]] = {who: [] for who in WHO}
    for turn in range(rounds + 1):
        for who in WHO:
            reading = row.reading(arena, who)
            if turn:
                readings[who].append(reading)
    return readings


def describe(row: Measure, readings: dict[Who, list[float]]) -> str:
    """The table's line of one measure."""
    product, floor = (statistics.median(readings[who]) for who in WHO)
    ratio = f"{product / floor:.2f} ×" if floor > 0 else "–"
    return (
        f"| {row.name:<41} | {_number(product):>7} {row.unit} | {_number(floor):>7} {row.unit} "
        f"| {ratio:>8} | {row.budget.text():>13} {row.unit} | {row.budget.verdict(product):<6} "
        f"| {len(readings['product']):>2} |"
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def main() -> int:
    """Measure and print; exits with 1 when a server said something wrong, whatever it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("word", nargs="?", default="", help="only measures with this in their name")
    parser.add_argument("--rounds", type=int, help="readings of each, instead of each measure's own number")
    options = parser.parse_args()
    begun = time.monotonic()
    print(f"| {'':<41} | {'product':>10} | {'floor':>10} | {'ratio':>8} | {'budget':>16} |        |  n |")
    print(f"|{'-' * 43}|{'-' * 11}:|{'-' * 11}:|{'-' * 9}:|{'-' * 17}:|--------|---:|")
    with open_arena() as arena:
        for row in MEASURES:
            if options.word not in row.name:
                continue
            if time.monotonic() - begun > LIMIT_SECONDS:
                print(f"{row.name}: left out, the run has taken {LIMIT_SECONDS:g} s already", file=sys.stderr)
                continue
            print(describe(row, measure(arena, row, options.rounds or row.rounds)), flush=True)
    print(
        "\nMedians of n readings taken in turns. Floor: trio and msgspec, doing only this "
        "(benchmarks/floor.py).\nBudget: the design's, for a machine with two cores; `below`: better than "
        "what it wants in the end."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
