"""What the heading of a column says that its cells are, in the languages of many lists."""

import re
import unicodedata
from functools import lru_cache

LINES = ("line 2", "line 3", "line 4", "line 5")
STRONG_ROLES = ("address", "street", "number", *LINES, "city", "place", "postcode")
"""The roles of columns without which an address is not whole."""

_WEAK_ROLES = ("district", "county", "state", "country", "region", "postcode 2", "number 2", "way")
ADDRESS_ROLES = (*STRONG_ROLES, *_WEAK_ROLES)
"""The roles of columns that are an address, or a part of one."""

_MAX_HEADING_LENGTH = 60
_MIN_PART_LENGTH = 4
"""Characters of a word that says what a longer heading means; shorter ones mean something else."""

_POSTCODE = "post ?code|zip|plz|cp|c p|cap|cep|postal code|postleitzahl|code ?postal|kod pocztowy"
_TOWN = "city|town|ort|stadt|ville|citta|miasto|ciudad|localidad|plaats|commune"
_STORE = "store|shop|branch|site|location|outlet|record|unit|dealer|restaurant|warehouse"
_STORE += "|customer|client|external|internal|legacy|our|loc|facility|station|account|entity|stop"
_STORE += "|plant|vendor|partner|supplier|depot|property|venue|place|company|business"
_STORE += "|partner location"
_FILIALE = "filial|filiale|filialen|markt|kunden|kunde|standort|betriebs|geschafts|laden|butik"
_FILIALE += "|butiks|butik|butikk|butikks|vestiging|vestigings|winkel|filiaal|objekt|debitoren"
_FILIALE += "|shop|store|werks|werk|lieferanten|apotheken|verkaufsstellen|niederlassungs"
_FILIALE += "|niederlassung"
_FILIALE += "|myymala|toimipaikka"
_TIENDA = "tienda|sucursal|local|centro|establecimiento|comercio|loja|filial|negozio|filiale"
_TIENDA += "|sede|punto vendita|pdv|cliente|estabelecimento|punto de venta|unidade|almacen"
_MAGASIN = "magasin|boutique|agence|client|etablissement|enseigne|site|commerce|point de vente"
_SKLEP = "sklepu|filii|placowki|salonu|prodejny|predajne|магазина|филиала|лавки|магазину"
_NUMBER = "id|ids|no|nr|num|number|nummer|numer|numero|nro|code|kod|codigo|codice|cod|key|ref|n"
_NUMBER += "|sifra"
_STREET_WORD = (
    "address|addr|add|adresse|adres|street|line|direccion|endereco|indirizzo|strasse|住所"
)

