"""Which proxy a request goes through, from the environment. Pure.

Source: settings, "Network and retry".
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(url: str, environ: Mapping[str, str], http_proxy: str | None = None) -> str | None:
    """The proxy's URL for a request to `url`, None for a direct connection.

    `<scheme>_proxy`, then `all_proxy`, in either case, lower case first; `no_proxy` lists host names
    (with their subdomains), addresses, networks, `host:port`, or `*`. A proxy without a scheme is an
    HTTP proxy. The machine itself is never reached through a proxy: it would be another machine.

    Args:
        http_proxy: the setting; stands for HTTP_PROXY and HTTPS_PROXY.
    """
    target = urlsplit(url)
    host = (target.hostname or "").rstrip(".")
    if not host or is_loopback(host):
        return None
    proxy = http_proxy or _variable(environ, f"{target.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy or _is_exempt(host, target.port, _variable(environ, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_local(base_url: str) -> bool:
    """Whether a base URL points to this machine or to a private network's address."""
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    if is_loopback(host):
        return True
    address = _address(host)
    return (
        address is not None and (address.is_private or address.is_link_local) and not address.is_unspecified
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_exempt(host: str, port: int | None, listed: str) -> bool:
    return any(_matches(host, port, entry.strip().lower()) for entry in listed.split(",") if entry.strip())


def _matches(host: str, port: int | None, entry: str) -> bool:
    if entry == "*":
        return True
    name, _, wanted_port = entry.rpartition(":")
    if name and wanted_port.isdigit() and "]" not in wanted_port and name.count(":") == 0:
        if port is not None and port != int(wanted_port):
            return False
        entry = name
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            return False
    name = entry.removeprefix("*").removeprefix(".")
    return host == name or host.endswith(f".{name}")
