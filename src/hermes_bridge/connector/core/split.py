"""Cut a long text into messages: at paragraphs, lines, words; code fences are mended."""

_FENCE = "```"
_LANGUAGE = 20
_ENOUGH = 4  # a cut must leave at least a quarter of the room used


def split(text: str, limit: int) -> list[str]:
    """Give `text` in pieces of at most `limit` characters. Blank text gives no piece."""
    if not text.strip():
        return []
    pieces: list[str] = []
    rest, opened = text, ""
    while rest:
        if len(opened) + len(rest) <= limit:
            pieces.append(opened + rest)
            break
        room = limit - len(opened) - len(_FENCE) - 1
        head, rest = _cut(rest, room)
        fence = _open_fence(opened + head)
        pieces.append(opened + head + (f"\n{_FENCE}" if fence else ""))
        opened = f"{fence}\n" if fence else ""
    return [piece for piece in pieces if piece.strip()]


def shorten(text: str, limit: int, note: str) -> str:
    """Give `text` cut to `limit` characters with `note` at its end, or as it is."""
    return text if len(text) <= limit else text[: limit - len(note)] + note


def _cut(text: str, room: int) -> tuple[str, str]:
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, room // _ENOUGH, room + 1)
        if at > 0:
            return text[:at], text[at + len(mark) :]
    return text[:room], text[room:]


def _open_fence(text: str) -> str:
    """Give the opening line of the code fence that `text` leaves open, or an empty text."""
    fence = ""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith(_FENCE):
            language = stripped.removeprefix(_FENCE)
            short = len(language) <= _LANGUAGE and not language.count(" ")
            fence = "" if fence else _FENCE + (language if short else "")
    return fence
