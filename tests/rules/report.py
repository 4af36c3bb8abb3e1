"""Writes the tests of each rule into docs/cancellation-rules.md: `python -m tests.rules.report`."""

import sys

from tests.rules.rules import PAGE, RuleBook, read_book, with_tests


def report(book: RuleBook) -> str:
    """How many rules are proved, and all faults, a line each."""
    proved = sum(rule.id in book.proofs for rule in book.rules)
    return "\n".join([f"{proved} of {len(book.rules)} rules are proved", *book.faults()])


def main() -> int:
    """Write the page anew; 1 when it still has faults, which only a person can mend."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tests(page, read_book().proofs), encoding="utf-8")
    book = read_book()
    sys.stdout.write(report(book) + "\n")
    return 1 if book.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
