#!/bin/sh
# Run by PostgreSQL's image when it makes its volume: a user and a database for the ledger, which see nothing of Temporal's.
set -eu

psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 --set password="$HOLDFAST_LEDGER_PASSWORD" <<'SQL'
CREATE ROLE holdfast LOGIN PASSWORD :'password';
CREATE DATABASE holdfast OWNER holdfast;
REVOKE CONNECT ON DATABASE holdfast FROM PUBLIC;
SQL
