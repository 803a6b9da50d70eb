"""A weir.yaml for tests of weir serve."""

HEAD = """gateway:
  listen: 127.0.0.1:@PORT@
  upstreams: [@BACKEND@]
metrics: 127.0.0.1:@METRICS@
segment: { path: "@FOLDER@/segment", size: 1MiB }
workers: 2
"""
RULES = """rules:
  - name: two
    match: { path: /two }
    limit: 2
    window: 1h
"""
