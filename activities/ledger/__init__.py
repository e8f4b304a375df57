"""The ledger of effects: what a worker writes down before and after a call that must run once (S31).

Before such a call starts its intent is recorded, durably; after it, its result. Whoever comes later and finds a result
gives that back, finds an intent and knows that it may have happened, or finds nothing and knows that it has not begun.
What follows from that is for the executing activity to say: nothing here runs a tool or asks anybody.

    entry.py     what is recorded             ledger.py   what every ledger can do, and how it says that it cannot
    sqlite.py      of one host: a file          postgres.py   of many: a database they share
    postgres_database.py    how that is asked, and the tables: also of saved grants and MCP logins, which hosts share by
    it open.py     which one, by the settings   ledger_address.py  where the shared one is, without showing its password
"""
