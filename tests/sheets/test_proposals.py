"""What is proposed for lists as many programs and countries have them."""

from typing import NamedTuple

import pytest

from tests.sheets.looking import look

_ROWS = 12


class List(NamedTuple):
    """A list: its header, a row in which # stands for the number of the row, and what is proposed
    for it."""

    header: str
    row: str
    name: str | None
    address: str | None
    match: str | None
    header_row: int = 1


def _data(case: List) -> str:
    rows = [case.row.replace("#", str(number)) for number in range(1, _ROWS + 1)]
    return "\n".join([case.header, *rows, ""])


PROGRAMS = {
    "Toast": List(
        "Location ID,Location Name,Restaurant GUID,Address Line 1,City,State,Zip Code,Time Zone",
        "10#,Joe's #,3f2504e0-4f89-#,# Main St,Boston,MA,0211#,America/New_York",
        "Location Name",
        "{Address Line 1}, {City}, {State} {Zip Code}",
        "Location ID",
    ),
    "Google": List(
        "Store code,Business name,Address line 1,Address line 2,Sub-locality,Locality"
        ",Administrative area,Country / Region,Postal code,Latitude,Primary phone",
        "GB-#,Acme,# High Street,Unit #,Soho,London,England,GB,W1# 1AA,51.#,020 7946 00",
        "Business name",
        "{Address line 1}, {Address line 2}, {Sub-locality}, {Locality}, {Administrative area}"
        " {Postal code}",
        "Store code",
    ),
    "SAP": List(
        "Werk;Name 1;Name 2;Straße;Hausnummer;PLZ;Ort;Land;Region;Debitor",
        "10#;Markt #;;Hauptstr.;#;2009#;Hamburg;DE;02;7000#",
        "Name 1",
        "{Straße} {Hausnummer}, {PLZ} {Ort}",
        "Werk",
    ),
    "OpenStreetMap, a number left of its street": List(
        "@id,name,addr:housenumber,addr:street,addr:postcode,addr:city,opening_hours",
        "node/90#,Bäckerei #,#a,Hauptstraße,1011#,Berlin,Mo-Fr 07:00-18:00",
        "name",
        "{addr:street} {addr:housenumber}, {addr:postcode} {addr:city}",
        "@id",
    ),
    "the same in America": List(
        "osm_id,name,addr_housenumber,addr_street,addr_city,addr_state,addr_postcode",
        "90#,Store #,#,Main Street,Springfield,IL,6270#",
        "name",
        "{addr_housenumber} {addr_street}, {addr_city}, {addr_state} {addr_postcode}",
        "osm_id",
    ),
    "GTFS, without addresses": List(
        "stop_id,stop_code,stop_name,stop_lat,stop_lon,zone_id",
        "S#,1#,Station #,52.#,13.#,A",
        "stop_name",
        None,
        "stop_id",
    ),
    "SNAP, two postcodes": List(
        "Store_Name,Address,Address Line #2,City,State,Zip5,Zip4,County,ObjectId",
        "7-ELEVEN #,# Main St,,BOSTON,MA,0211#,0231,SUFFOLK,#",
        "Store_Name",
        "{Address}, {Address Line #2}, {City}, {State} {Zip5}",
        "ObjectId",
    ),
    "Salesforce": List(
        '"Account ID","Account Name","Billing Street","Billing City","Billing State/Province"'
        ',"Billing Zip/Postal Code","Billing Country"',
        '"00150#","Store #","# Elm St","Austin","TX","7870#","USA"',
        "Account Name",
        "{Billing Street}, {Billing City}, {Billing State/Province} {Billing Zip/Postal Code}",
        "Account ID",
    ),
    "Yext, a region that is a state": List(
        "Entity ID,Name,Address > Line 1,Address > City,Address > Region,Address > Postal Code"
        ",Address > Country Code",
        "st-#,Store #,# Elm St,Austin,TX,7870#,US",
        "Name",
        "{Address > Line 1}, {Address > City}, {Address > Region} {Address > Postal Code}",
        "Entity ID",
    ),
    "Bing, names without blanks": List(
        "StoreId,BusinessName,AddressLine1,AddressLine2,City,StateOrProvince,PostalCode,Country",
        "5#,Store #,# Elm St,,Austin,TX,7870#,US",
        "BusinessName",
        "{AddressLine1}, {AddressLine2}, {City}, {StateOrProvince} {PostalCode}",
        "StoreId",
    ),
    "Apple, a whole address": List(
        "Partner Location ID,Display Name,Full Address,Locality,Postcode",
        'p#,Store #,"# Elm St, Austin 7870#",Austin,7870#',
        "Display Name",
        "Full Address",
        "Partner Location ID",
    ),
    "Dynamics, a county": List(
        "Code,Name,Name 2,Address,Address 2,City,Post Code,County,Country/Region Code",
        "S#,Cronus #,,# High St,,Leeds,LS1 #AA,West Yorks,GB",
        "Name",
        "{Address}, {Address 2}, {City}, {County}, {Post Code}",
        "Code",
    ),
    "underscores, the postcode first": List(
        "store_id,store_name,street_address,zip,city_name,state_code,opened_on",
        "5#,Store #,# Elm St,7870#,Austin,TX,2020-01-01",
        "store_name",
        "{street_address}, {zip} {city_name}, {state_code}",
        "store_id",
    ),
    "a number called Store": List(
        "Store,Store Name,Addr 1,Addr 2,City,St,Zip",
        "5#,Mall #,# Elm St,,Austin,TX,7870#",
        "Store Name",
        "{Addr 1}, {Addr 2}, {City}, {St} {Zip}",
        "Store",
    ),
    "units and limits in brackets": List(
        "Store No. (4 digits),Store Name (max 30),Street (incl. number),Town,Postcode (UK)",
        "10#,Mall #,# Elm St,York,YO1 #AA",
        "Store Name (max 30)",
        "{Street (incl. number)}, {Town} {Postcode (UK)}",
        "Store No. (4 digits)",
    ),
}
FOUND_OUTSIDE = {
    "a region between town and postcode": List(
        "Name,Street,Locality,Region,Postal Code",
        "Shop #,# Summit Blvd,Birmingham,AL,3524#",
        "Name",
        "{Street}, {Locality}, {Region} {Postal Code}",
        "name",
    ),
    "streets right of a blank column": List(
        "Comuna,Local,,Direccion,Horario",
        "Concepción,Farmacia #,,Cervantes #,09:00",
        "Local",
        "{Direccion}, {Comuna}",
        "name",
    ),
    "answers, which are not names": List(
        "masterBranch,branch,address",
        'Não,72#,"Avenida Gazetta, #"',
        "branch",
        "address",
        "name",
    ),
    "DATEV, a line of the program above the header": List(
        '"EXTF";700;21;"Debitoren/Kreditoren";5;20260101;;;1001;1;20260101;4\n'
        "Konto;Name (Unternehmen);Unternehmensgegenstand;Straße;Postleitzahl;Ort;Land;Telefon",
        '1000#;"Filiale #";;"Hauptstr. #";"5066#";"Köln";"DE";"0221"',
        "Name (Unternehmen)",
        "{Straße}, {Postleitzahl} {Ort}",
        "name",
        2,
    ),
    "a column PK first, which is not an archive": List(
        "PK;NOMBRE;NOMBRE-VIA;CLASE-VIAL;TIPO-NUM;NUM;LOCALIDAD;CODIGO-POSTAL",
        "60#;Biblioteca #;ALCALA;CALLE;V;#;MADRID;2801#",
        "NOMBRE",
        "{NOMBRE-VIA} {CLASE-VIAL} {NUM}, {LOCALIDAD} {CODIGO-POSTAL}",
        "PK",
    ),
    "the French register of health": List(
        "nofinesset;rs;numvoie;typvoie;voie;commune;ligneacheminement",
        "0100#;PHARMACIE #;#;R;DE LYON;004;01500 AMBERIEU",
        "rs",
        "{numvoie} {typvoie} {voie}, {ligneacheminement}",
        "name",
    ),
    "Italian pharmacies, words without blanks": List(
        "INDIRIZZO;DESCRIZIONEFARMACIA;CAP;DESCRIZIONECOMUNE;FRAZIONE;SIGLAPROVINCIA",
        "VIA ROMA #;FARMACIA #;0010#;ROMA;-;RM",
        "DESCRIZIONEFARMACIA",
        "{INDIRIZZO}, {FRAZIONE}, {CAP} {DESCRIZIONECOMUNE}, {SIGLAPROVINCIA}",
        "name",
    ),
    "Polish postcodes right of the street": List(
        "Nr sklepu;Nazwa;Ulica i nr;Kod;Miasto",
        "1#;Sklep #;Długa #;00-950;Warszawa",
        "Nazwa",
        "{Ulica i nr}, {Kod} {Miasto}",
        "Nr sklepu",
    ),
    "Indian PINs": List(
        "Sr. No.,Branch Name,Address,City,State,PIN",
        "#,Branch #,# MG Road,Pune,Maharashtra,4110#0",
        "Branch Name",
        "{Address}, {City}, {State} {PIN}",
        "name",
    ),
    "Korean open data": List(
        "관리번호,사업장명,도로명주소,전화번호",
        "M#,약국 #,서울특별시 종로구 종로 #,02",
        "사업장명",
        "도로명주소",
        "관리번호",
    ),
    "a location that is the address": List(
        "Store,Location,Phone", 'Store #,"# Main St, Austin",512', "Store", "Location", "name"
    ),
    "a sales region next to the town": List(
        "Name,Street,Town,Region", "Shop #,# High St,York,NE", "Name", "{Street}, {Town}", "name"
    ),
    "a location that is the town": List(
        "name,street,houseNumber,postalCode,location,latitude",
        "Café #,Hauptstr.,#,9040#,Nürnberg,49.4",
        "name",
        "{street} {houseNumber}, {postalCode} {location}",
        "name",
    ),
    "lists of services, which are not names": List(
        "store_id,address,city,state,zipcode,tags",
        "U#,# Paseo Blvd.,Kansas City,MO,6410#,\"['Parking', 'Deli']\"",
        None,
        "{address}, {city}, {state} {zipcode}",
        "store_id",
    ),
    "a column N that has names": List(
        "n,co,area,type,address",
        'Bus Station "#",ACME,Airport,branch,"Airport Road, Block #"',
        "n",
        "address",
        "name",
    ),
    "home deliveries, which are not an address": List(
        "storeName,distance,city,addressLine,postalCode,Entrega a domicilio,displayStoreName",
        "SU#,0.16#,Aguascalientes,Av. Nacozari #,2025#,No cuenta con servicio,Nacozari #",
        "displayStoreName",
        "{addressLine}, {city} {postalCode}",
        "storeName",
    ),
    "a distance, which is not a key": List(
        "distanciaNumero,sucursalNombre,id,provincia,direccion,localidad",
        "1275.8#,#01 - SALTA,15-1-#,AR-A,Cabred #,SALTA",
        "sucursalNombre",
        "{direccion}, {localidad}, {provincia}",
        "key:id",
    ),
    "counts, which are not keys": List(
        "Name of Branch,Number of Clients,City", "B#,30#,Hsinchu", "Name of Branch", "City", "name"
    ),
    "postcodes and codes of towns, as open data calls them": List(
        "ins_nom,ins_adresse,codeCommune,ins_codepostal,ins_commune",
        "Piscine #,# rue Lery,31555,3100#,Toulouse",
        "ins_nom",
        "{ins_adresse}, {ins_codepostal} {ins_commune}",
        "name",
    ),
    "Russian budgets, with years in their headings": List(
        "Подразделение;Магазин ID;Наименование магазина;План 2026;Доход 2026;Вид",
        "Юг;R#;ТЦ Мега #;10#;5#;мини",
        "Наименование магазина",
        None,
        "Магазин ID",
    ),
    "names that are all blank": List(
        "store_name,store_number,address,city,zip_code",
        ",,# Gratiot Ave,Chesterfield,4805#",
        None,
        "{address}, {city} {zip_code}",
        None,
    ),
    "Japanese names with towns in them": List(
        "id,formal,libkey,address",
        "11#,千早赤阪村くすのき図書室,図書室,大阪府千早赤阪村水分263番地",
        "formal",
        "address",
        "key:id",
    ),
}
LANGUAGES = {
    "French, the kind of street": List(
        "Code magasin;Nom du magasin;N° de voie;Type de voie;Libellé de la voie;Code postal;Ville",
        "M#;Super #;#;rue;des Lilas;7500#;Paris",
        "Nom du magasin",
        "{N° de voie} {Type de voie} {Libellé de la voie}, {Code postal} {Ville}",
        "Code magasin",
    ),
    "the French register": List(
        "siret;enseigne1Etablissement;numeroVoieEtablissement;typeVoieEtablissement"
        ";libelleVoieEtablissement;codePostalEtablissement;libelleCommuneEtablissement",
        "1234567890#;CAFE #;#;RUE;DES LILAS;7500#;PARIS",
        "enseigne1Etablissement",
        "{numeroVoieEtablissement} {typeVoieEtablissement} {libelleVoieEtablissement}"
        ", {codePostalEtablissement} {libelleCommuneEtablissement}",
        "siret",
    ),
    "German, a running number and a key": List(
        "Lfd. Nr.;Kundennummer;Firma;Ansprechpartner;Strasse;Hausnr;PLZ / Ort;Tel.",
        "#;K#;Firma #;Meier;Weg;#;01067 Dresden;03",
        "Firma",
        "{Strasse} {Hausnr}, {PLZ / Ort}",
        "Kundennummer",
    ),
    "Dutch, an addition to the number": List(
        "Filiaalnr;Filiaalnaam;Straat;Huisnr;Toevoeging;Postcode;Plaats;Telefoon",
        "1#;AH #;Kerkstraat;#;A;1017 AB;Amsterdam;020",
        "Filiaalnaam",
        "{Straat} {Huisnr} {Toevoeging}, {Postcode} {Plaats}",
        "Filiaalnr",
    ),
    "Polish, a code that is the postcode": List(
        "Lp.;Nr sklepu;Nazwa;Adres;Kod;Miejscowość;Województwo",
        "#;5#;Sklep #;ul. Długa #;00-001;Warszawa;mazowieckie",
        "Nazwa",
        "{Adres}, {Kod} {Miejscowość}, {Województwo}",
        "Nr sklepu",
    ),
    "Spanish": List(
        "Código;Nombre comercial;Dirección;Código Postal;Población;Provincia;Teléfono",
        "5#;Tienda #;C/ Mayor #;2800#;Madrid;Madrid;91",
        "Nombre comercial",
        "{Dirección}, {Código Postal} {Población}, {Provincia}",
        "Código",
    ),
    "Italian, the number of the house after an address": List(
        "Codice PdV;Insegna;Indirizzo;N. civico;CAP;Comune;Provincia;Regione",
        "P#;Conad #;Via Roma;#;0010#;Roma;RM;Lazio",
        "Insegna",
        "{Indirizzo} {N. civico}, {CAP} {Comune}, {Provincia}",
        "Codice PdV",
    ),
    "Portuguese, a house number that is called like a key": List(
        "Cód. Loja;Nome da Loja;Endereço;Nº;Complemento;Bairro;Cidade;UF;CEP",
        "5#;Pão #;Rua A;#;Loja #;Centro;São Paulo;SP;01000-000",
        "Nome da Loja",
        "{Endereço} {Nº}, {Complemento}, {Bairro}, {Cidade}, {UF} {CEP}",
        "Cód. Loja",
    ),
    "Japanese, from the postcode to the building": List(
        "店番,店名,郵便番号,都道府県,市区町村,番地,建物名,電話番号",
        "00#,渋谷#店,150-0001,東京都,渋谷区,宇田川町1-#,ビル2F,03-1234-5678",
        "店名",
        "{郵便番号} {都道府県}{市区町村}{番地} {建物名}",
        "店番",
    ),
    "Chinese": List(
        "门店编号,门店名称,省,市,详细地址,电话",
        "10#,北京#店,北京,北京市,朝阳路#号,010",
        "门店名称",
        "{省}{市}{详细地址}",
        "门店编号",
    ),
    "Korean": List(
        "매장코드,매장명,주소,우편번호,전화번호",
        "K#,강남#점,서울시 강남구 #,0612#,02",
        "매장명",
        "{주소}, {우편번호}",
        "매장코드",
    ),
    "Russian": List(
        "Код;Название магазина;Город;Улица;Дом;Индекс",
        "1#;Пятёрочка #;Москва;Ленина;#;10100#",
        "Название магазина",
        "{Улица} {Дом}, {Город} {Индекс}",
        "Код",
    ),
    "Danish": List(
        "Butiksnr.;Butiksnavn;Vejnavn;Husnr;Postnr;By",
        "1#;Netto #;Vestergade;#;1000;København",
        "Butiksnavn",
        "{Vejnavn} {Husnr}, {Postnr} {By}",
        "Butiksnr.",
    ),
    "Finnish": List(
        "Myymälänumero;Myymälä;Katuosoite;Postinumero;Postitoimipaikka",
        "1#;K-Market #;Katu #;00100;Helsinki",
        "Myymälä",
        "{Katuosoite}, {Postinumero} {Postitoimipaikka}",
        "Myymälänumero",
    ),
    "Czech, C.p. that is the house": List(
        "Číslo prodejny;Název;Ulice;Č.p.;PSČ;Město",
        "1#;Albert #;Dlouhá;#;110 00;Praha",
        "Název",
        "{Ulice} {Č.p.}, {PSČ} {Město}",
        "Číslo prodejny",
    ),
    "Hungarian": List(
        "Üzletszám;Üzlet neve;Irányítószám;Város;Cím",
        "1#;CBA #;1011;Budapest;Fő utca #.",
        "Üzlet neve",
        "{Cím}, {Irányítószám} {Város}",
        "Üzletszám",
    ),
    "Turkish": List(
        "Mağaza Kodu;Mağaza Adı;Adres;İlçe;İl;Posta Kodu",
        "1#;BİM #;Cad. #;Kadıköy;İstanbul;34710",
        "Mağaza Adı",
        "{Adres}, {İlçe}, {İl} {Posta Kodu}",
        "Mağaza Kodu",
    ),
    "Norwegian": List(
        "Butikknr;Navn;Gateadresse;Postnr.;Sted",
        "1#;Kiwi #;Storgata #;010#;Oslo",
        "Navn",
        "{Gateadresse}, {Postnr.} {Sted}",
        "Butikknr",
    ),
    "Swedish": List(
        "Butik nr;Namn;Adress;Postnummer;Postort",
        "1#;ICA #;Storgatan #;111 22;Stockholm",
        "Namn",
        "{Adress}, {Postnummer} {Postort}",
        "Butik nr",
    ),
    "Taiwanese": List(
        "店號,店名,縣市,區域,地址,電話",
        "1#,台北#店,台北市,大安區,忠孝東路#號,02",
        "店名",
        "{縣市}{區域}{地址}",
        "店號",
    ),
    "Thai": List(
        "รหัสสาขา,ชื่อสาขา,ที่อยู่,จังหวัด,รหัสไปรษณีย์",
        "1#,เซเว่น #,# ถนนสุขุมวิท,กรุงเทพ,1011#",
        "ชื่อสาขา",
        "{ที่อยู่}, {จังหวัด} {รหัสไปรษณีย์}",
        "รหัสสาขา",
    ),
    "Vietnamese": List(
        "Mã cửa hàng,Tên cửa hàng,Địa chỉ,Quận,Thành phố",
        "C#,Cửa hàng #,# Lê Lợi,Quận 1,Hồ Chí Minh",
        "Tên cửa hàng",
        "{Địa chỉ}, {Quận}, {Thành phố}",
        "Mã cửa hàng",
    ),
    "Greek": List(
        "Κωδικός;Κατάστημα;Διεύθυνση;ΤΚ;Πόλη",
        "1#;ΑΒ #;Ερμού #;10563;Αθήνα",
        "Κατάστημα",
        "{Διεύθυνση}, {ΤΚ} {Πόλη}",
        "Κωδικός",
    ),
    "Arabic": List(
        "الاسم,العنوان,المدينة",
        "متجر #,شارع #,الرياض",
        "الاسم",
        "{العنوان}, {المدينة}",
        "name",
    ),
}
SHAPES = {
    "titles with the period of a report": List(
        "Report: Stores,,,\nCountry:,UK,,\nFrom,01/01/2026,To,31/12/2026\nNo,Name,Address,Town",
        "#,Store #,# High St,York",
        "Name",
        "{Address}, {Town}",
        "No",
        4,
    ),
    "names of groups above the header": List(
        "Master data,,Address,,Contact\nCode,Name,Street,City,Phone",
        "#,Store #,# High St,York,01904",
        "Name",
        "{Street}, {City}",
        "Code",
        2,
    ),
    "a blank column in the middle": List(
        "No,Name,,Address,Town", "#,Store #,,# High St,York", "Name", "{Address}, {Town}", "No"
    ),
    "a second address, for bills": List(
        "Name,Street,City,Zip,Street,City,Zip",
        "N#,# Low St,York,YO1,# Hi St,Leeds,LS1",
        "Name",
        "{Street}, {City} {Zip}",
        "name",
    ),
    "an address that has the town, but no postcode": List(
        "Name,Address,City,Postcode",
        'N#,"# Low St, York",York,YO# 1AA',
        "Name",
        "{Address}, {Postcode}",
        "name",
    ),
    "a town that is a word of the street": List(
        "Name,Address,City", "N#,London Road,London", "Name", "{Address}, {City}", "name"
    ),
    "a building left of the street, a locality and a town": List(
        "Site Ref,Site Name,Building,Street,Locality,Town,Post Code",
        "SR#,Site #,Unit #,High St,Headingley,Leeds,LS# 1AA",
        "Site Name",
        "{Building}, {Street}, {Locality}, {Town} {Post Code}",
        "Site Ref",
    ),
    "addresses by their cells, below a question": List(
        "What is the store's name?,Where is it?,Services",
        'S#,"# High St, York","Coffee, tea"',
        "What is the store's name?",
        "Where is it?",
        "name",
    ),
    "short headings": List(
        "Code,Name,Add1,Add2,Add3,PCode",
        "C#,S#,# High St,York,N Yorks,YO1 #AA",
        "Name",
        "{Add1}, {Add2}, {Add3}, {PCode}",
        "Code",
    ),
    "a unique number that is the house": List(
        "Store,No.,Street,City", "N#,#,Low St,York", "Store", "{No.} {Street}, {City}", "name"
    ),
}
WITHOUT_HEADER = {
    "a house, state and postcode": (
        "Shop #,# High St,Austin,TX,7870#,512-555-0100",
        ("1", "{2}, {3}, {4} {5}"),
    ),
    "a town that repeats left of the names": ("York,Shop #,# High St", ("2", "3")),
    "answers right of the postcode": (
        "Shop #,# High St,YO1 #AA,Yes,No,LAL",
        ("1", "{2}, {3}"),
    ),
    "codes left of the names": (
        "FA#,BOOTS #,Y51,# HIGH STREET,LEEDS,LS# 1AA",
        ("2", "{4}, {5} {6}"),
    ),
    "the country left of the names": ('#,CZ,"Brno, Masarykova #"', ("3", None)),
    "the address first": ('"# High St, York",Shop #', ("2", "1")),
    "streets without numbers, stores called Shop 1 and so on": (
        "Shop #,Hauptstraße,Köln",
        ("1", "{2}, {3}"),
    ),
}
HEADED = {**PROGRAMS, **FOUND_OUTSIDE, **LANGUAGES, **SHAPES}