_PHRASES = {
    "version": "version",
    "other": r"""
        e ?mail\w*, mails?, courriel, correo\w*, url, web\w*, www, homepage, internet, phone\w*,
        tel, tele\w*, fax\w*, mobil\w*, movil, cell\w*, handy\w*, lat, latitud\w*, lon, lng, long,
        longitud\w*, breitengrad, langengrad, geo\w*, coord\w*, koord\w*, dates?, datum, fecha,
        data, opened, opening\w*, open, opens, closed, closing, closes, \w*offnungszeit\w*,
        horaires?, horario\w*, orari\w*, hours?, manager\w*, contact\w*, kontakt\w*,
        ansprechpartner\w*, \w*leiter\w*, leitung, \w*fuhrer\w*, responsable, gerente, encargad\w*,
        direttore, kierownik, owner\w*, inhaber\w*, status, active, aktiv\w*, actif, activ\w*,
        types?, typ, tipo, kategori\w*, categor\w*, class, format, kind, art, notes?, remarks?,
        comment\w*, bemerkung\w*, notiz\w*, notas?, uwagi, sqm, sq, qm, flache, surface, superficie,
        \w*umsatz\w*, sales, revenue, turnover, ventes, ventas, rent, miete, nickname, steuer\w*,
        ust\w*, vat, tax, tva, nip, iban, bic, konto\w*, account, area, created,
        (time|price|delivery|sales|fare) zone, timezone, zone id, zeitzone, seriennr, nr crt, s no,
        sr no, sl no, line number, (sales|trading|store) (region|area|district), vertriebs\w*,
        gebietsleit\w*, updated, modified, lfd( nr)?, lp, pos, position, rang, rank, zulassung\w*,
        \w*電話\w*, \w*メール\w*, 営業時間, 備考, 更新日, ファックス, 类型, \w*电话\w*, 联系人, \w*전화\w*, \w*телефон\w*,
        distan\w*, entfernung\w*, (number|count) of \w+, \w+ (lat|lng|lon),
        (entrega|servicio|envio) a domicilio, почта, τηλεφων\w*, טלפון, הטלפון, هاتف, الهاتف""",
    "postcode 2": r"(zip|postcode|zip code) (4|plus 4|ext\w*), plus 4",
    "postcode": rf"""
        {_POSTCODE}, postal, post ?codes?, zip ?codes?, psc, post ?n(ummer|umero|r|o), postinumero,
        cod ?pos(tal)?, pin, eircode, pin ?code, iranyitoszam, posta kodu, 郵便番号, 〒, 邮编, 邮政编码, 우편번호, (почтовый )?индекс,
        τκ, τ κ, ταχυδρομικος κωδικας, מיקוד, الرمز البريدي, codice postale, codigo de postal,
        codigo postal, postal zip code, zip postal( code)?, post zip( code)?, postanski broj,
        cod postal, ma buu chinh, รหัสไปรษณีย์, 郵遞區號, поштовий індекс, пощенски код, kode pos, zip5, postal ?code zip, p ?code""",
    "country": r"""
        countr(y|ies)( code| name| region| iso| region code)?, ctry, country territory, land,
        lander, pays, pais, paese, kraj, staat, nation, landet, drzava, statul, tara, країна, país,
        maa, ulke, orszag, zeme, 国, 国名, 国家, 국가, страна, χωρα""",
    "state": r"""
        (federal |us )?states?( code| name)?, (state )?provinc(e|ia)( code| name)?, state province,
        province state, state region, prov, bundesland, kanton, canton, departement, estado, entidad( federativa)?, uf, sigla ?provincia,
        wojewodztwo, prefecture, st, state or province, administrative area( level 1)?, provincie,
        都道府県, 省, 省份, область, край, province territory""",
    "county": "county( name)?, comte, comitat, judet, megye, fylke, lan",
    "region": r"""
        region\w*( code| name)?, reg, regiao, concelho, distrito, regione, gebiet, zone, bezirk, regio,
        регион, 地域, 地区""",
    "district": r"""
        suburb, neighbou?rhood, landmark, semt, quan( huyen)?, 区县?, 區域?, 行政區, colonia, bairro, barrio, ortsteil, stadtteil, quartier, ilce, frazione,
        sub ?locality, borough""",
    "number": r"""
        (street|house|building|civic) (number|no|nr|num), hausnummer, hausnr, haus nr, housenumber,
        numero civico, civico, huisnummer, huisnr, husnr, (numer|nr) (domu|budynku), husnummer, hazszam,
        num(ero)? ?(de )?(rue|voie), n (de )?(rue|voie), numero exterior, (num|no|n) ext(erior)?, 番地,
        дом, cislo (popisne|domu|orientacni), c p c o, αριθμος, будинок, kucni broj, numarul,
        n civico""",
    "number 2": r"""
        toevoeging, huis(nr|nummer) ?toevoeging, (hausnr|haus nr|hausnummer) ?zusatz, nr zusatz,
        indice de repetition, (house|street) number (suffix|addition)""",
    "way": "type? ?(de )?voie, tipo de via, clase (de )?vial?, street type, tipo logradouro, typ ulice",
    "line 5": rf"((street|store|mailing) )?({_STREET_WORD})( line)?( no)? 5",
    "line 4": rf"((street|store|mailing) )?({_STREET_WORD})( line)?( no)? 4",
    "line 3": rf"((street|store|mailing) )?({_STREET_WORD})( line)?( no)? 3",
    "line 2": rf"""
        ((street|store|mailing) )?({_STREET_WORD})( line)?( no)? 2, apartment( suite)?,
        address 2 line, additional address, adress ?zusatz, zusatz, suite, unit, apt, floor,
        gebaude, complement\w*( d adresse)?, complemento, building( name)?, 建物名?, ビル名, piso,
        address complement, (nr|numer) lokalu, second address line, etage, interior, bus,
        (num|no|n|numero) int(erior)?, adresszeile 2, adressezusatz, complement, apt suite,
        loja n""",
    "place": rf"""
        ({_POSTCODE}) ((and|und|et|i) )?({_TOWN}), ({_TOWN}) ((and|und|et|i) )?({_POSTCODE}),
        (city|town) (state|st)( zip| zip code| postcode)?, ligne ?acheminement""",
    "street": rf"""
        street( name)?, street address, streets, ({_STREET_WORD})( line)?( no)? 1, line 1,
        address line, adresszeile( 1)?, thoroughfare name,
        strassen?(name)?( (und|u))?( (hausnummer|hausnr|haus nr|nr|nummer))?, str, strasse 1,
        str( hausnr| haus nr| nr)?, rue, voie, (nom|libelle) (de )?(la )?(rue|voie),
        calle( y numero)?, via, viale, rua, logradouro, ulica( (i )?(nr|numer)( domu)?)?, ul, ulice,
        straat, straatnaam, straat (en )?huisnummer, gata, gatuadress, gatuadresse, gate, gade, vej,
        katu, katuosoite, gateadresse, cadde, sokak, utca, vejnavn, gatenavn, gatunamn, veinavn, strada,
        nume strada, via piazza, вулиця, ulica i broj, nombre (de )?(la )?(via|calle), nome da rua,
        улица, οδος, 丁目, 町名, 町名番地, 町域, 街道, road, thoroughfare, numero et (voie|rue)""",
    "city": r"""
        (post )?(city|town)( name)?, city (town|suburb)( village)?, town city, suburb city, ort,
        stadt, wohnort, ville, localite, (nom |libelle )?commune, ciudad, localidade, oras,
        oras localitate, grad, naselje, miestas, місто, град, kota, linn, delegacion municipio,
        alcaldia, comuna, localidad, poblacion, municipio, citta, ((descrizione|nome) ?)?comune, localita, cidade, miasto,
        miejscowosc, mesto, obec, plaats, woonplaats, gemeente, stad, by, poststed, kaupunki, sehir,
        varos, postitoimipaikka, postort, sted, thanh pho, kota kabupaten, จังหวัด, 縣市, 县市, город, πολη, 市区町村, 市町村, 市, 城市, 도시, locality, village,
        nom de (la )?ville, עיר, المدينة, ortschaft, il, municipality""",
    "address": r"""
        ((full|complete|store|shop|postal|mailing|shipping|delivery|visiting|location) )?addr,
        ((full|complete|store|shop|postal|mailing|shipping|delivery|visiting|location) )?address,
        (branch|site|business|facility) address, addresses, street and number, adressen?, adresas,
        alamat, адреса, aadress, adresse postale, postadresse, anschrift, standort ?adresse,
        post ?anschrift, post ?adresse, direccion( completa)?, domicilio, indirizzo( completo)?,
        endereco( completo)?, morada, adres( \w+)?, adresa, adress, osoite, cim, 住所, 所在地, 地址, 주소,
        адрес, διευθυνση, כתובת, العنوان, عنوان, adresse (complete|du magasin|du site),
        (vollstandige|volle) adresse, besoksadress\w*, forretningsadresse, dia chi, ที่อยู่,
        address full, formatted address, address street, 番地以降, filial ?adresse, geschafts ?adresse,
        店舗住所, 详细地址, 도로명 ?주소, 지번 ?주소""",
    "id": "id",
    "key": rf"""
        ({_STORE}) ({_NUMBER}), ({_STORE}) id (number|no), {_NUMBER.replace("|", ", ")}, sku,
        kennung, pk, kst, kostenstelle, gln, objectid, fid, oid, globalid, (global|osm|node) id,
        sifra( poslovnice)?, debitor, kreditor, siret, uuid, guid, matricule, kodi,
        cislo( prodejny)?, (numer|nr|no|kod|номер|код) ({_SKLEP}), cnpj, sube (kodu|no), kode toko,
        ma (cua hang|chi nhanh), (รหัส|เลขที่)(สาขา|ร้าน), 店號, 門市代號, 점포 ?(코드|번호),
        (رقم|رمز|كود) (الفرع|المتجر),
        ({_FILIALE}) ?(nummer|nr|no|code|kennung|id|nummern|numero),
        (numero|nr?|no|code|num|id|ref|reference) ((de|du|de la|de l|d) )?({_MAGASIN}),
        (codigo|cod|numero|nro|n|no|id|clave) ((de|de la|da|do|del) )?({_TIENDA}),
        (codice|cod|numero|n|id) ((del|della|di) )?({_TIENDA}), reference, 店舗コード, 店舗番号, 店番, コード, 番号,
        店舗id, 编号, 门店编号, 店铺编号, 门店代码, 번호, 관리번호, 코드, 매장코드, 매장 코드, 지점코드, номер, код, κωδικος, κωδ,
        magaza (kodu|no), azonosito, uzletszam, butiksnummer, duns""",
    "name": rf"""
        names?( \d)?, ({_STORE}|trading|display|retailer|legal|pharmacy|cafe|brand) name, title, plant,
        werk,
        (stores?|shops?|branch|branches|locations?|outlets?|sites?|dealers?|restaurants?|retailer),
        name of (the )?(store|shop|branch|location), ({_FILIALE}|firmen)?name, filial\w*, markt,
        geschaft, laden, standort, bezeichnung, betrieb, firma, nom( commercial)?, libelle,
        raison sociale, denomination( sociale)?, nom ((du|de la|de l|d) )?({_MAGASIN}),
        {_MAGASIN.replace("|", ", ")}, magasins, designation, nombre( (del?|de la) ({_TIENDA}))?,
        nome( (d[aoe]|del|della) ({_TIENDA}))?, unidade, tiendas?, sucursal, local, establecimiento,
        comercio, negozi?o?, punto vendita, lojas?, naam,
        (naam|nome|nimi) (winkel|filiaal|vestiging|da unidade|negozio), filiaalnaam, winkel(naam)?,
        vestiging(snaam)?, filiaal, nazwa( ({_SKLEP}))?, sklepy?, salon, placowka,
        nazev( prodejny)?, prodejna, namn, navn, butik(s?namn|s?navn)?, butikk(s?navn)?, nimi,
        myymala, magaza( adi)?, adi, ad, nev, uzlet( neve)?, sube( adi)?, ten (cua hang|chi nhanh), 店舗名, 店名, 店舗, 名称, 名前, 支店名, 店舗名称, 门店名称,
        门店, 店铺名称, 店铺, 매장명, 지점명, 이름, 매장, (사업장|업소|약국|상호|기관|시설)명, 상호, (название|наименование)( ({_SKLEP}))?, магазин, филиал,
        назва( магазину)?, найменування, naziv( poslovnice)?, poslovnica, trgovina, prodavnica,
        magazin, denumire( magazin)?, nazov( predajne)?, predajna, parduotuve, pavadinimas, kauplus,
        nama( toko)?, toko, ชื่อ, ชื่อ(ร้าน|สาขา), 門市名稱, 점포명?, اسم الفرع, الفرع, insegna, ragione sociale, razon social, nome fantasia,
        razao social, nombre comercial, nome comercial, nom d enseigne, ονομα, καταστημα, ονομασια,
        שם, סניף, الاسم, اسم, اسم المتجر, المتجر""",
}
_QUALIFIERS = (
    r"(the|our|store|shop|branch|location|site|outlet|business|physical|company|filial\w*"
    r"|address|addr|billing|shipping|delivery|mailing|registered|visiting)"
)
"""What may stand before a word that says what a column is."""

