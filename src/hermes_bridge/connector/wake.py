"""Wake a sleeping gateway: one GET without a payload, of an address that its owner configured."""

import asyncio
import http.client
import urllib.error
import urllib.request

_TIMEOUT_S = 10


async def poke(url: str) -> str:
    """Call `url`; give what went wrong in a word, or an empty text."""
    return await asyncio.to_thread(_get, url)


def _get(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        return "not an http address"
    request = urllib.request.Request(url, headers={"User-Agent": "hermes-bridge"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return type(error).__name__
