"""Compares Everwatch with other systems on tasks that never end."""
