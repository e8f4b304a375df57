"""The ledger: the durable record of calls that must run once (S31). Nothing that runs a tool or asks a person.

Before such a call starts, its intent is committed; after it ended, its result. A later attempt that finds a result
returns it; one that finds only an intent knows that the call may have taken effect; one that finds nothing knows that
it has not begun. `activities/execution/effect_runner.py` decides what follows from that. Why:
docs/decisions/0008-ledger.md.

    ledger.py    the interface, its records and its errors
    sqlite.py    the file of one host               sqlite_file.py        how it is created and opened
    postgres.py  the database that hosts share      postgres_database.py  connections, tables, retries
    open.py      opens the one that the settings name
    sealed_table.py  further tables of that database, encrypted: saved grants, logins
"""
