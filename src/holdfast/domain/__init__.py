"""The pure language of Holdfast: data and decisions about it. No I/O, no clock, no Temporal."""
