"""The ledger: the durable record of calls that must run once (S31). Nothing that runs a tool or asks a person.

Before such a call starts, its intent is committed; after it ended, its result. A later attempt that finds a result
returns it; one that finds only an intent knows that the call may have taken effect; one that finds nothing knows that
it has not begun. `activities/execution/effect_runner.py` decides what follows from that. Why:
docs/decisions/0008-ledger.md.

    entry.py     what is recorded                   ledger.py     what every ledger can do, and its errors
    sqlite.py    the file of one host               postgres.py   the database that hosts share
    sqlite_file.py, postgres_database.py            opening, the tables, retries
    open.py      which one, by the settings
"""
