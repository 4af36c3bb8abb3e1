"""Models: the catalogue, credentials, and the adapters that speak to providers.

Must never raise for a provider's failure: it ends as a reply.
"""
