"""The extension worker: loads extensions, and serves calls into them.

It runs with the operator's rights. The launcher decides what is called; nothing
of a sandbox comes here but JSON data that has passed the policy and a schema.
"""
