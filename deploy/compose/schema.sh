#!/bin/sh
# Makes Temporal's two databases, and brings their schemas to the version of these tools. Harmless when they are there.
set -eu

for database in temporal temporal_visibility; do
    schema=/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned
    # An update first: a set-up on a database that is there would begin its versions anew.
    if temporal-sql-tool --db "$database" update-schema -d "$schema"; then
        continue
    fi
    echo "There is no $database yet: it is made."
    temporal-sql-tool --db "$database" create
    temporal-sql-tool --db "$database" setup-schema -v 0.0
    temporal-sql-tool --db "$database" update-schema -d "$schema"
done
