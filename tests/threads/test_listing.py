"""Pages of a listing, and how long their snapshots last."""

import base64

import pytest
import trio
from trio.testing import MockClock

from knightcode.threads.listing import SNAPSHOT_SECONDS, SNAPSHOTS, Filters, Listing, ListPage, ThreadRow
from knightcode.threads.notices import NotLoaded
from knightcode.threads.turn import ThreadError

ALL: Filters = (None, False)


def row(number: int, updated_at: str = "2027-04-09T06:31:52.480Z") -> ThreadRow:
    return ThreadRow(f"t{number}", "/srv", "name", NotLoaded(), "2027", updated_at, 1)


def cursor_of(page: ListPage) -> str:
    assert page.next_cursor is not None
    return page.next_cursor


async def more(listing: Listing, cursor: str, filters: Filters = ALL, limit: int = 1) -> ListPage:
    """The page that a later request gets: other tasks have run in between."""
    await trio.lowlevel.checkpoint()
    return listing.more(cursor, filters, limit)


async def refused(listing: Listing, cursor: str, filters: Filters = ALL) -> str:
    with pytest.raises(ThreadError) as caught:
        await more(listing, cursor, filters)
    return caught.value.code


async def test_pages_go_from_the_last_update_down_and_then_by_id() -> None:
    """App Server notes: thread/list."""
    rows = [row(3, "2027-01-01"), row(2, "2027-01-02"), row(1, "2027-01-01"), row(4, "2027-01-03")]
    listing = Listing()
    first = listing.first(rows, ALL, 3)
    second = await more(listing, cursor_of(first), limit=3)
    assert [one.id for one in (*first.rows, *second.rows)] == ["t4", "t2", "t1", "t3"]
    assert (len(first.rows), second.next_cursor) == (3, None)


def test_a_listing_that_fits_on_a_page_has_no_cursor() -> None:
    assert Listing().first([row(1), row(2)], ALL, 2) == ListPage((row(1), row(2)))


async def test_a_limit_may_change_from_page_to_page_but_filters_may_not() -> None:
    listing = Listing()
    first = listing.first([row(number) for number in range(9)], ALL, 2)
    assert len((await more(listing, cursor_of(first), limit=5)).rows) == 5
    assert await refused(listing, cursor_of(first), ("/srv", False)) == "invalidCursor"
    assert await refused(listing, cursor_of(first), (None, True)) == "invalidCursor"


async def test_a_snapshot_lasts_five_minutes_from_its_last_use(mock_clock: MockClock) -> None:
    listing = Listing()
    cursor = cursor_of(listing.first([row(1), row(2), row(3)], ALL, 1))
    for _ in range(3):
        mock_clock.jump(SNAPSHOT_SECONDS - 1)
        await more(listing, cursor)
    mock_clock.jump(SNAPSHOT_SECONDS)
    assert await refused(listing, cursor) == "invalidCursor"


async def test_of_more_than_thirty_two_snapshots_the_one_that_was_not_used_longest_goes() -> None:
    listing = Listing()
    rows = [row(1), row(2)]
    cursors = [cursor_of(listing.first(rows, ALL, 1)) for _ in range(SNAPSHOTS)]
    await more(listing, cursors[0])
    listing.first(rows, ALL, 1)
    assert await refused(listing, cursors[1]) == "invalidCursor"
    assert await more(listing, cursors[0]) == ListPage((row(2),))


@pytest.mark.parametrize("offset", [0, -1, 3, 10**30, '"1"', "1.5", "null"])
async def test_a_cursor_that_leads_out_of_its_snapshot_is_refused(offset: object) -> None:
    listing = Listing()
    good = cursor_of(listing.first([row(1), row(2), row(3)], ALL, 1))
    data = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
    assert data.count(b'"o":1') == 1
    forged = data.replace(b'"o":1', f'"o":{offset}'.encode())
    assert await refused(listing, base64.urlsafe_b64encode(forged).rstrip(b"=").decode()) == "invalidCursor"


@pytest.mark.parametrize("cursor", ["", "!", "é", "e30", base64.urlsafe_b64encode(b'{"k":"h"}').decode()])
async def test_what_is_no_cursor_of_a_listing_is_refused(cursor: str) -> None:
    assert await refused(Listing(), cursor) == "invalidCursor"
