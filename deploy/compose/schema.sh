#!/bin/sh
# Makes Temporal's two databases, and brings their schemas to the version of these tools. Each command leaves alone what is
# there already (`setup-schema` skips a database whose version is above 0.0), so the first one that fails is the problem.
set -eu

for database in temporal temporal_visibility; do
    temporal-sql-tool --db "$database" create
    temporal-sql-tool --db "$database" setup-schema -v 0.0
    temporal-sql-tool --db "$database" update-schema \
        -d "/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned"
done
