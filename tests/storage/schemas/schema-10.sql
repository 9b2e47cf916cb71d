SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE changes (
    seq bigint NOT NULL,
    store_id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    address text COLLATE pg_catalog."C",
    at bigint NOT NULL,
    count bigint NOT NULL,
    token_number bigint NOT NULL,
    user_name text COLLATE pg_catalog."C",
    CONSTRAINT changes_name_check CHECK (((length(name) >= 1) AND (length(name) <= 30)))
);
CREATE TABLE collection_10 (
    one integer NOT NULL,
    count bigint NOT NULL,
    version bigint NOT NULL,
    at bigint NOT NULL,
    epoch text NOT NULL COLLATE pg_catalog."C",
    backed_up bigint,
    folding bigint DEFAULT 0 NOT NULL,
    CONSTRAINT collection_one_check CHECK ((one = 1))
);
CREATE VIEW collection AS
 SELECT collection_10.one,
    collection_10.count,
    collection_10.version,
    collection_10.at,
    collection_10.epoch,
    collection_10.backed_up
   FROM collection_10
  GROUP BY collection_10.one, collection_10.count, collection_10.version, collection_10.at, collection_10.epoch, collection_10.backed_up;
CREATE TABLE external_ids (
    store_id bigint NOT NULL,
    column_name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    given_name text COLLATE pg_catalog."C",
    given_address text COLLATE pg_catalog."C",
    CONSTRAINT external_ids_column_name_check CHECK (((length(column_name) >= 1) AND (length(column_name) <= 200))),
    CONSTRAINT external_ids_value_check CHECK (((length(value) >= 1) AND (length(value) <= 200)))
);
CREATE TABLE imports (
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    undoes bigint,
    file text COLLATE pg_catalog."C",
    token_number bigint NOT NULL,
    user_name text COLLATE pg_catalog."C"
);
CREATE TABLE key_changes (
    seq bigint NOT NULL,
    column_name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    attached bigint NOT NULL,
    given_name text COLLATE pg_catalog."C",
    given_address text COLLATE pg_catalog."C",
    CONSTRAINT key_changes_attached_check CHECK ((attached = ANY (ARRAY[('-1'::integer)::bigint, (0)::bigint, (1)::bigint])))
);
CREATE TABLE keys (
    n bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    request bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    result text COLLATE pg_catalog."C"
);
CREATE TABLE probe (
    one integer DEFAULT 1 NOT NULL,
    filler text NOT NULL,
    CONSTRAINT probe_one_check CHECK ((one = 1))
);
CREATE TABLE storekeeper (
    schema integer NOT NULL
);
ALTER TABLE ONLY storekeeper REPLICA IDENTITY FULL;
CREATE TABLE stores (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    folded text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    address text COLLATE pg_catalog."C",
    folded_name text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT stores_name_check CHECK (((length(name) >= 1) AND (length(name) <= 30)))
);
CREATE TABLE tokens (
    number bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    hash text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    expires bigint,
    revoked bigint,
    used bigint,
    created_by text COLLATE pg_catalog."C",
    revoked_by text COLLATE pg_catalog."C",
    CONSTRAINT tokens_scope_check CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text])))
);
INSERT INTO changes VALUES (1, 1, 'Main Street', '1 Main Street, Springfield', 1795757887697, 1, 0, NULL);
INSERT INTO changes VALUES (2, 2, 'Harbour', '20 Quay Road, Portsmouth', 1795757887697, 2, 0, NULL);
INSERT INTO changes VALUES (3, 3, 'Airport Kiosk', NULL, 1795757887697, 3, 0, NULL);
INSERT INTO changes VALUES (4, 4, 'Ærø Köbmand', '1 Åvej
Øby', 1795757887865, 4, 1, NULL);
INSERT INTO changes VALUES (5, 2, 'Harbour', '', 1795757887876, 4, 1, NULL);
INSERT INTO changes VALUES (6, 3, ' airport  KIOSK ', NULL, 1795757887877, 4, 0, 'anna');
INSERT INTO changes VALUES (7, 5, 'Leeds', '3 High St', 1795757887975, 5, 1, NULL);
INSERT INTO changes VALUES (8, 6, 'York', NULL, 1795757887975, 6, 1, NULL);
INSERT INTO changes VALUES (9, 5, 'Leeds Central', '3 High St', 1795757888067, 6, 0, NULL);
INSERT INTO collection_10 VALUES (1, 6, 9, 1795757888067, 'jlkb4o7o', NULL, 1);
INSERT INTO external_ids VALUES (5, 'Store Number', 'A7', 'Leeds', '3 High St');
INSERT INTO external_ids VALUES (6, 'Store Number', 'B8', 'York', '');
INSERT INTO imports VALUES (7, 8, NULL, 'stores.csv', 1, 'root');
INSERT INTO imports VALUES (9, 9, NULL, 'names.csv', 0, 'root');
INSERT INTO keys VALUES (1, 'key-1', 7, 4, 1795757887865, NULL);
INSERT INTO keys VALUES (2, 'import-1', 8, 9, 1795757888067, '{"dryRun":false,"rows":1,"created":0,"replaced":1,"unchanged":0,"conflicts":0,"bad":0,"missing":5,"version":"9.jlkb4o7o","repeated":0,"adopted":0,"from":"9.jlkb4o7o","to":"9.jlkb4o7o"}');
INSERT INTO storekeeper VALUES (10);
INSERT INTO stores VALUES (1, 'Main Street', 'main street 1 main street, springfield', 1, '1 Main Street, Springfield', 'main street');
INSERT INTO stores VALUES (4, 'Ærø Köbmand', 'ærø kobmand 1 avej øby', 4, '1 Åvej
Øby', 'ærø kobmand');
INSERT INTO stores VALUES (2, 'Harbour', 'harbour', 5, '', 'harbour');
INSERT INTO stores VALUES (3, ' airport  KIOSK ', 'airport kiosk', 6, NULL, 'airport kiosk');
INSERT INTO stores VALUES (6, 'York', 'york', 8, NULL, 'york');
INSERT INTO stores VALUES (5, 'Leeds Central', 'leeds central 3 high st', 9, '3 High St', 'leeds central');
INSERT INTO tokens VALUES (1, 'till', 'write', '1d4de437faa810cdd1ccdeb7394f64cef2a4554dc53140b1ff009051e0fec0a3', 1790000000000, NULL, NULL, NULL, 'root', NULL);
INSERT INTO tokens VALUES (2, 'wall', 'read', '8aa2c5475aeb5a2318e984ea15df7eea851311d67968b71e982f4ace5f53120e', 1790000000001, 1890000000000, 1790000000002, NULL, 'root', 'root');
ALTER TABLE ONLY changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY collection_10
    ADD CONSTRAINT collection_pkey PRIMARY KEY (one);
ALTER TABLE ONLY external_ids
    ADD CONSTRAINT external_ids_pkey PRIMARY KEY (store_id, column_name);
ALTER TABLE ONLY external_ids
    ADD CONSTRAINT external_ids_value_column_name_key UNIQUE (value, column_name);
ALTER TABLE ONLY imports
    ADD CONSTRAINT imports_pkey PRIMARY KEY (first_seq);
ALTER TABLE ONLY key_changes
    ADD CONSTRAINT key_changes_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY keys
    ADD CONSTRAINT keys_key_key UNIQUE (key);
ALTER TABLE ONLY keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (n);
ALTER TABLE ONLY probe
    ADD CONSTRAINT probe_pkey PRIMARY KEY (one);
ALTER TABLE ONLY stores
    ADD CONSTRAINT stores_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);
ALTER TABLE ONLY tokens
    ADD CONSTRAINT tokens_name_key UNIQUE (name);
ALTER TABLE ONLY tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (number);
CREATE INDEX changes_by_store ON changes USING btree (store_id, seq);
CREATE INDEX stores_by_folded_name ON stores USING btree (folded_name, id);
CREATE INDEX stores_by_name ON stores USING btree (name, id);