@pytest.mark.parametrize("kind", HEADED)
def test_a_list_is_proposed_by_its_headings_and_its_cells(kind: str) -> None:
    case = HEADED[kind]
    found = look(_data(case).encode())
    proposed = (found.name.value, found.address.value, found.match.value)
    assert proposed == (case.name, case.address, case.match)
    assert found.header_row == case.header_row
    assert found.rows == _ROWS


@pytest.mark.parametrize("kind", WITHOUT_HEADER)
def test_a_list_without_a_header_is_proposed_by_its_cells(kind: str) -> None:
    row, proposed = WITHOUT_HEADER[kind]
    found = look("".join(f"{row}\n".replace("#", str(number)) for number in range(1, 9)).encode())
    assert found.header_row is None
    assert (found.name.value, found.address.value) == proposed


def test_only_what_a_whole_address_lacks_is_said_to_be_dropped() -> None:
    def dropped(header: str, row: str) -> list[str]:
        return look(f"{header}\n{row}\n".encode()).dropped

    assert dropped("Name,Address,City,Country", 'A,"1 Elm St, York",York,UK') == []
    assert dropped("Name,Address,City,Country", "A,1 Elm St,York,UK") == ["Country"]
    assert dropped("Name,Address,Address", 'A,"1 Elm St, York",Box 3') == []
    assert dropped("Name,Address,Address,City,City", "A,1 St,2 St,York,Bath") == [
        "Address (2)",
        "City (2)",
    ]
