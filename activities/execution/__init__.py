"""Running one call that was judged: heartbeats, stops, effects, the outcome. No judgement."""
