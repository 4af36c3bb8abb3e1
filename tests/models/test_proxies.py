"""Which requests go through which proxy."""

import pytest

from knightcode.models.proxies import is_local, proxy_for

ENVIRON = {
    "HTTP_PROXY": "http://web:1",
    "https_proxy": "secure:2",
    "NO_PROXY": "skip.example, .dot.example,10.0.0.0/8,p.example:81",
}


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://api.example/v1", "http://web:1"),
        ("https://api.example/v1", "http://secure:2"),
        ("https://skip.example/v1", None),
        ("https://sub.skip.example/v1", None),
        ("https://noskip.example/v1", "http://secure:2"),
        ("https://a.dot.example/v1", None),
        ("http://10.1.2.3:8080/", None),
        ("http://p.example:81/", None),
        ("http://p.example:82/", "http://web:1"),
        ("http://localhost:11434/v1", None),
        ("http://127.0.0.1:1/", None),
        ("http://[::1]:1/", None),
        ("not a url", None),
    ],
)
def test_a_request_goes_through_the_proxy_that_the_environment_names(url: str, proxy: str | None) -> None:
    assert proxy_for(url, ENVIRON) == proxy


def test_the_setting_beats_the_variables() -> None:
    assert proxy_for("https://api.example", ENVIRON, "http://set:3") == "http://set:3"


def test_all_proxy_serves_what_no_other_variable_names() -> None:
    assert proxy_for("https://api.example", {"ALL_PROXY": "socks5://s:4"}) == "socks5://s:4"


def test_a_star_exempts_every_host() -> None:
    assert proxy_for("https://api.example", {**ENVIRON, "no_proxy": "*"}) is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.1.1.1", True),
        ("http://192.168.1.4:8000", True),
        ("http://[fd00::1]/", True),
        ("https://api.example", False),
        ("https://8.8.8.8", False),
        ("http://[broken", False),
        ("", False),
    ],
)
def test_loopback_and_private_addresses_are_local(url: str, local: bool) -> None:
    assert is_local(url) is local
