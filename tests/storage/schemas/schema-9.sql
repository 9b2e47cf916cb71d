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
    CONSTRAINT changes_name_check CHECK (((length(name) >= 1) AND (length(name) <= 30)))
);
CREATE TABLE collection (
    one integer NOT NULL,
    count bigint NOT NULL,
    version bigint NOT NULL,
    at bigint NOT NULL,
    epoch text NOT NULL COLLATE pg_catalog."C",
    backed_up bigint,
    CONSTRAINT collection_one_check CHECK ((one = 1))
);
CREATE TABLE external_ids (
    store_id bigint NOT NULL,
    column_name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT external_ids_column_name_check CHECK (((length(column_name) >= 1) AND (length(column_name) <= 200))),
    CONSTRAINT external_ids_value_check CHECK (((length(value) >= 1) AND (length(value) <= 200)))
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
    CONSTRAINT tokens_scope_check CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text])))
);
INSERT INTO changes VALUES (1, 1, 'Main Street', '1 Main Street, Springfield', 1795746046704, 1, 0);
INSERT INTO changes VALUES (2, 2, 'Harbour', '20 Quay Road, Portsmouth', 1795746046704, 2, 0);
INSERT INTO changes VALUES (3, 3, 'Airport Kiosk', NULL, 1795746046704, 3, 0);
INSERT INTO changes VALUES (4, 4, 'Ærø Köbmand', '1 Åvej
Øby', 1795746046791, 4, 1);
INSERT INTO changes VALUES (5, 2, 'Harbour', '', 1795746046801, 4, 1);
INSERT INTO changes VALUES (6, 3, ' airport  KIOSK ', NULL, 1795746046808, 4, 0);
INSERT INTO changes VALUES (7, 5, 'Leeds', '3 High St', 1795746046826, 5, 1);
INSERT INTO changes VALUES (8, 6, 'York', NULL, 1795746046826, 6, 1);
INSERT INTO changes VALUES (9, 5, 'Leeds Central', '3 High St', 1795746046844, 6, 0);
INSERT INTO collection VALUES (1, 6, 9, 1795746046844, 'goerfyqj', NULL);
INSERT INTO external_ids VALUES (5, 'Store Number', 'A7');
INSERT INTO external_ids VALUES (6, 'Store Number', 'B8');
INSERT INTO keys VALUES (1, 'key-1', 7, 4, 1795746046791, NULL);
INSERT INTO keys VALUES (2, 'import-1', 8, 9, 1795746046844, '{"dryRun":false,"rows":1,"created":0,"replaced":1,"unchanged":0,"conflicts":0,"bad":0,"missing":5,"version":"9.goerfyqj"}');
INSERT INTO storekeeper VALUES (9);
INSERT INTO stores VALUES (1, 'Main Street', 'main street 1 main street, springfield', 1, '1 Main Street, Springfield');
INSERT INTO stores VALUES (2, 'Harbour', 'harbour', 5, '');
INSERT INTO stores VALUES (3, ' airport  KIOSK ', 'airport kiosk', 6, NULL);
INSERT INTO stores VALUES (4, 'Ærø Köbmand', 'ærø kobmand 1 avej øby', 4, '1 Åvej
Øby');
INSERT INTO stores VALUES (5, 'Leeds Central', 'leeds central 3 high st', 9, '3 High St');
INSERT INTO stores VALUES (6, 'York', 'york', 8, NULL);
INSERT INTO tokens VALUES (1, 'till', 'write', '1d4de437faa810cdd1ccdeb7394f64cef2a4554dc53140b1ff009051e0fec0a3', 1790000000000, NULL, NULL, NULL);
INSERT INTO tokens VALUES (2, 'wall', 'read', '8aa2c5475aeb5a2318e984ea15df7eea851311d67968b71e982f4ace5f53120e', 1790000000001, 1890000000000, 1790000000002, NULL);
ALTER TABLE ONLY changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY collection
    ADD CONSTRAINT collection_pkey PRIMARY KEY (one);
ALTER TABLE ONLY external_ids
    ADD CONSTRAINT external_ids_pkey PRIMARY KEY (store_id, column_name);
ALTER TABLE ONLY external_ids
    ADD CONSTRAINT external_ids_value_column_name_key UNIQUE (value, column_name);
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
CREATE INDEX stores_by_name ON stores USING btree (name, id);
