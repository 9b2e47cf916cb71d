"""Which encodings a text may have that does not say it: those that decode it, and how well what
they make of it can be read."""

import re
import unicodedata
from collections.abc import Iterable
from typing import IO

from storekeeper.sheets.look_types import Candidate

MAX_EXAMPLE_LENGTH = 120
"""Characters of the example line of an encoding."""

_MAX_BYTES = 256 * 1024
_MAX_LINE_BYTES = 64 * 1024
_MAX_EXAMPLES = 20

_CANDIDATES = (
    "cp1252",
    "cp1250",
    "cp1254",
    "cp1257",
    "mac-roman",
    "cp1255",
    "cp1251",
    "koi8-r",
    "cp1253",
    "cp1256",
    "cp1258",
    "cp874",
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "cp949",
    "iso8859-2",
    "cp850",
    "cp852",
    "cp866",
    "cp437",
)
"""In their order if they can be read equally well: the first is the most frequent. Hebrew stands
before Cyrillic, because its letters are also Cyrillic ones, but not the other way round."""

_ALPHABETS = (
    "äöüß",
    "éèêëàâçôîïûùœæÿ",
    "áéíóúñü",
    "ãõáéíóúâêôçà",
    "àèéìòùî",
    "åäöøæé",
    "ąćęłńóśźż",
    "áčďéěíňóřšťúůýžľĺŕäô",
    "áéíóöőúüű",
    "ăâîșțşţ",
    "çğıöşüâîi̇",
    "čćđšž",
    "ąčęėįšųūž",
    "āčēģīķļņšūž",
    "äöõüšž",
    "ăâêôơưđ",
)
"""The letters after a to z of German, French and others."""

_ICELANDIC = "áéíóúýþæöð"
_VOWELS = set("аеёиоуыэюяіїєαειηουωάέήίόύώϊ")
_PUNCTUATION = set("\u00a0“”„‘’‚–—…€£°§®™·«»½²´º‐•、。「」・ー（）－，：　々")
_MISPLACED = re.compile("(?<=[^\\W\\d_])([‚„]|[“”»«°€£§®™½‰•](?=[^\\W\\d_]))")
"""Punctuation within a word, or at its end, that no person writes there: it is a letter in another
encoding."""

_COMMON = (
    "店市区町村県都府道丁目番地大中小山田川東西南北京阪神本駅前通ビル号路街省县镇门国上海广"
    "州處處理理店場號縣樓臺灣鎮路街段巷弄門점시구동로길서울부산매장역대한본"
)
"""Characters of names and addresses in East Asia."""
_WIDE = {"cp932", "euc_jp", "gb18030", "big5", "cp949"}
_KANA = re.compile("[\u3041-\u30fa\u30fc]")
_WORD = re.compile(r"[^\W\d_]+")


def candidates(file: IO[bytes]) -> list[Candidate]:
    """Return the encodings that a file may have which is not UTF-8, the most likely first, each
    with a line of the file as it has it."""
    lines = _foreign_lines(file)
    data = b"\n".join(lines)
    found = []
    for order, encoding in enumerate(_CANDIDATES):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        found.append((-round(_readability(text, encoding), 2), order, encoding, text))
    return [
        Candidate(encoding, _example(text.split("\n"))) for _, _, encoding, text in sorted(found)
    ]


def _foreign_lines(file: IO[bytes]) -> list[bytes]:
    """Return the first lines of a file that are not ASCII."""
    file.seek(0)
    found: list[bytes] = []
    size = 0
    while size < _MAX_BYTES and (line := file.readline(_MAX_LINE_BYTES)):
        parts = [part for part in line.splitlines() if not part.isascii()]
        found += parts
        size += sum(map(len, parts))
    return found


def _example(lines: Iterable[str]) -> str:
    """Return the one of the first lines that shows most of what an encoding makes of it."""
    shown = [line.strip()[:MAX_EXAMPLE_LENGTH] for line in lines][:_MAX_EXAMPLES]
    return max(shown, key=_foreign_letters, default="")


def _foreign_letters(line: str) -> int:
    return sum(each > "\x7f" and each.isalpha() for each in line)


def _readability(text: str, encoding: str) -> float:
    """Return how much of a text is what people write, 1 at most."""
    foreign = [each for each in text if each > "\x7f" and each not in _PUNCTUATION]
    misplaced = len(_MISPLACED.findall(text))
    if not foreign and not misplaced:
        return 1.0
    letters = [each for each in foreign if each.isalpha()]
    odd = len(foreign) - len(letters) + misplaced
    broken = sum(map(_is_broken, _WORD.findall(text)))
    return (_known(letters, encoding) - odd - broken) / (len(foreign) + misplaced)


def _known(letters: list[str], encoding: str) -> float:
    """Return how many of these letters people write in the languages of an encoding."""
    if encoding in _WIDE:
        return _known_wide(letters, encoding)
    return _known_narrow([each.lower() for each in letters])


def _known_narrow(letters: list[str]) -> float:
    """Return how many of these letters belong to the one language that has most of them."""
    counts = [sum(each in alphabet for each in letters) for alphabet in _ALPHABETS]
    best: float = max(counts)
    # What few people write comes after what is as likely by its letters.
    best = max(best, 0.99 * sum(each in _ICELANDIC for each in letters))
    scripts = [_script(each) for each in letters]
    for script in ("CYRILLIC", "GREEK", "HEBREW", "ARABIC", "THAI"):
        count = scripts.count(script)
        if script in ("CYRILLIC", "GREEK") and letters:
            vowels = sum(each in _VOWELS for each in letters)
            if not 0.25 < vowels / len(letters) < 0.65:
                count //= 2
        best = max(best, count)
    return best


def _known_wide(letters: list[str], encoding: str) -> float:
    """Return how many of these letters are frequent in the language of an encoding; kana and
    characters of addresses count more than others."""
    total = 0.0
    for each in letters:
        lead = each.encode(encoding)[0]
        if each in _COMMON or _KANA.match(each):
            total += 1.0
        elif _is_frequent(lead, encoding, each):
            total += 0.8
    return total


def _is_frequent(lead: int, encoding: str, letter: str) -> bool:
    match encoding:
        case "cp932":
            return 0x88 <= lead <= 0x98
        case "euc_jp":
            return 0xB0 <= lead <= 0xCF
        case "gb18030":
            return 0xB0 <= lead <= 0xD7
        case "big5":
            return 0xA4 <= lead <= 0xC6
        case _:
            return 0xB0 <= lead <= 0xC8 and "\uac00" <= letter <= "\ud7a3"


def _is_broken(word: str) -> bool:
    """Return whether no person writes such a word: with letters of two scripts, or capitals after
    small letters."""
    if word.isascii():
        return False
    scripts = {_script(each) for each in word}
    if len(scripts) > 1 and not scripts <= {"CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH"}:
        return True
    return not (word.islower() or word.isupper() or word == word.lower() or word[1:].islower())


def _script(letter: str) -> str:
    return "LATIN" if letter <= "\x7f" else unicodedata.name(letter, "?").partition(" ")[0]
