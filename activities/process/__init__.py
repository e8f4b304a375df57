"""Processes of the operating system: commands, their trees and their output. No tool and no policy."""
