"""A file's bytes as text: UTF-8, or why it is not, by name and line."""

import codecs

MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"SQLite format 3", "a database"),
)
"""How files begin that are no JSON text."""


def decode(body: bytes) -> tuple[str, str]:
    """The text without its byte-order mark, and nothing; or nothing, and why it is none."""
    for mark, kind in MARKS:
        if body.startswith(mark):
            return "", f"expected UTF-8, found {kind}"
    if (null := body.find(b"\0")) >= 0:
        guess = "; it may be UTF-16" if body[:4].count(b"\0") in (1, 2, 3) else ""
        return "", f"line {_line(body, null)}: a NUL byte, which no JSON text has{guess}"
    try:
        return body.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = _line(body, error.start)
        return "", f"line {line}: byte {error.start}: not UTF-8 (0x{body[error.start]:02X})"


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1