_OWNERS = r"(etablissement|du magasin|of (the )?(store|shop|branch)|der filiale|de la tienda)"
"""What may stand after it."""

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[^\W\d_])(?=\d)")
_BRACKETS = re.compile(r"\([^()]*[^()\d][^()]*\)|\[[^\[\]]*\]")
_SEPARATORS = re.compile(r"(?:[^\w\u0900-\u0eff]|_)+")
"""What stands between words; the vowels of India and Thailand do not, although `\\W` matches them."""

_LETTERS = str.maketrans(
    {"#": " no ", "№": " no ", "〒": " 郵便番号 ", "ı": "i", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O"}
    | {"đ": "d", "Đ": "D", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE"}
)
"""Letters and signs that cannot be split into a letter and a mark."""


def plain(text: str) -> str:
    """Return a heading as words without marks, capitals, brackets and punctuation."""
    spaced = _CAMEL.sub(" ", _BRACKETS.sub(" ", text.translate(_LETTERS)))
    return _SEPARATORS.sub(" ", _without_marks(spaced)).strip()


def _without_marks(text: str) -> str:
    if text.isascii():
        return text.casefold()
    folded = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in folded if not unicodedata.combining(each))


@lru_cache
def _phrases(role: str) -> list[str]:
    return [" ".join(_without_marks(each).split()) for each in _PHRASES[role].split(",")]


@lru_cache
def _whole(role: str) -> re.Pattern[str]:
    """Return what matches a whole heading."""
    before = "" if role == "id" else f"({_QUALIFIERS} )*"
    number = "" if role == "name" else r"( \d)?"  # `Shop 1` is a store
    return re.compile(rf"{before}({'|'.join(_phrases(role))}){number}( (1 )?{_OWNERS})?")


@lru_cache
def _part(role: str) -> re.Pattern[str]:
    """Return what finds a role in a longer heading."""
    phrases = [each for each in _phrases(role) if len(each) >= _MIN_PART_LENGTH]
    return re.compile(rf"(?<!\w)({'|'.join(phrases or _phrases(role))})(?!\w)")


@lru_cache(20_000)  # as many as a file may have columns, and some
def role_of(heading: str) -> str:
    """Return the role of a column by its heading, "" if nothing says it."""
    text = plain(heading[:_MAX_HEADING_LENGTH])
    if not text:
        return ""
    for role in _PHRASES:
        if _whole(role).fullmatch(text):
            return role
    return next((role for role in _PHRASES if _part(role).search(text)), "")


@lru_cache(1000)
def is_heading(cell: str) -> bool:
    """Return whether a cell is nothing but the heading of a column."""
    text = plain(cell) if len(cell) <= _MAX_HEADING_LENGTH else ""
    return bool(text) and any(_whole(role).fullmatch(text) for role in _PHRASES)
