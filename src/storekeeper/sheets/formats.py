"""The text that a sheet shows for a number, by its number format (ECMA-376, part 1, 18.8.30)."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

Show = Callable[[float], str]

GENERAL = "General"
_BUILT_IN_CODES = """1 0|2 0.00|3 #,##0|4 #,##0.00|9 0%|10 0.00%|11 0.00E+00|14 yyyy-mm-dd
15 d-mmm-yy|16 d-mmm|17 mmm-yy|18 h:mm AM/PM|19 h:mm:ss AM/PM|20 h:mm|21 h:mm:ss
22 yyyy-mm-dd h:mm|37 #,##0|38 #,##0|39 #,##0.00|40 #,##0.00|45 mm:ss|47 mm:ss.0
48 ##0.0E+0|49 @"""
BUILT_IN = {
    int(number): code
    for number, code in (
        each.split(" ", 1) for each in _BUILT_IN_CODES.replace("\n", "|").split("|")
    )
}
"""The formats that a file need not have; 14 and 22 are dates as the reader's country has them, so
they are read as ISO 8601 does."""

_TOKEN = re.compile(
    r"""\\(?P<escaped>.)|"(?P<quoted>[^"]*)"|_.|\*.|\[(?P<elapsed>h+|m+|s+)\]|\[\$(?P<money>[^\]-]*)[^\]]*\]
    |\[[^\]]*\]|(?P<half>AM/PM|A/P)|(?P<date>y+|m+|d+|h+|s+)|(?P<digits>[0#?]+)|(?P<other>.)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_MAX_FORMAT_LENGTH = 255
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"

_Token = tuple[str, str]


def shower(code: str, *, is_1904: bool) -> Show:
    """Return what shows numbers in a format; what it cannot show, it shows as General does."""
    sections = [_tokens(part) for part in _sections(code[:_MAX_FORMAT_LENGTH])]
    if code.strip().lower() in ("general", "@", "") or len(code) > _MAX_FORMAT_LENGTH:
        return general
    if any(kind in ("date", "elapsed", "half") for kind, _ in sections[0]):
        return _dates(sections[0], is_1904=is_1904)
    if any(text.upper() == "E" or text == "/" for kind, text in sections[0] if kind == "other"):
        return general
    return _numbers(sections)


def general(number: float) -> str:
    """Return a number as a cell without a format shows it, with all its digits."""
    if number == int(number) and abs(number) < 10**20:
        return str(int(number))
    return format(number, ".15g")


def _sections(code: str) -> list[str]:
    """Return the parts of a format: for positive numbers, negative ones, and zero."""
    parts, start = [], 0
    for token in _TOKEN.finditer(code):
        if token["other"] == ";":
            parts.append(code[start : token.start()])
            start = token.end()
    return [*parts, code[start:]]


def _tokens(section: str) -> list[_Token]:
    found: list[_Token] = []
    for token in _TOKEN.finditer(section):
        kind = token.lastgroup
        if kind is None:
            continue
        is_text = kind in ("escaped", "quoted", "money")
        found.append(("text" if is_text else kind, token[kind]))
    return found


# Numbers.


def _numbers(sections: list[list[_Token]]) -> Show:
    def show(number: float) -> str:
        section, value = sections[0], number
        if number < 0 and len(sections) > 1:
            section, value = sections[1], -number
        elif number == 0 and len(sections) > 2:
            section = sections[2]
        if any(text.lower() == "general" for _, text in section):
            return general(number)
        return _in_digits(section, value)

    return show


def _in_digits(section: list[_Token], number: float) -> str:
    """Return a number with its digits in the places of a section, and the texts between."""
    if not any(kind == "digits" for kind, _ in section):
        return "".join(text for kind, text in section if kind in ("text", "other"))
    points = [place for place, token in enumerate(section) if token == ("other", ".")]
    point = points[0] if points else len(section)
    decimals = "".join(text for kind, text in section[point:] if kind == "digits")
    whole = section[:point]
    value = abs(number) * 100 ** sum(token == ("other", "%") for token in section)
    while whole and whole[-1] == ("other", ","):
        whole.pop()
        value /= 1000
    digits, _, fraction = format(value, f".{len(decimals)}f").partition(".")
    text = _fill(whole, digits)
    shown = _trimmed(fraction, decimals)
    rest = "".join(token for kind, token in section[point + 1 :] if kind in ("text", "other"))
    sign = "-" if number < 0 and (digits.strip("0") or fraction.strip("0")) else ""
    return f"{sign}{text}{'.' if points and shown else ''}{shown}{rest}".strip()


def _trimmed(fraction: str, places: str) -> str:
    """Return a fraction without the zeros at its end that its format leaves out."""
    kept = len(fraction)
    while kept and fraction[kept - 1] == "0" and places[kept - 1] != "0":
        kept -= 1
    return fraction[:kept]


def _fill(tokens: list[_Token], digits: str) -> str:
    """Return the digits of a whole number in the places of a format, from the right."""
    left = digits.lstrip("0")
    places = sum(len(text) for kind, text in tokens if kind == "digits")
    has_groups = ("other", ",") in tokens
    parts: list[str] = []
    count = 0
    for kind, text in reversed(tokens):
        if kind != "digits":
            if (kind, text) != ("other", ","):
                parts.append(text)
            continue
        for place in reversed(text):
            places -= 1
            take = len(left) if places == 0 else 1
            for digit in reversed(left[-take:] if take else ""):
                parts.append("," if has_groups and count and count % 3 == 0 else "")
                parts.append(digit)
                count += 1
            if not left and place == "0":
                parts.append("," if has_groups and count and count % 3 == 0 else "")
                parts.append("0")
                count += 1
            left = left[:-take] if take else left
    return "".join(reversed(parts))


# Dates.


def _dates(section: list[_Token], *, is_1904: bool) -> Show:
    has_half = any(kind == "half" for kind, _ in section)

    def show(number: float) -> str:
        moment = _moment(number, is_1904=is_1904)
        if moment is None:
            return general(number)
        parts = []
        for place, (kind, text) in enumerate(section):
            if kind == "date":
                is_minute = text[0] in "mM" and _is_of_time(section, place)
                parts.append(_date_part(moment, text.lower(), has_half, is_minute=is_minute))
            elif kind == "half":
                parts.append(moment.strftime("%p"))
            elif kind == "elapsed":
                parts.append(str(int(number * {"h": 24, "m": 1440, "s": 86400}[text[0].lower()])))
            elif kind == "digits":
                parts.append(f"{moment.microsecond:06}"[: len(text)])
            else:
                parts.append(text)
        return "".join(parts).strip()

    return show


def _is_of_time(section: list[_Token], place: int) -> bool:
    """Return whether an m stands next to hours or seconds, and means minutes."""
    kinds = [text[0].lower() for kind, text in section[:place] if kind in ("date", "elapsed")]
    after = [text[0].lower() for kind, text in section[place + 1 :] if kind in ("date", "elapsed")]
    return kinds[-1:] == ["h"] or after[:1] == ["s"]


def _moment(number: float, *, is_1904: bool) -> datetime | None:
    """Return the moment of a serial number; None if there is none."""
    # 1900 was not a leap year, but spreadsheets count its 29 February.
    base = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 + (number < 60))  # noqa: DTZ001 - sheets know no time zone
    try:
        return base + timedelta(seconds=round(number * 86400, 3))
    except (OverflowError, ValueError):
        return None


def _date_part(moment: datetime, text: str, has_half: bool, *, is_minute: bool) -> str:
    hour = (moment.hour % 12 or 12) if has_half else moment.hour
    number = {"d": moment.day, "h": hour, "s": moment.second, "m": moment.month}
    if text[0] == "y":
        return f"{moment.year:04}" if len(text) > 2 else f"{moment.year % 100:02}"
    if is_minute:
        number["m"] = moment.minute
    if text[0] in "md" and len(text) > 2 and not is_minute:
        names = (_MONTHS if text[0] == "m" else _DAYS).split()
        name = names[moment.month - 1 if text[0] == "m" else moment.weekday()]
        return name[:3] if len(text) == 3 else name
    return f"{number[text[0]]:02}" if len(text) > 1 else str(number[text[0]])
