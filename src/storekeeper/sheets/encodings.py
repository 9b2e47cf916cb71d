"""The encodings of text files, a closed list: Python remembers every other name that it is asked
for."""

import codecs
from encodings import aliases, normalize_encoding

from storekeeper.sheets import BadFile

MAX_ENCODING_LENGTH = 40
"""Characters of the name of an encoding."""

_FAMILIES = {
    "": "ascii latin_1 koi8_r koi8_u koi8_t kz1048 tis_620"
    " shift_jis shift_jis_2004 shift_jisx0213 euc_jp euc_jis_2004 euc_jisx0213"
    " gb2312 gbk gb18030 big5 big5hkscs euc_kr johab",
    "utf_": "8 8_sig 16 16_le 16_be 32 32_le 32_be",
    "cp": "1250 1251 1252 1253 1254 1255 1256 1257 1258 1125 437 720 737 775 850 852 855 857 858"
    " 860 861 862 863 864 865 866 869 874 932 949 950",
    "iso8859_": "2 3 4 5 6 7 8 9 10 11 13 14 15 16",
    "mac_": "roman latin2 romanian croatian turkish greek iceland cyrillic arabic farsi",
}

NAMES = frozenset(family + name for family, names in _FAMILIES.items() for name in names.split())
"""The names, as Python's modules of encodings have them."""

_OTHER_NAMES = {
    "iso8859_1": "latin_1",
    "windows_874": "cp874",
    "windows_31j": "cp932",
    "x_sjis": "shift_jis",
    "x_mac_roman": "mac_roman",
}
"""Names that other programs use, and that Python does not know."""


def check_encoding(name: str) -> str:
    """Return Python's name of an encoding. Raises BadFile."""
    spelled = normalize_encoding(name[: MAX_ENCODING_LENGTH + 1]).lower()
    known = _OTHER_NAMES.get(spelled) or aliases.aliases.get(spelled, spelled)
    if known not in NAMES or len(name) > MAX_ENCODING_LENGTH:
        raise BadFile(f"no such encoding: {name[:MAX_ENCODING_LENGTH]!r}", "encoding", "cp1252")
    return codecs.lookup(known).name
